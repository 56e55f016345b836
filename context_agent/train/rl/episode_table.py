"""The records of a run's episodes: a table with their reward terms, and the trajectories of some of them.

OUT/trajectories/     trajectories, which `ctx1 view` shows
OUT/episodes.jsonl    one line per sampled episode and demonstration; other ranks write episodes-1.jsonl and so on
OUT/episodes.html     the newest episodes, which a browser can sort and filter
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any
from zlib import crc32

from context_agent._support.atomic_files import replace_file
from context_agent.errors import DataError, reason_of
from context_agent.harness.trajectory_file import write
from context_agent.train.advantages import EpisodeAdvantages
from context_agent.train.metrics_log import MetricsLog, read_metrics
from context_agent.train.rl.scoring import ScoredEpisode
from context_agent.web.page import page

if TYPE_CHECKING:
    from context_agent.train.training_run import TrainingRun

TABLES = "episodes*.jsonl"
"""The pattern of the names of all ranks' tables."""
PAGE_EPISODES = 20_000
"""Number of episodes on the page. They are the newest ones. The file has all of them."""
ROUNDED_DIGITS = 6
"""Decimal places of the numbers in the table."""
LONGEST_NAME = 150
"""Number of characters of an episode's id in the name of its file."""
STYLE = "body { max-width: none; } td { white-space: nowrap; }"
"""CSS of the page."""


def table_path(out: Path, rank: int = 0) -> Path:
    """Return the file to which a rank writes its episodes."""
    return out / f"episodes{f'-{rank}' if rank else ''}.jsonl"


@contextmanager
def open_table(run: TrainingRun, restored_step: int = -1) -> Iterator[MetricsLog]:
    """Open the table of this rank's episodes. When the block ends, also by an error, write the page of episodes.

    Remove the lines of the steps that this run samples again, also from the tables of ranks that it no longer has.

    Args:
        run: The run.
        restored_step: The step whose rows come from the checkpoint. -1 if there is none.

    Yields:
        The table.
    """
    first = max(run.first_update // run.config.rollouts.substeps, restored_step + 1)
    table = MetricsLog(table_path(run.out, run.rank), first=first)
    if run.main:
        own = {table_path(run.out, rank) for rank in range(run.ranks)}
        for path in sorted(set(run.out.glob(TABLES)) - own):
            MetricsLog(path, first=first).close(run.note)
    try:
        yield table
    finally:
        table.close(run.note)
        if run.main:
            try:
                write_page(run.out)
            except (OSError, DataError) as error:
                run.note(
                    f"{run.out / 'episodes.html'} could not be written ({reason_of(error)}). The run is not affected."
                )


def table_row(episode: ScoredEpisode, advantages: EpisodeAdvantages) -> dict[str, Any]:
    """Return the line of an episode in the table. If the episode is not trained on, its advantage is None."""
    outcome, advantage = episode.outcome, advantages.by_episode.get(episode.id)
    return {
        "episode": episode.id,
        "question": episode.question.id,
        "demonstrated": episode.demonstrated,
        "ending": outcome.ending.value,
        "reward": _rounded(episode.reward.total),
        "advantage": None if advantage is None else _rounded(advantage),
        "recall": _rounded(outcome.recall),
        "precision": _rounded(outcome.precision),
        "seen": _rounded(outcome.seen),
        "turns": outcome.turns,
        "searches": len(outcome.queries),
        "pruned": outcome.pruned,
        "terms": {name: _rounded(value) for name, value in episode.reward.terms.items()},
    }


def save_trajectories(folder: Path, episodes: Iterable[ScoredEpisode]) -> dict[str, float]:
    """Write the trajectories of episodes to a folder.

    Args:
        folder: The folder.
        episodes: The episodes.

    Returns:
        The metric `trajectories_failed`, the number of trajectories that could not be written. Empty if all were
        written.
    """
    failed = 0
    for episode in episodes:
        try:
            write(episode.trajectory, folder / episode_file(episode.id))
        except OSError:
            failed += 1
    return {"trajectories_failed": float(failed)} if failed else {}


def episode_file(episode: str) -> str:
    """Return the name of an episode's file. The id may contain the id of a question, which may be any text."""
    safe = "".join(letter if letter.isascii() and (letter.isalnum() or letter in "-_.") else "_" for letter in episode)
    name = safe[:LONGEST_NAME]
    digest = "" if name == episode else f"-{crc32(episode.encode(errors='surrogatepass')):08x}"
    return f"{name}{digest}.jsonl"


def write_page(out: Path) -> Path:
    """Write the page with the episodes of all ranks into the run's folder.

    Args:
        out: The folder of the run.

    Returns:
        The path of the page.

    Raises:
        DataError: If a file of episodes is damaged.
    """
    kept: list[dict[str, Any]] = []
    count = 0
    for path in sorted(out.glob(TABLES)):
        newest: deque[dict[str, Any]] = deque(maxlen=PAGE_EPISODES)
        for row in read_metrics(path):
            newest.append(row)
            count += 1
        kept += newest
    kept.sort(key=lambda row: (row["step"], row["episode"]))
    rows = [_flat(row) for row in kept[-PAGE_EPISODES:]]
    columns = list(dict.fromkeys(name for row in rows for name in row))
    data = {"columns": columns, "rows": [[row.get(name) for name in columns] for row in rows], "all": count}
    body = (
        "<main><h1>Episodes and their rewards</h1>"
        "<p>A line for each episode. Columns after <i>pruned</i> are the reward's terms as they counted. An episode "
        "without an advantage was not trained on. Click a heading to sort.</p>"
        '<div id="episodes"></div></main>'
    )
    script = (files("context_agent.train.rl") / "episode_table.js").read_text(encoding="utf-8")
    path = out / "episodes.html"
    text = page("Episodes and their rewards", body, data={"episodes": data}, scripts=(script,), styles=(STYLE,))
    replace_file(path, text)
    return path


def _flat(row: Mapping[str, Any]) -> dict[str, Any]:
    """Return the line with one column for each reward term."""
    return {**{name: value for name, value in row.items() if name != "terms"}, **row["terms"]}


def _rounded(value: float) -> float:
    return round(value, ROUNDED_DIGITS) + 0.0  # a penalty of -0.0 is 0.0
