"""`ctx1 train bridge`: fits the embedded policy's scorer."""

from __future__ import annotations

import click

from context_agent.cli import options


@click.command()
@options.common
def bridge(*, as_json: bool) -> int:
    """Fit the bridge policy's scorer to questions with known documents."""
    return 0
