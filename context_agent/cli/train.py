"""`ctx1 train`: what can be fitted to data of one's own."""

from __future__ import annotations

from itertools import pairwise

import click

from context_agent.cli.group import LazyGroup, loaded

COMMANDS = {
    "bridge": "context_agent.cli.train_bridge:bridge",
    "sft": "context_agent.cli.train_run:sft",
    "rl": "context_agent.cli.train_run:rl",
    "demo": "context_agent.cli.train_demo:demo",
    "judge-check": "context_agent.cli.train_judge_check:judge_check",
    "verl": "context_agent.cli.train_verl:verl",
}


BRIDGE = "context_agent.cli.train_rl_bridge:bridge"
"""What `rl` is with `--policy bridge`."""


class TrainGroup(LazyGroup):
    """`rl` trains a model that a file describes, or the embedded policy: two commands, told apart by `--policy`."""

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """As the table says, but for `rl --policy bridge`."""
        name, command, rest = super().resolve_command(ctx, args)
        if name == "rl" and _bridge(rest):
            command = loaded(BRIDGE)
        return name, command, rest


@click.group(cls=TrainGroup, table=COMMANDS)
def train() -> None:
    """Fit a policy to questions of your own."""


def _bridge(args: list[str]) -> bool:
    return "--policy=bridge" in args or ("--policy", "bridge") in pairwise(args)
