"""`ctx1 synth replay-check`: which recorded episodes the harness and the corpus of today would still show."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from context_agent.cli import console, options

if TYPE_CHECKING:
    from context_agent.synth_data.replay_check import Checked, Terms

LISTED = 20
"""Differences that are told one by one; all of them are in the report."""


@dataclass(frozen=True, slots=True)
class ReplayOptions:
    """What a record is held against."""

    tokenizer: str | None
    recorded_profile: bool
    any_corpus: bool

    def terms(self) -> Terms:
        """The same with the tokenizer loaded."""
        from context_agent.policies.tokens import PromptCounter, templated
        from context_agent.synth_data.replay_check import Terms

        counter = None if self.tokenizer is None else PromptCounter(templated(self.tokenizer))
        return Terms(counter, recorded_profile=self.recorded_profile, any_corpus=self.any_corpus)


def replayed(command: options.Command) -> options.Command:
    """The options of a replay; the command gets them as `replay: ReplayOptions`."""
    return options.together(
        options.gathered(command, "replay", ReplayOptions),
        click.option(
            "--tokenizer",
            metavar="NAME_OR_FOLDER",
            help="Counts records that a tokens policy made with a chat template.  [default: gpt-oss's vocabulary]",
        ),
        click.option(
            "--recorded-profile", is_flag=True, help="Don't hold the recorded profile against the one of today."
        ),
        click.option("--any-corpus", is_flag=True, help="Play records of a corpus of another name, too."),
    )


@click.command("replay-check")
@click.argument(
    "paths", type=click.Path(path_type=Path), nargs=-1, required=True, metavar="FOLDER_OR_TRAJECTORY.jsonl..."
)
@click.option(
    "--out",
    type=click.Path(path_type=Path, file_okay=False),
    metavar="FOLDER",
    help="Copy the episodes that are the same to FOLDER/kept, which `ctx1 train sft` reads.",
)
@replayed
@options.index
@options.opening
@options.common
def replay_check(
    *,
    paths: tuple[Path, ...],
    out: Path | None,
    replay: ReplayOptions,
    as_json: bool,
    index: options.IndexOptions,
    opening: options.OpenOptions,
) -> int:
    """Play recorded episodes again on today's index, and say which views are no longer the same, where and why.

    The actions are those of the record; no policy is asked. The exit code is 1 where an episode differs.
    """
    from context_agent.synth_data.replay_check import Summary, check_files, recorded

    files = recorded(paths)
    terms = replay.terms()
    with options.open_corpus(index, opening) as corpus, console.progress("Replaying", "episodes") as advance:
        checked = asyncio.run(check_files(files, corpus, terms, advance=advance))
    summary = Summary.of(checked)
    if out is not None:
        keep_same(out, checked, summary.to_json())
    if as_json:
        console.print_json({**summary.to_json(), "episodes": [one.to_json() for one in checked]})
    else:
        show(checked, summary.to_json())
        if out is not None:
            click.echo(f"{summary.same:,} episodes are in {out}")
    return 0 if summary.same == summary.checked else 1


def keep_same(out: Path, checked: Sequence[Checked], report: dict[str, Any]) -> None:
    """The episodes that are the same, in a folder to train on; the others in its list of dropped ones."""
    from context_agent.synth_data.replay_check import Chosen, settle

    rows = [(Chosen(one.path, {**one.to_json(), "file": one.path.name}), one.difference is None) for one in checked]
    settle(out, [row for row, same in rows if same], [row for row, same in rows if not same], report)


def show(checked: Sequence[Checked], report: dict[str, Any], *, err: bool = False) -> None:
    """How many are the same, the causes with their counts, and the first differences."""
    click.echo(f"{report['same']:,} of {report['checked']:,} episodes are shown as they were recorded", err=err)
    for cause, count in report["causes"].items():
        click.echo(f"  {count:6,}  {cause}", err=err)
    others = {version: count for version, count in report["recorded_by"].items() if version != report["version"]}
    if others:
        told = ", ".join(f"{count:,} by {version}" for version, count in others.items())
        console.note(f"recorded by another version of the harness than this one ({report['version']}): {told}")
    differing = [one for one in checked if one.difference is not None]
    for one in differing[:LISTED]:
        found = one.difference
        assert found is not None
        place = "before the first turn" if found.turn < 0 else f"turn {found.turn}"
        click.echo(console.printable(f"{one.path.name}: {found.cause}, {place}: {found.detail}"), err=err)
    if len(differing) > LISTED:
        click.echo(f"and {len(differing) - LISTED:,} more; --json has all", err=err)
