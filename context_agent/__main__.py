"""`python -m context_agent` runs `ctx1`, also where the shell does not find the command."""

from context_agent.cli import main

if __name__ == "__main__":
    main()
