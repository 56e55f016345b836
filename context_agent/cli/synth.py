"""`ctx1 synth`: tasks for training and measuring, from a corpus of one's own or from an invented world."""

from __future__ import annotations

import click

from context_agent.cli.group import LazyGroup

COMMANDS: dict[str, str] = {
    "tasks": "context_agent.cli.synth_tasks:tasks",
    "explore": "context_agent.cli.synth_stages:explore",
    "write": "context_agent.cli.synth_stages:write",
    "verify": "context_agent.cli.synth_stages:verify",
    "distract": "context_agent.cli.synth_stages:distract",
    "extend": "context_agent.cli.synth_stages:extend",
    "world": "context_agent.cli.synth_world:world",
    "trajectories": "context_agent.cli.synth_trajectories:trajectories",
    "from-feedback": "context_agent.cli.synth_from_feedback:from_feedback",
    "replay-check": "context_agent.cli.synth_replay_check:replay_check",
    "filter": "context_agent.cli.synth_filter:filter_",
    "review": "context_agent.cli.synth_review:review",
    "split": "context_agent.cli.synth_split:split",
    "check": "context_agent.cli.synth_split:check",
    "card": "context_agent.cli.synth_split:card",
    "export": "context_agent.cli.synth_export:export",
}


@click.group(cls=LazyGroup, table=COMMANDS)
def synth() -> None:
    """Make tasks: questions with their answers, documents and distractors."""
