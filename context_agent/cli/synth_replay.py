"""The command `ctx1 synth replay-check`, which compares recorded episodes with those of today's index and harness."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter

from context_agent.cli import output
from context_agent.cli.index_options import CorpusOptions
from context_agent.cli.interrupts import run_interruptible
from context_agent.cli.parameters import EXISTING_PATH, OUTPUT_FOLDER, REQUIRED, CommonOptions, options_in

if TYPE_CHECKING:
    from context_agent.synth_data.demonstrations.replayed_files import ReplayResult, ReplaySettings


LISTED_DIFFERENCES = 20
"""Number of differences that are listed one by one. The JSON report has all."""


@options_in("Replay")
@dataclass(frozen=True, slots=True)
class ReplayOptions:
    """The settings of the replay with which a record is compared."""

    tokenizer: Annotated[str | None, Parameter(metavar="NAME_OR_FOLDER", show_default="gpt-oss's vocabulary")] = None
    """Tokenizer that counts the records of a tokens policy."""
    recorded_profile: bool = False
    """Replay with the recorded profile instead of comparing it with the current one."""
    any_corpus: bool = False
    """Also replay records of a corpus with another name."""

    def settings(self) -> ReplaySettings:
        """Return the settings of the replay. The tokenizer is already loaded."""
        from context_agent.policies.tokens import VocabularyCounter, templated
        from context_agent.synth_data.demonstrations.replayed_files import ReplaySettings

        counter = None if self.tokenizer is None else VocabularyCounter(templated(self.tokenizer))
        return ReplaySettings(counter, recorded_profile=self.recorded_profile, any_corpus=self.any_corpus)


def replay_check(
    *paths: Annotated[Path, EXISTING_PATH, REQUIRED],
    out: Annotated[Path | None, OUTPUT_FOLDER] = None,
    replay: ReplayOptions = ReplayOptions(),
    index: CorpusOptions = CorpusOptions(),
    common: CommonOptions = CommonOptions(),
) -> int:
    """Replay recorded episodes on the current index.

    The command reports which views differ from the record, where and why. The actions come from the record, and no
    policy runs. The exit code is 1 if an episode differs.

    Args:
        paths: Trajectory files, and folders with trajectory files.
        out: Copy the episodes without differences to FOLDER/kept, for `ctx1 train sft`.
    """
    from context_agent.synth_data.demonstrations.replayed_files import ReplaySummary, check_files, trajectory_files

    files = trajectory_files(paths)
    settings = replay.settings()
    with index.open() as corpus, output.progress("Replaying", "episodes") as advance:
        results = run_interruptible(check_files(files, corpus, settings, advance=advance))
    summary = ReplaySummary.of(results)
    if out is not None:
        _write_equal(out, results, summary.to_json())
    if common.json:
        output.print_json({**summary.to_json(), "episodes": [result.to_json() for result in results]})
    else:
        show_replays(results, summary.to_json())
        if out is not None:
            output.echo(f"{summary.same:,} episodes are in {out}")
    return 0 if summary.same == summary.checked else 1


def _write_equal(out: Path, results: Sequence[ReplayResult], report: dict[str, Any]) -> None:
    """Copy the episodes without differences to a folder for training, and list the others as dropped."""
    from context_agent.synth_data.demonstrations.selection import ReplayRow, write_selection

    rows = [
        (ReplayRow(result.path, {**result.to_json(), "file": result.path.name}), result.difference is None)
        for result in results
    ]
    write_selection(out, [row for row, same in rows if same], [row for row, same in rows if not same], report)


def show_replays(results: Sequence[ReplayResult], report: dict[str, Any], *, err: bool = False) -> None:
    """Print the number of equal episodes, the causes with their counts, and the first differences."""
    lines = [f"{report['same']:,} of {report['checked']:,} episodes replay as recorded"]
    lines += [f"  {number:6,}  {cause}" for cause, number in report["causes"].items()]
    differing = [(result.path.name, result.difference) for result in results if result.difference is not None]
    for name, difference in differing[:LISTED_DIFFERENCES]:
        turn = "before the first turn" if difference.turn < 0 else f"turn {difference.turn}"
        lines.append(f"{name}: {difference.cause}, {turn}: {difference.detail}")
    if len(differing) > LISTED_DIFFERENCES:
        lines.append(f"and {len(differing) - LISTED_DIFFERENCES:,} more; --json has all")
    other_versions = {
        f"by {version}": number for version, number in report["recorded_by"].items() if version != report["version"]
    }
    if other_versions:
        output.note(
            f"some trajectories were recorded by another version than this one ({report['version']}): "
            f"{output.counts(other_versions)}"
        )
    output.echo("\n".join(lines), err=err)
