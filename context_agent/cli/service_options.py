"""Options that the two servers share: who may call, how much runs at once, and how fresh the index is."""

from __future__ import annotations

import click

from context_agent.cli.options import Command, together


def access(command: Command) -> Command:
    """The bearer token; the command gets `token_env` and `no_token`."""
    return together(
        command,
        click.option(
            "--token-env",
            metavar="VARIABLE",
            help="Environment variable with the token that clients send as bearer token.",
        ),
        click.option(
            "--no-token", is_flag=True, help="Listen at a host that others can reach without asking for a token."
        ),
    )


def capacity(command: Command) -> Command:
    """What runs and what waits; the command gets `concurrency`, `queue`, `max_connections`, `deadline` and
    `check`.
    """
    return together(
        command,
        click.option("--concurrency", type=click.IntRange(1), default=8, show_default=True, help="Searches at once."),
        click.option("--queue", type=click.IntRange(0), default=128, show_default=True, help="Searches that may wait."),
        click.option(
            "--max-connections",
            type=click.IntRange(1),
            default=512,
            show_default=True,
            help="Connections over HTTP; beyond that, the one that has sent nothing for longest is closed.",
        ),
        click.option(
            "--deadline",
            type=click.FloatRange(0, min_open=True),
            default=120.0,
            show_default=True,
            metavar="SECONDS",
            help="Longest that a search may take, waiting included.",
        ),
        click.option(
            "--check",
            type=click.FloatRange(0),
            default=10.0,
            show_default=True,
            metavar="SECONDS",
            help="How often to look whether the index has changed; 0 for never.",
        ),
    )
