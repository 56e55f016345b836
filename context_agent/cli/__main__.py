"""`python -m context_agent.cli`, if the `ctx1` script is not on the path."""

from context_agent.cli import main

main()
