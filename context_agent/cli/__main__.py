"""The entry point of `python -m context_agent.cli`, which works without the `ctx1` script on the path."""

from context_agent.cli import main

main()
