"""One evaluation from benchmarks to records: the checks first, then the run, in a folder that it can go on from.

    checked = [check(load_benchmark("musique", data=DATA), cache=CACHE)]
    records = evaluate(checked, asked(["hybrid", "agent"]), Options(policy=BridgePolicy), folder=Path("runs/one"))

A policy is given as a function of a module that opens it, because every process opens its own. A program that calls
`evaluate` needs the usual `if __name__ == "__main__":`, for the same reason.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from hashlib import sha256
from pathlib import Path
from typing import Any
from urllib.parse import quote

from context_agent.episode import Limits
from context_agent.errors import DataError
from context_agent.eval.aggregate import summarise
from context_agent.eval.benchmarks.corpus_cache import Report, snapshot
from context_agent.eval.benchmarks.registry import Benchmark
from context_agent.eval.gold import Leaks, MissingGold, leaks, missing_gold
from context_agent.eval.records import QUESTIONS, Record, Shelf, journal, read_records, read_run, replace
from context_agent.eval.report import html
from context_agent.eval.runner import Kit, Progress, cells, plan, run
from context_agent.eval.scoring import Price
from context_agent.eval.summary import Failure, Summary, Worst
from context_agent.eval.systems import Settings, System, asked
from context_agent.eval.view.build import build
from context_agent.eval.view.loading import load
from context_agent.eval.view.model import GoldFile, exhibit
from context_agent.policies.protocol import Policy
from context_agent.pruning.budget import WINDOW, Budget
from context_agent.questions import load_questions
from context_agent.retrieval.protocol import Corpus
from context_agent.version import __version__

PROBLEMS = 100
"""Rows left out that `run.json` names; the rest is counted."""


@dataclass(frozen=True, slots=True)
class Checked:
    """A benchmark ready to be run: what opens its corpus, and what the checks found.

    `corpus` is what the corpus calls itself, which for an indexed one is a digest of its chunks.
    """

    benchmark: Benchmark
    open: Callable[[], Corpus]
    corpus: str
    chunks: int
    missing: MissingGold
    leaks: Leaks

    @property
    def identity(self) -> dict[str, Any]:
        """What makes two figures comparable: the same corpus, and the same questions with the same gold."""
        one = self.benchmark
        state = sha256()
        for question in one.questions:
            state.update(
                repr((question.id, question.question, question.answer, question.gold, question.facts)).encode()
            )
        return {
            "split": one.split,
            "questions": len(one.questions),
            "questions_digest": state.hexdigest()[:16],
            "corpus": self.corpus,
        }

    @property
    def note(self) -> dict[str, Any]:
        """What a reader of the report must know about the data."""
        one = self.benchmark
        return {
            "about": one.about,
            "licence": one.licence,
            "source": one.source,
            "split": one.split,
            "questions": len(one.questions),
            "chunks": self.chunks,
            "without_answer": sum(not question.answer for question in one.questions),
            "not_scored": one.ungraded,
            "ids": [question.id for question in one.questions],
            "problems": list(one.problems[:PROBLEMS]),
            "problems_count": len(one.problems),
            "missing_gold": str(self.missing) if self.missing else "",
            "missing_gold_ids": list(self.missing.ids),
            "leaks": str(self.leaks) if self.leaks else "",
        }


@dataclass(frozen=True, slots=True)
class Options:
    """What is asked of the benchmarks. `named` is what else figures depend on, as plain data.

    Raises `ConfigError` for a window that no episode could have.
    """

    policy: Callable[[], Policy]
    windows: tuple[int, ...] = (WINDOW,)
    seeds: tuple[int, ...] = (0,)
    k: int = 10
    profile: str = "default"
    max_turns: int = Limits().turns
    time_limit: float | None = None
    price: Price | None = None
    save: Path | None = None
    named: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for window in self.windows:
            Budget(window)


def check(
    benchmark: Benchmark,
    opener: Callable[[], Corpus] | None = None,
    *,
    cache: Path | None = None,
    embedder: str = "static",
    reranker: str | None = None,
    report: Report | None = None,
) -> Checked:
    """The benchmark with its corpus indexed, or opened by `opener`, and both checks done. Nothing is refused yet."""
    if opener is None:
        if cache is None:
            raise ValueError("a corpus that is not given is indexed in a cache: name the cache")
        opener = snapshot(benchmark.documents, cache=cache, embedder=embedder, reranker=reranker, report=report)
    corpus = opener()
    try:
        return Checked(
            benchmark,
            opener,
            corpus.name,
            corpus.count() if hasattr(corpus, "count") else 0,
            missing_gold(corpus, benchmark.questions),
            leaks(benchmark.train, benchmark.questions),
        )
    finally:
        if hasattr(corpus, "close"):
            corpus.close()


def refuse(checked: Sequence[Checked], *, missing: bool = True, shared: bool = True) -> None:
    """Raises `DataError` for what the checks found: gold that is `missing`, questions `shared` by train and test."""
    found = []
    for one in checked:
        if missing and one.missing:
            found.append(
                f"{one.benchmark.name}: {one.missing}. Index the whole corpus, or count them as not found with "
                "--allow-missing-gold"
            )
        if shared and one.leaks:
            found.append(f"{one.benchmark.name}: {one.leaks}. Mend the splits, or go on with --allow-leaks")
    if found:
        raise DataError("; ".join(found))


def problems_of(name: str, note: Mapping[str, Any]) -> list[str]:
    """What a benchmark's note in `run.json` says was wrong with its data, a sentence each."""
    found = [f"{name}: {one}" for one in note.get("problems", ())]
    if (more := note.get("problems_count", 0) - len(found)) > 0:
        found.append(f"{name}: {more} further rows were left out")
    if note.get("not_scored"):
        found.append(f"{name}: {note['not_scored']} questions have neither gold nor an answer and are left out")
    found += [f"{name}: {note[key]}" for key in ("missing_gold", "leaks") if note.get(key)]
    return found


def expected_of(run: Mapping[str, Any]) -> list[tuple[str, str, int, int, str]]:
    """The keys of the records that the run in a `run.json` has when it is complete."""
    settings, notes = run["settings"], run["notes"]
    keys = []
    for benchmark in settings["benchmarks"]:
        for system in asked(settings["systems"], reranker=True):
            for window, seed in cells(system, settings["windows"], settings["seeds"]):
                keys += [(benchmark, system.name, window, seed, one) for one in notes["benchmarks"][benchmark]["ids"]]
    return keys


def evaluate(
    checked: Sequence[Checked],
    systems: Sequence[System],
    options: Options,
    *,
    folder: Path,
    concurrency: int = 1,
    processes: int | None = None,
    progress: Progress | None = None,
) -> list[Record]:
    """The records of every question, in the order asked; what `folder` holds of them already is not asked again."""
    jobs = plan([one.benchmark for one in checked], systems, windows=options.windows, seeds=options.seeds)
    shelf = None if options.save is None else Shelf(options.save, folder)
    writing = None if shelf is None else shelf.unfinished
    kit = Kit(
        {one.benchmark.name: one.open for one in checked},
        options.policy,
        Settings(options.profile, Limits(options.max_turns, options.time_limit), options.k, writing),
        options.price,
        shelf,
    )
    notes = {"benchmarks": {one.benchmark.name: one.note for one in checked}, "systems": _about(systems)}
    with journal(folder, settings_of(checked, systems, options), notes) as opened, _tidied(shelf):
        replace(folder / QUESTIONS, "".join(f"{json.dumps(row)}\n" for row in _questions(checked)))
        return run(
            jobs,
            kit,
            opened,
            concurrency=concurrency,
            processes=processes,
            time_limit=options.time_limit,
            progress=progress,
        )


def _questions(checked: Sequence[Checked]) -> Iterator[dict[str, Any]]:
    """What was asked, as a question file that `ctx1 view --gold` reads; ids carry their benchmark's name."""
    for one in checked:
        for question in one.benchmark.questions:
            yield {**asdict(question), "id": f"{one.benchmark.name}/{question.id}"}


@contextmanager
def _tidied(shelf: Shelf | None) -> Iterator[None]:
    """Without what an earlier run that was killed left unfinished, before and after."""
    try:
        if shelf is not None:
            shelf.clear()
        yield
    finally:
        if shelf is not None:
            shelf.clear()


def settings_of(checked: Sequence[Checked], systems: Sequence[System], options: Options) -> dict[str, Any]:
    """Everything that figures depend on. How many are answered at once is not among it."""
    return {
        "version": __version__,
        "benchmarks": {one.benchmark.name: one.identity for one in checked},
        "systems": [one.name for one in systems],
        "windows": list(options.windows),
        "seeds": list(options.seeds),
        "k": options.k,
        "policy": options.policy().name if any(one.keeps_context for one in systems) else "none",
        "profile": options.profile,
        "max_turns": options.max_turns,
        "time_limit": options.time_limit,
        "price": None if options.price is None else options.price.model_dump(),
        **{name: value for name, value in options.named.items() if value is not None},
    }


def _about(systems: Sequence[System]) -> dict[str, str]:
    return {one.name: one.about for one in systems}


SUMMARY, REPORT, TRAJECTORIES = "summary.json", "report.html", "trajectories.html"
SHOWN = 50
"""Failures whose trajectories are on the page that the report leads to."""


def publish(folder: Path, *, reference: str | None = None) -> Summary:
    """Writes `summary.json` and `report.html` into a run's folder, from its records, and gives the summary.

    Raises `DataError` for a folder that holds no run, `ConfigError` for a reference that was not run.
    """
    made = summary(folder, reference=reference)
    replace(folder / SUMMARY, json.dumps(made.to_json(), indent=1) + "\n")
    title = f"Evaluation on {', '.join(made.benchmarks) or 'nothing yet'}"
    replace(folder / REPORT, html.render(made, title=title, links=_trajectories(folder, made)))
    return made


def _trajectories(folder: Path, made: Summary) -> dict[str, str]:
    """Writes the page of the trajectories that the report leads to, and gives an address in it for each of them."""
    shown_of: list[Failure | Worst] = [*made.failures[:SHOWN], *made.worst]
    named = dict.fromkeys(path for one in shown_of for path in one.trajectories)
    there = {path: folder / path for path in named if (folder / path).is_file()}
    try:
        collection = load(list(there.values()))
    except DataError:  # none was saved, or none got as far as its header
        return {}
    problems: list[str] = []
    known = load_questions(folder / QUESTIONS, problems=problems) if (folder / QUESTIONS).is_file() else []
    shown = exhibit(collection, GoldFile(known), problems=problems)
    replace(folder / TRAJECTORIES, build(shown, title="Questions that failed or were answered worst"))
    ids = {row.id for row in shown.rows}
    return {path: f"{TRAJECTORIES}#t={quote(where.stem)}" for path, where in there.items() if where.stem in ids}


def summary(folder: Path, *, reference: str | None = None) -> Summary:
    """The summary of the records in a folder; questions that were never answered are named as missing."""
    run = read_run(folder)
    notes: Mapping[str, Mapping[str, Any]] = run["notes"]["benchmarks"]
    problems = [line for name, note in notes.items() for line in problems_of(name, note)]
    settings = {key: value for key, value in run["settings"].items() if value is not None}
    return summarise(
        read_records(folder),
        settings={**settings, "benchmarks": {name: _described(note) for name, note in notes.items()}},
        order=settings["systems"],
        reference=reference,
        expected=expected_of(run),
        problems=problems,
    )


def _described(note: Mapping[str, Any]) -> str:
    """A benchmark in one line: split, size, licence, source."""
    parts = [f"split {note['split']}" if note["split"] else "", f"{note['questions']:,} questions"]
    parts += [f"{note['chunks']:,} chunks" if note["chunks"] else "", f"licence {note['licence']}", note["source"]]
    return ", ".join(part for part in parts if part)
