"""The benchmarks that have a name, and the loading of a benchmark.

A user can request a benchmark by its name. `NAME=FOLDER` requests a named benchmark in files that the user downloaded
in the published format. A folder in the native format can be requested too. This package's task makers write it:

    corpus.jsonl[.gz]       one {"id", "title", "text"} per line
    queries.<split>.jsonl   one {"id", "question", "answer", "gold": [document ids], "type", "hops"} per line

`license` is the license of the data as its publisher states it. None of the data ships with this package.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from context_agent._support.question_files import load_questions
from context_agent._support.suggest import suggestion
from context_agent.errors import ConfigError, DataError
from context_agent.eval.benchmarks import conversations, formats
from context_agent.eval.benchmarks.formats import HubTable, tables_from_folder, tables_from_hub
from context_agent.retrieval.loaders import LoadReport, load
from context_agent.types import Document, Question

CORPUS_FILES = ("corpus.jsonl.gz", "corpus.jsonl")
QUERIES_FILE = "queries.{split}.jsonl"


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


@dataclass(frozen=True, slots=True)
class PublicBenchmark:
    """A public question set, which is read in its published format.

    Attributes:
        name: The name of the set.
        about: A description for the report.
        license: The license of the data.
        source: The address of the data's publisher.
        form: The function that reads the format.
        splits: The name on the hub for each split's name in the files. The first split is the default.
        files: The published file names by role.
        hubs: The tables that `datasets` can read, by role.
        user_files: The files that the user must provide. It is empty if the set can be downloaded completely.
    """

    name: str
    about: str
    license: str
    source: str
    form: formats.Format
    splits: Mapping[str, str]
    files: Mapping[str, tuple[str, ...]]
    hubs: Mapping[str, HubTable] = field(default_factory=dict)
    user_files: str = ""


@dataclass(frozen=True, slots=True)
class LocalBenchmark:
    """A question set in the native format, in a folder of its name inside the data folder."""

    name: str
    about: str
    license: str
    source: str


LOCAL_BENCHMARKS = (
    LocalBenchmark(
        "musique",
        "2 to 4 hops; the twenty paragraphs of each question, pooled",
        "CC BY 4.0",
        "https://github.com/StonyBrookNLP/musique",
    ),
    LocalBenchmark(
        "2wiki",
        "2 to 4 hops between Wikipedia articles, pooled",
        "Apache-2.0",
        "https://github.com/Alab-NII/2wikimultihop",
    ),
    LocalBenchmark(
        "hotpotqa",
        "2 hops; the paragraphs of the distractor setting, pooled",
        "CC BY-SA 4.0",
        "https://hotpotqa.github.io",
    ),
)

MTRAG_DOMAINS = ("clapnq", "cloud", "fiqa", "govt")
MTRAG_FORMS = ("rewrite", "lastturn", "questions")
MTRAG_TASKS = ("human/retrieval_tasks/{domain}/", "retrieval_tasks/{domain}/", "{domain}/", "")
BRIGHT_DOMAINS = (
    "biology earth_science economics psychology robotics stackoverflow sustainable_living pony leetcode aops "
    "theoremqa_theorems theoremqa_questions"
).split()


def _bright_files(role: str) -> tuple[str, ...]:
    """Return the file names under which a role's rows of a domain are published or exported."""
    names = (f"{role}/{{split}}-00000-of-00001.parquet", f"{role}/{{split}}.parquet", f"{role}/{{split}}.jsonl")
    return (*names, f"{{split}}_{role}.jsonl", f"{role}.parquet", f"{role}.jsonl")


PUBLIC_BENCHMARKS = (
    PublicBenchmark(
        "multihop-rag",
        "2 to 4 news articles per question; questions without an answer are left out because they have no gold",
        "ODC-BY",
        "https://github.com/yixuantt/MultiHop-RAG",
        formats.multihop_rag,
        {"test": "train"},
        {"corpus": ("corpus.json",), "queries": ("MultiHopRAG.json",)},
        {
            "corpus": HubTable("yixuantt/MultiHopRAG", "corpus", "train"),
            "queries": HubTable("yixuantt/MultiHopRAG", "MultiHopRAG", "train"),
        },
    ),
    PublicBenchmark(
        "musique-ans",
        "MuSiQue-Ans, 2 to 4 hops; the paragraphs of all questions of the split, pooled",
        "CC BY 4.0",
        "https://github.com/StonyBrookNLP/musique",
        formats.musique,
        {"dev": "validation", "train": "train"},
        {"queries": ("musique_ans_v1.0_{split}.jsonl", "data/musique_ans_v1.0_{split}.jsonl")},
        {"queries": HubTable("dgslibisey/MuSiQue")},
    ),
    PublicBenchmark(
        "hotpotqa-distractor",
        "HotpotQA, 2 hops; the paragraphs of all questions of the split, pooled",
        "CC BY-SA 4.0",
        "https://hotpotqa.github.io",
        formats.hotpotqa,
        {"dev": "validation", "train": "train"},
        {"queries": ("hotpot_{split}_distractor_v1.json", "hotpot_{split}_v1.1.json")},
        {"queries": HubTable("hotpotqa/hotpot_qa", "distractor")},
    ),
    PublicBenchmark(
        "2wikimultihopqa",
        "2WikiMultihopQA, 2 to 4 hops; the paragraphs of all questions of the split, pooled",
        "Apache-2.0",
        "https://github.com/Alab-NII/2wikimultihop",
        formats.hotpotqa,
        {"dev": "validation", "train": "train"},
        {"queries": ("{split}.json", "data/{split}.json")},
        {"queries": HubTable("framolfese/2WikiMultihopQA")},
    ),
    PublicBenchmark(
        "frames",
        "2 to 15 Wikipedia articles a question",
        "Apache-2.0",
        "https://huggingface.co/datasets/google/frames-benchmark",
        formats.frames,
        {"test": "test"},
        {"corpus": CORPUS_FILES, "queries": ("test.tsv",)},
        {"queries": HubTable("google/frames-benchmark")},
        user_files="the Wikipedia articles, which are not part of the set, as corpus.jsonl with a url or title each; "
        "without test.tsv the questions are downloaded",
    ),
    PublicBenchmark(
        "browsecomp-plus",
        "questions that take long research, 100,195 web documents; the questions are published encrypted",
        "MIT",
        "https://github.com/texttron/BrowseComp-Plus",
        formats.browsecomp_plus,
        {"test": "test"},
        {
            "corpus": ("corpus.jsonl", "corpus.jsonl.gz", "corpus.parquet"),
            "queries": ("browsecomp_plus_decrypted.jsonl", "data/browsecomp_plus_decrypted.jsonl"),
        },
        {"corpus": HubTable("Tevatron/browsecomp-plus-corpus", split="train")},
        user_files="the question file that scripts_build_index/decrypt_dataset.py of that repository writes; "
        "without corpus.jsonl the corpus is downloaded",
    ),
    PublicBenchmark(
        "locomo",
        "questions about ten long conversations of two people; gold are turns",
        "CC BY-NC 4.0",
        "https://github.com/snap-research/locomo",
        conversations.locomo,
        {"test": "test"},
        {"queries": ("locomo10.json", "data/locomo10.json")},
        user_files="locomo10.json",
    ),
    PublicBenchmark(
        "longmemeval",
        "questions about the chats of a user with an assistant; gold are sessions, those of all questions are pooled",
        "MIT",
        "https://github.com/xiaowu0162/LongMemEval",
        conversations.longmemeval,
        {"s": "s", "m": "m", "oracle": "oracle"},
        {
            "queries": tuple(
                f"{folder}longmemeval_{{split}}{end}" for end in (".json", "_cleaned.json") for folder in ("", "data/")
            )
        },
        user_files="longmemeval_s.json, or another split's file",
    ),
    PublicBenchmark(
        "mtrag",
        "questions of conversations in four domains, over passages; a split is DOMAIN_FORM, as its file is named",
        "Apache-2.0; the passages belong to their sites",
        "https://github.com/IBM/mt-rag-benchmark",
        formats.mtrag,
        {f"{domain}_{form}": "" for form in MTRAG_FORMS for domain in MTRAG_DOMAINS},
        {
            "corpus": tuple(
                f"{folder}{{domain}}.jsonl{end}"
                for folder in ("corpora/passage_level/", "corpora/", "")
                for end in ("", ".gz")
            ),
            "queries": tuple(f"{folder}{{split}}.jsonl" for folder in MTRAG_TASKS),
            "qrels": tuple(f"{folder}qrels/dev.tsv" for folder in MTRAG_TASKS),
        },
        user_files="corpora/passage_level/DOMAIN.jsonl, unpacked, and human/retrieval_tasks/DOMAIN/ of that repository",
    ),
    PublicBenchmark(
        "qmsum",
        "questions about what was said in meetings; gold are windows of turns",
        "MIT; the AMI meetings CC BY 4.0",
        "https://github.com/Yale-LILY/QMSum",
        conversations.qmsum,
        {"val": "val", "test": "test", "train": "train"},
        {
            "queries": (
                "{split}.jsonl",
                "jsonl/{split}.jsonl",
                "ALL/jsonl/{split}.jsonl",
                "data/ALL/jsonl/{split}.jsonl",
            )
        },
        user_files="data/ALL/jsonl/val.jsonl of that repository",
    ),
    PublicBenchmark(
        "bright",
        "questions whose documents need reasoning to be found; a split is a domain",
        "CC BY 4.0",
        "https://huggingface.co/datasets/xlangai/BRIGHT",
        formats.bright,
        {domain: domain for domain in BRIGHT_DOMAINS},
        {"corpus": _bright_files("documents"), "queries": _bright_files("examples")},
        {
            "corpus": HubTable("xlangai/BRIGHT", "documents"),
            "queries": HubTable("xlangai/BRIGHT", "examples"),
        },
    ),
)

BEIR = "beir/"
BEIR_SETS = (
    "msmarco trec-covid nfcorpus nq hotpotqa fiqa arguana webis-touche2020 quora dbpedia-entity scidocs fever "
    "climate-fever scifact"
).split()
"""The sets of BEIR that anyone can download and that have a single corpus. The set cqadupstack has twelve."""


def benchmark_names() -> list[str]:
    """Return every name that `load_benchmark` knows."""
    names = [benchmark.name for benchmark in (*LOCAL_BENCHMARKS, *PUBLIC_BENCHMARKS)]
    return names + [f"{BEIR}{name}" for name in BEIR_SETS]


def find_benchmark(name: str) -> LocalBenchmark | PublicBenchmark | None:
    """Return the benchmark with this name. If there is none, return None."""
    if name.startswith(BEIR) and name.removeprefix(BEIR) in BEIR_SETS:
        return _beir(name)
    return next((entry for entry in (*LOCAL_BENCHMARKS, *PUBLIC_BENCHMARKS) if entry.name == name), None)


def load_benchmark(request: str, *, split: str | None = None, data: Path | None = None) -> Benchmark:
    """Load the benchmark that a user requests.

    Args:
        request: A name, `NAME=FOLDER`, or a folder in the native format.
        split: The split. Defaults to the set's first split. For a folder in the native format it defaults to `dev`, or
            to `test` if only that exists.
        data: The folder that contains the local sets.

    Raises:
        ConfigError: If the name or the split is unknown.
        DataError: If files are missing, or if no question can be scored.
    """
    name, has_folder, folder = request.partition("=")
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
    return load_native(name if has_folder else path.resolve().name, path, split, entry)


def _is_native(folder: Path) -> bool:
    """Return True if the folder has questions and a corpus in the native format, whatever set they were made from."""
    queries = any(folder.glob(QUERIES_FILE.format(split="*")))
    return queries and any((folder / name).is_file() for name in CORPUS_FILES)


def load_native(name: str, folder: Path, split: str | None = None, entry: LocalBenchmark | None = None) -> Benchmark:
    """Load the question set in a folder in the native format.

    Args:
        name: The name of the set.
        folder: The folder.
        split: The split. Defaults to `dev`, or to `test` if only that exists.
        entry: The named set that the folder belongs to, if any.

    Raises:
        DataError: If files are missing, or if no question can be scored.
    """
    splits = sorted(path.name.split(".")[1] for path in folder.glob(QUERIES_FILE.format(split="*")))
    split = split or next((default for default in ("dev", "test") if default in splits), "dev")
    corpus = next((folder / name for name in CORPUS_FILES if (folder / name).is_file()), None)
    queries = folder / QUERIES_FILE.format(split=split)
    if corpus is None or not queries.is_file():
        missing = queries.name if corpus else " or ".join(CORPUS_FILES)
        raise DataError(f"the folder {folder} of {name} has no {missing}. {_available(splits)}")
    train = folder / QUERIES_FILE.format(split="train")
    return load_own(
        [corpus],
        queries,
        name=name,
        split=split,
        train=train if split != "train" and train.is_file() else None,
        entry=entry,
    )


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
        DataError: If a file cannot be read, or if no question can be scored.
    """
    problems: list[str] = []
    report = LoadReport()
    documents = tuple(load(corpus, report=report)) if corpus else ()
    problems += [str(notice) for notice in report.notices]
    test = tuple(load_questions(questions, problems=problems))
    train_questions = tuple(load_questions(train, problems=[])) if train is not None else ()
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
        count, problems = len(benchmark.questions), benchmark.problems
        why = f"none of its {count} questions has gold or an answer" if count else "it has no questions"
        first = f" The first of {len(problems)} unreadable rows: {problems[0]}" if problems else ""
        raise DataError(f"{benchmark.name} in {source} cannot be scored, because {why}. Add `gold` or `answer`.{first}")
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
    return (
        f"Its splits are {', '.join(splits)}." if splits else "A folder in the native format has queries.<split>.jsonl."
    )


def _unknown(name: str, path: Path, has_folder: bool) -> str:
    if has_folder:
        return f"{path} is not a folder. Pass an existing folder, as --benchmarks {name}=FOLDER."
    return f"no benchmark or folder is called {name!r}. {suggestion(name, benchmark_names(), cutoff=0.5)}"


def _beir(name: str) -> PublicBenchmark:
    dataset = name.removeprefix(BEIR)
    split = "dev" if dataset == "msmarco" else "test"
    return PublicBenchmark(
        name,
        f"the set {dataset} of BEIR",
        "CC BY-SA 4.0 for BEIR's edition; the underlying set keeps its own license",
        "https://github.com/beir-cellar/beir",
        formats.beir,
        {split: "validation" if split == "dev" else split, "train": "train"},
        {
            "corpus": ("corpus.jsonl", "corpus.jsonl.gz"),
            "queries": ("queries.jsonl", "queries.jsonl.gz"),
            "qrels": ("qrels/{split}.tsv",),
        },
        {
            "corpus": HubTable(f"BeIR/{dataset}", "corpus", "corpus"),
            "queries": HubTable(f"BeIR/{dataset}", "queries", "queries"),
            "qrels": HubTable(f"BeIR/{dataset}-qrels"),
        },
    )
