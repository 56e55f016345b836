"""`ctx1 synth`: tasks for training and evaluation, from a corpus or from an invented world."""

from __future__ import annotations

import click

from context_agent.cli import console
from context_agent.cli.group import LazyGroup

seed_option = click.option(
    "--seed", type=int, default=0, show_default=True, help="Random seed; equal seeds give equal results."
)
LISTED_PROBLEMS = 20
"""Unreadable rows that are listed one by one."""

COMMANDS: dict[str, str] = {
    "tasks": "context_agent.cli.synth_tasks:tasks",
    "explore": "context_agent.cli.synth_stages:explore",
    "write": "context_agent.cli.synth_stages:write",
    "verify": "context_agent.cli.synth_stages:verify",
    "distract": "context_agent.cli.synth_stages:distract",
    "extend": "context_agent.cli.synth_stages:extend",
    "world": "context_agent.cli.synth_tasks:world",
    "trajectories": "context_agent.cli.synth_demonstrations:trajectories",
    "from-feedback": "context_agent.cli.synth_demonstrations:from_feedback",
    "replay-check": "context_agent.cli.synth_demonstrations:replay_check",
    "filter": "context_agent.cli.synth_quality:filter_",
    "review": "context_agent.cli.synth_quality:review",
    "split": "context_agent.cli.synth_sets:split",
    "check": "context_agent.cli.synth_sets:check",
    "card": "context_agent.cli.synth_sets:card",
    "export": "context_agent.cli.synth_sets:export",
}


@click.group(cls=LazyGroup, table=COMMANDS)
def synth() -> None:
    """Make tasks: questions with answers, gold documents and distractors."""


def report_problems(command: str, problems: list[str]) -> None:
    """Reports unreadable rows on stderr, the first of them one by one."""
    for problem in problems[:LISTED_PROBLEMS]:
        console.note(f"ctx1 synth {command}: {problem}")
    if len(problems) > LISTED_PROBLEMS:
        console.note(f"ctx1 synth {command}: and {len(problems) - LISTED_PROBLEMS:,} more")
