"""The data card of a task set. It describes the content of the set, how it was made and verified, and its limits.

The card is Markdown with the front matter of the `datasets` hub. All counts come from the files. If information such as
the license is missing, the card says "not stated".
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from context_agent._support.atomic_files import replace_file
from context_agent._support.small_files import parse_json, read_json
from context_agent.errors import DataError
from context_agent.synth_data.attempts import ATTEMPTS_LABEL
from context_agent.synth_data.difficulty import DIFFICULTY_LABEL
from context_agent.synth_data.json_files import write_json
from context_agent.synth_data.judgments import REVIEW_LABEL
from context_agent.synth_data.sets.folder import CARD, REPORT, load_splits
from context_agent.synth_data.stages import dropped_path, journal_path
from context_agent.synth_data.task import Task

NOT_STATED = "not stated"


ABOUT = "Multi-hop retrieval tasks: a question, its answer, and the documents that prove it."


ORIGIN_NOTES = {
    "links": (
        "Questions are filled into templates from links between documents: no person and no language model wrote "
        "them. They name entities where a person would hint, repeat a few sentence patterns, and ask only for "
        "relations that the linking sentences state. Scores on them can't be compared with scores on written questions."
    ),
    "world": (
        "Documents and questions come from a generated world of invented entities: nothing in them is true, the "
        "language is that of templates, and every relation is stated plainly. Good for training and for tests of the "
        "machinery; no evidence of a system's quality on real text."
    ),
    "model": (
        "Questions were written by a language model and verified by extraction with quotes. They are more uniform than "
        "what people ask, tend to combine several hints, and keep the writer's errors that verification missed. The "
        "agreement of human judges, if measured, is given below."
    ),
    "feedback": (
        "Users asked these questions and marked the useful documents. Gold is therefore incomplete: a document "
        "that no user saw could not be marked."
    ),
}
"""The difference between the questions of each origin and questions that people write."""


@dataclass(frozen=True, slots=True)
class StageSummary:
    """The counts and settings of an earlier stage.

    Attributes:
        name: The name of the stage.
        kept: The number of output rows.
        dropped: The number of dropped inputs by reason.
        settings: The settings of the stage.
    """

    name: str
    kept: int
    dropped: Mapping[str, int]
    settings: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class CardDetails:
    """The content of the card besides the counts. It is stored in split.json, so that a rewritten card keeps it.

    Attributes:
        stages: The earlier stages.
        license: The license of the set.
        about: A description of the set.
    """

    stages: tuple[StageSummary, ...] = ()
    license: str = ""
    about: str = ""

    def over(self, before: CardDetails) -> CardDetails:
        """Return these details. Missing details are taken from `before`."""
        return CardDetails(self.stages or before.stages, self.license or before.license, self.about or before.about)

    def to_json(self) -> dict[str, Any]:
        """Return the details as plain data, with keys in a fixed order."""
        return asdict(self)

    @staticmethod
    def from_json(row: Mapping[str, Any]) -> CardDetails:
        """Return the details that `to_json` returned as plain data."""
        return CardDetails(
            tuple(StageSummary(**stage) for stage in row.get("stages", ())),
            row.get("license", ""),
            row.get("about", ""),
        )


def write_card(folder: Path, details: CardDetails) -> Path:
    """Write the card of a folder of splits, and return its path.

    Args:
        folder: The folder of the splits.
        details: The details of the card. Missing details are taken from split.json.

    Raises:
        DataError: If the folder has no splits, or if split.json is damaged.
    """
    splits, path = load_splits(folder), folder / REPORT
    report: dict[str, Any] = {}
    try:
        if path.exists():
            report = read_json(path)
            details = details.over(CardDetails.from_json(report.get("said", {})))
        text = data_card(splits, report, stages=details.stages, license=details.license, about=details.about)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise DataError(f"{path} is not a report of `ctx1 synth split` ({error}). Delete it, or split again.") from None
    if report:
        write_json(path, {**report, "said": details.to_json()})
    replace_file(folder / CARD, text.encode(errors="replace"))
    return folder / CARD


def stage_of(out: Path) -> StageSummary:
    """Return the summary of the stage that wrote `out`, read from the files next to it.

    Raises:
        DataError: If those files are missing or damaged.
    """
    try:
        head = parse_json(_lines(journal_path(out))[0])
        outputs = len(_lines(out))
        dropped = Counter(parse_json(line)["reason"] for line in _lines(dropped_path(out)))
        return StageSummary(head["stage"], outputs, dict(sorted(dropped.items())), head.get("settings", {}))
    except OSError as error:
        raise DataError(
            f"{out} is not the output of a stage, because {error.filename} cannot be read. Pass a file that a `ctx1 "
            "synth` stage wrote."
        ) from error
    except (ValueError, IndexError, KeyError, TypeError) as error:
        raise DataError(f"the files of the stage of {out} are damaged ({error}). Run the stage again.") from error


def _lines(path: Path) -> list[str]:
    """Return the lines that are not empty. `splitlines` would also split at separators inside texts."""
    return [line for line in path.read_text(encoding="utf-8").split("\n") if line.strip()]


def data_card(
    splits: Mapping[str, Sequence[Task]],
    report: Mapping[str, Any],
    *,
    stages: Sequence[StageSummary] = (),
    license: str = "",
    about: str = "",
) -> str:
    """Return the data card as Markdown.

    Args:
        splits: The tasks by split.
        report: The content of split.json. Empty if another program split the set.
        stages: The earlier stages.
        license: The license of the set.
        about: A description of the set.
    """
    tasks = [task for part in splits.values() for task in part]
    sections = [
        _front_matter(splits, license),
        f"# {report.get('set') or 'Tasks'}\n\n{about or ABOUT}",
        _contents_section(splits, report),
        _origin_section(tasks, stages),
        _splits_section(report),
        _difficulty_section(splits),
        _review_section(tasks),
        _limits_section(tasks),
        f"## License\n\n{license or NOT_STATED}"
        + ("" if license else ". Check what the license of the source corpus allows before you share the set."),
        _versions_section(report, stages),
    ]
    return "\n\n".join(section for section in sections if section) + "\n"


def _front_matter(splits: Mapping[str, Sequence[Task]], license: str) -> str:
    files = "".join(f"  - split: {name}\n    path: queries.{name}.jsonl\n" for name in splits)
    stated = f"license: other\nlicense_name: {json.dumps(license)}\n" if license else ""
    return f"---\n{stated}configs:\n- config_name: default\n  data_files:\n{files}---"


def _contents_section(splits: Mapping[str, Sequence[Task]], report: Mapping[str, Any]) -> str:
    tables = [_table("", splits, lambda task: "tasks")]
    for title, of in (("Type", _type), ("Hops", _hops), ("Origin", _origin), ("Domain", _domain)):
        tables.append(_table(title, splits, of))
    documents = report.get("documents")
    corpus = f"\n\nThe corpus (corpus.jsonl.gz) has {documents:,} documents." if documents else ""
    return "## Contents\n\n" + "\n\n".join(tables) + corpus


def _origin_section(tasks: Sequence[Task], stages: Sequence[StageSummary]) -> str:
    origins = Counter(_origin(task) for task in tasks)
    origin_counts = ", ".join(f"{count:,} from {origin}" for origin, count in sorted(origins.items()))
    if not stages:
        return f"## How it was made\n\n{origin_counts}. What earlier stages dropped is not stated."
    rows = ["| stage | kept | dropped | reasons |", "|---|---|---|---|"]
    for stage in stages:
        reasons = "; ".join(f"{_cell(reason)} {count:,}" for reason, count in stage.dropped.items())
        rows.append(f"| {_cell(stage.name)} | {stage.kept:,} | {sum(stage.dropped.values()):,} | {reasons or 'none'} |")
    return f"## How it was made\n\n{origin_counts}.\n\n" + "\n".join(rows)


def _splits_section(report: Mapping[str, Any]) -> str:
    if not report:
        return ""
    shares = ", ".join(f"{name} {share:g}" for name, share in report["shares"].items())
    lost = "; ".join(f"{reason} {count:,}" for reason, count in report["dropped"].items()) or "none"
    spread = ", ".join(f"{name} {value:.2f}" for name, value in report["spread"].items())
    return (
        "## Splits\n\n"
        "By document: no document that is gold, support or bridge of a task in one split is any of these in another, "
        f"no question is in two splits, and ids contain set and split. Target shares: {shares}; seed {report['seed']}. "
        f"Of {report['components']:,} groups of tasks that share documents the largest had {report['largest']:,} "
        f"tasks; {report['cut']:,} were cut. Dropped: {lost}. "
        f"Tasks that use a document of a split, on average: {spread}. If groups were cut, the held-out splits have "
        "rarer documents than the training split."
    )


def _difficulty_section(splits: Mapping[str, Sequence[Task]]) -> str:
    labeled = {name: [task for task in tasks if DIFFICULTY_LABEL in task.labels] for name, tasks in splits.items()}
    if not any(labeled.values()):
        return "## Difficulty\n\nNot measured."
    rows = ["| split | score: tenth, median, nine tenths | easy | medium | hard |", "|---|---|---|---|---|"]
    for name, tasks in labeled.items():
        labels = [task.labels[DIFFICULTY_LABEL] for task in tasks]
        scores = np.quantile([label["score"] for label in labels], [0.1, 0.5, 0.9]) if labels else []
        levels = Counter(label["level"] for label in labels)
        quantiles = ", ".join(f"{score:.2f}" for score in scores)
        rows.append(f"| {name} | {quantiles} | {levels['easy']:,} | {levels['medium']:,} | {levels['hard']:,} |")
    return (
        "## Difficulty\n\nAn estimate from hops, similar wrong documents and, if attempts were made, the gold that "
        "they missed and the turns they took. It orders tasks; it is not a probability.\n\n"
        + "\n".join(rows)
        + _attempts_section(splits)
    )


def _attempts_section(splits: Mapping[str, Sequence[Task]]) -> str:
    labels = [
        task.labels[ATTEMPTS_LABEL] for tasks in splits.values() for task in tasks if ATTEMPTS_LABEL in task.labels
    ]
    if not labels:
        return ""
    counts = Counter((label["policy"], label["vary"], label["of"], label["solved"]) for label in labels)
    lines = [
        f"- {policy}, attempts that differ by {vary}: {solved} of {of} solved: {count:,} tasks"
        for (policy, vary, of, solved), count in sorted(counts.items())
    ]
    return "\n\nAttempts that reached the recall threshold:\n\n" + "\n".join(lines)


def _review_section(tasks: Sequence[Task]) -> str:
    judged = [task.labels[REVIEW_LABEL] for task in tasks if REVIEW_LABEL in task.labels]
    if not judged:
        return "## Review by hand\n\nNone."
    judges = {name for label in judged for name in (*label["accepted"], *label["rejected"])}
    return (
        f"## Review by hand\n\n{len(judged):,} of {len(tasks):,} tasks in the set were judged, by {len(judges):,} "
        "judges; rejected tasks are not in it."
    )


def _limits_section(tasks: Sequence[Task]) -> str:
    origins = sorted({task.origin for task in tasks})
    notes = [f"- **{origin}**: {ORIGIN_NOTES[origin]}" for origin in origins if origin in ORIGIN_NOTES]
    unknown = [origin for origin in origins if origin not in ORIGIN_NOTES]
    if unknown:
        origin_names = ", ".join(origin or NOT_STATED for origin in unknown)
        notes.append(f"- Origin {origin_names}: how these questions were made is not known.")
    return "## How these questions differ from questions that people write\n\n" + "\n".join(notes)


def _versions_section(report: Mapping[str, Any], stages: Sequence[StageSummary]) -> str:
    lines = [f"- context-agent {report.get('version') or NOT_STATED}"]
    lines += [f"- {stage.name}: `{json.dumps(stage.settings, ensure_ascii=False, sort_keys=True)}`" for stage in stages]
    return "## Versions and settings\n\n" + "\n".join(lines)


def _table(title: str, splits: Mapping[str, Sequence[Task]], of: Callable[[Task], str]) -> str:
    counts = {name: Counter(map(of, tasks)) for name, tasks in splits.items()}
    values = sorted({value for column in counts.values() for value in column})
    head = f"| {title} | {' | '.join(splits)} |\n|---|{'---|' * len(splits)}"
    rows = [f"| {_cell(value)} | {' | '.join(f'{counts[name][value]:,}' for name in splits)} |" for value in values]
    return "\n".join([head, *rows])


def _cell(text: str) -> str:
    """Return a text as a table cell, escaped and on one line."""
    return " ".join(text.split()).replace("\\", "\\\\").replace("|", "\\|").replace("<", "&lt;")


def _type(task: Task) -> str:
    return task.type or NOT_STATED


def _hops(task: Task) -> str:
    return str(task.hops or NOT_STATED)


def _origin(task: Task) -> str:
    return task.origin or NOT_STATED


def _domain(task: Task) -> str:
    return task.domain or NOT_STATED
