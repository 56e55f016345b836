"""The loading of a benchmark.

A user can request a benchmark by its name. `NAME=FOLDER` requests a named benchmark in files that the user downloaded
in the published format. A folder in the native format can be requested too. This package's task makers write it:

    corpus.jsonl[.gz]       one {"id", "title", "text"} per line
    queries.<split>.jsonl   one {"id", "question", "answer", "gold": [document ids], "type", "hops"} per line

Other folders may have the files of BEIR, or tables and judgments in the format of TREC.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

from context_agent._support.question_files import load_questions, split_of
from context_agent._support.suggest import suggestion
from context_agent.errors import ConfigError, DataError
from context_agent.eval.benchmarks import formats
from context_agent.eval.benchmarks.registry import (
    CORPUS_FILES,
    TABLE_FILES,
    LocalBenchmark,
    PublicBenchmark,
    benchmark_names,
    find_benchmark,
    judged_folder,
)
from context_agent.eval.benchmarks.source_tables import tables_from_folder, tables_from_hub
from context_agent.retrieval.loaders import LoadReport, load
from context_agent.types import Document, Question

QUERIES_FILE = "queries.{split}.jsonl"
DEFAULT_SPLITS = ("dev", "validation", "val", "test")
"""The splits that are measured if the user names none. The first one that the folder has is taken."""


@dataclass(frozen=True, slots=True)
class Benchmark:
    """A corpus and questions about it.

    Attributes:
        name: The name of the benchmark.
        split: The name of the split.
        documents: The documents. They are empty if the corpus is indexed already.
        questions: The questions that can be scored.
        about: A description for the report.
        license: The license of the data.
        source: The address of the data's publisher.
        train: The questions of the training split, if there are any. The check for leaks compares with them.
        problems: The rows that were skipped, each with its location and the reason.
        ungraded: The number of questions that were left out because they have neither gold nor an answer.
    """

    name: str
    split: str
    documents: tuple[Document, ...]
    questions: tuple[Question, ...]
    about: str = ""
    license: str = "not stated"
    source: str = ""
    train: tuple[Question, ...] = ()
    problems: tuple[str, ...] = ()
    ungraded: int = 0


def load_benchmark(request: str, *, split: str | None = None, data: Path | None = None) -> Benchmark:
    """Load the benchmark that a user requests.

    Args:
        request: A name, `NAME=FOLDER`, or a folder in the native format.
        split: The split. Defaults to the set's first split. For a folder in the native format it defaults to `dev`,
            `validation`, `val` or `test`, the first one that exists. For a folder of BEIR, it defaults to `test`.
        data: The folder that contains the local sets.

    Raises:
        ConfigError: If the name or the split is unknown.
        DataError: If files are missing, or if no question can be scored.
    """
    # The path of a folder may have an equals sign, too.
    name, has_folder, folder = (request, "", "") if Path(request).is_dir() else request.partition("=")
    entry = find_benchmark(name)
    if isinstance(entry, PublicBenchmark) and has_folder and _is_native(Path(folder)):
        local = LocalBenchmark(entry.name, entry.about, entry.license, entry.source)
        return load_native(name, Path(folder), split, local)
    if isinstance(entry, PublicBenchmark):
        return _load_public(entry, split, Path(folder) if has_folder else None)
    if entry is not None and not has_folder:
        return load_native(name, _local_folder(name, data), split, entry)
    path = Path(folder if has_folder else request)
    if not path.is_dir():
        raise ConfigError(_unknown(name, path, bool(has_folder)))
    own_name = name if has_folder else path.resolve().name
    if not _is_native(path) and (splits := _judged_splits(path)):
        return _load_public(judged_folder(own_name, splits), split, path)
    return load_native(own_name, path, split, entry)


def _judged_splits(folder: Path) -> list[str]:
    """Return the splits with judgments of a folder in the format of BEIR or TREC, the test split first.

    Judgments in a single file are those of the split `test`.
    """
    if not any((folder / name).is_file() for name in TABLE_FILES["queries"]):
        return []
    names = (path.name for pattern in ("qrels/*", "qrels.*") for path in folder.glob(pattern))
    found = (name.removesuffix(".gz").removeprefix("qrels.") for name in names)
    splits = {stem if (stem := name.rpartition(".")[0]) else "test" for name in found if name.endswith(("tsv", "txt"))}
    return sorted(splits, key=lambda split: (split != "test", split != "dev", split))


def _is_native(folder: Path) -> bool:
    """Return True if the folder has questions and a corpus in the native format, whatever set they were made from."""
    queries = bool(_native_splits(folder))
    return queries and any((folder / name).is_file() for name in CORPUS_FILES)


def load_native(name: str, folder: Path, split: str | None = None, entry: LocalBenchmark | None = None) -> Benchmark:
    """Load the question set in a folder in the native format.

    Args:
        name: The name of the set.
        folder: The folder.
        split: The split. Defaults to `dev`, `validation`, `val` or `test`, the first one that exists.
        entry: The named set that the folder belongs to, if any.

    Raises:
        DataError: If files are missing, or if no question can be scored.
    """
    splits = _native_splits(folder)
    split = split or next((default for default in DEFAULT_SPLITS if default in splits), "dev")
    corpus = next((folder / name for name in CORPUS_FILES if (folder / name).is_file()), None)
    if corpus is None or split not in splits:
        missing = QUERIES_FILE.format(split=split) if corpus else " or ".join(CORPUS_FILES)
        raise DataError(f"the folder {folder} of {name} has no {missing}. {_available(list(splits))}")
    train = splits.get("train") if split != "train" else None
    return load_own([corpus], splits[split], name=name, split=split, train=train, entry=entry)


def _native_splits(folder: Path) -> dict[str, Path]:
    """Return the files of questions in the native format by their splits. They may be packed with gzip."""
    patterns = (QUERIES_FILE.format(split="*") + packing for packing in (".gz", ""))
    return {split_of(path.name): path for pattern in patterns for path in sorted(folder.glob(pattern))}


def load_own(
    corpus: list[Path],
    questions: Path,
    *,
    name: str = "own",
    split: str = "",
    train: Path | None = None,
    entry: LocalBenchmark | None = None,
) -> Benchmark:
    """Load a user's own documents and question file.

    Args:
        corpus: Sources of documents, as `ctx1 index` reads them. It is empty if the documents are indexed already.
        questions: The question file.
        name: The name of the set.
        split: The name of the split.
        train: A file with the training questions, for the check for leaks.
        entry: The named set that the data belong to, if any.

    Raises:
        DataError: If a file cannot be read, if no question can be scored, or if the training file has no questions.
    """
    problems: list[str] = []
    report = LoadReport()
    documents = tuple(load(corpus, report=report)) if corpus else ()
    problems += [str(notice) for notice in report.notices]
    test = tuple(load_questions(questions, problems=problems))
    train_questions = tuple(load_questions(train, problems=problems)) if train is not None else ()
    if train is not None and not train_questions:
        raise DataError(
            f"{train} has no question that can be read, so no leak would be found. Pass a file of questions, or leave "
            "out the training questions."
        )
    benchmark = Benchmark(name, split, documents, test, train=train_questions, problems=tuple(problems))
    if entry is not None:
        benchmark = replace(benchmark, about=entry.about, license=entry.license, source=entry.source)
    return _scorable(benchmark, str(questions))


def _load_public(entry: PublicBenchmark, split: str | None, folder: Path | None) -> Benchmark:
    split = split or next(iter(entry.splits))
    if split not in entry.splits:
        raise ConfigError(f"{entry.name} has no split {split!r} with gold. Pass --split {' or '.join(entry.splits)}.")
    content, problems = _content(entry, split, folder)
    train: tuple[Question, ...] = ()
    if "train" in entry.splits and split != "train" and _has_train_files(entry, folder):
        train = _content(entry, "train", folder)[0].questions
    benchmark = Benchmark(
        entry.name,
        split,
        content.documents,
        content.questions,
        entry.about,
        entry.license,
        entry.source,
        train,
        tuple(problems),
    )
    return _scorable(benchmark, str(folder) if folder else entry.source)


def _content(entry: PublicBenchmark, split: str, folder: Path | None) -> tuple[formats.BenchmarkContent, list[str]]:
    """Return the documents and questions of a split, and the problems found while reading them."""
    if folder is None and entry.user_files:
        raise DataError(
            f"{entry.name} cannot be downloaded completely. Pass --benchmarks {entry.name}=FOLDER, where FOLDER has "
            f"{entry.user_files}."
        )
    tables = tables_from_hub(entry.name, entry.hubs, entry.splits[split])
    if folder is not None:
        fallback = tables if entry.user_files else None
        tables = tables_from_folder(entry.name, folder, entry.files, split, fallback)
    return entry.form(tables), tables.problems


def _has_train_files(entry: PublicBenchmark, folder: Path | None) -> bool:
    """Return True if the folder has the training questions. They are never downloaded only for the check for leaks."""
    if folder is None:
        return False
    role = "qrels" if "qrels" in entry.files else "queries"
    return role in tables_from_folder(entry.name, folder, entry.files, "train").roles


def _scorable(benchmark: Benchmark, source: str) -> Benchmark:
    """Return the benchmark without the questions that cannot be scored. If none is left, raise `DataError`."""
    graded = tuple(question for question in benchmark.questions if question.gold or question.facts or question.answer)
    if not graded:
        problems = benchmark.problems
        why = (
            "none of its questions has gold or an answer. Add `gold` or `answer`"
            if benchmark.questions
            else "it has no question that can be read"
        )
        first = f" The first of {len(problems)} unreadable rows: {problems[0]}" if problems else ""
        raise DataError(f"{benchmark.name} in {source} cannot be scored, because {why}.{first}")
    return replace(benchmark, questions=graded, ungraded=len(benchmark.questions) - len(graded))


def _local_folder(name: str, data: Path | None) -> Path:
    fix = (
        f"Set --data or CTX1_DATA to the folder that contains {name}/, or pass the set's own folder: "
        f"--benchmarks {name}=FOLDER."
    )
    if data is None:
        raise DataError(f"the data of {name} does not ship with this package. {fix}")
    folder = data / name
    if not folder.is_dir():
        raise DataError(f"{folder} does not exist, so there is no data for {name}. {fix}")
    return folder


def _available(splits: list[str]) -> str:
    if splits:
        return f"Its splits are {', '.join(splits)}."
    return (
        "A folder in the native format has queries.<split>.jsonl. A folder of BEIR or TREC has queries.jsonl or "
        "queries.tsv, and judgments in qrels/<split>.tsv or qrels.txt."
    )


def _unknown(name: str, path: Path, has_folder: bool) -> str:
    if has_folder:
        return f"{path} is not a folder. Pass an existing folder, as --benchmarks {name}=FOLDER."
    return f"no benchmark or folder is called {name!r}. {suggestion(name, benchmark_names(), cutoff=0.5)}"
