"""`ctx1 train`: what can be fitted to data of one's own."""

from __future__ import annotations

import click

from context_agent.cli.group import LazyGroup

COMMANDS = {
    "bridge": "context_agent.cli.train_bridge:bridge",
    "sft": "context_agent.cli.train_run:sft",
    "rl": "context_agent.cli.train_run:rl",
    "demo": "context_agent.cli.train_demo:demo",
    "judge-check": "context_agent.cli.train_judge_check:judge_check",
    "verl": "context_agent.cli.train_verl:verl",
}


@click.group(cls=LazyGroup, table=COMMANDS)
def train() -> None:
    """Fit a policy to questions of your own."""
