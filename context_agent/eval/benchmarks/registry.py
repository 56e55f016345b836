"""Benchmarks, and how one is loaded; `entries` says which are known by name.

A benchmark is asked for by its name, by `NAME=FOLDER` for files that a user downloaded in the published format, or by
any folder in the house format, which is also what this package's own makers of questions write:

    corpus.jsonl[.gz]       {"id", "title", "text"} a line
    queries.<split>.jsonl   {"id", "question", "answer", "gold": [document ids], "type", "hops"} a line
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from context_agent.errors import ConfigError, DataError
from context_agent.eval.benchmarks import formats
from context_agent.eval.benchmarks.sources import Hub, from_folder, from_hub
from context_agent.questions import Question, load_questions
from context_agent.retrieval.loaders import LoadReport, load
from context_agent.types import Document

HOUSE_QUERIES = "queries.{split}.jsonl"


@dataclass(frozen=True, slots=True)
class Benchmark:
    """A corpus and the questions asked of it. `problems` are the rows left out, each with its place and reason.

    `train` are the questions of the training split, where there are some: what the check for leaks compares with.
    `ungraded` counts the questions with neither gold nor answer, which cannot be scored and are left out.
    """

    name: str
    split: str
    documents: tuple[Document, ...]
    questions: tuple[Question, ...]
    about: str = ""
    licence: str = "not stated"
    source: str = ""
    train: tuple[Question, ...] = ()
    problems: tuple[str, ...] = ()
    ungraded: int = 0


def load_benchmark(asked: str, *, split: str | None = None, data: Path) -> Benchmark:
    """The benchmark of a name, of `NAME=FOLDER`, or of a folder in the house format.

    `split` None is the set's own first choice, `dev` for folders in the house format. Raises `ConfigError` for an
    unknown name or split, `DataError` where the files are not there or hold no question that can be scored.
    """
    name, given, folder = asked.partition("=")
    entry = about(name)
    if given and isinstance(entry, Entry):
        return _public(entry, split, Path(folder))
    if given or entry is None:
        path = Path(folder if given else asked)
        if not path.is_dir():
            raise ConfigError(_unknown(name, path, given))
        title = name if given else path.resolve().name
        return house(title, path, split, entry if isinstance(entry, House) else None)
    if isinstance(entry, Entry):
        return _public(entry, split, None)
    return house(name, _in_data(name, data), split, entry)


def house(name: str, folder: Path, split: str | None = None, entry: House | None = None) -> Benchmark:
    """The set in a folder of the house format."""
    splits = _splits(folder)
    split = split or next((one for one in ("dev", "test") if one in splits), "dev")
    corpus = next((folder / one for one in HOUSE_CORPUS if (folder / one).is_file()), None)
    queries = folder / HOUSE_QUERIES.format(split=split)
    if corpus is None or not queries.is_file():
        missing = queries.name if corpus else " or ".join(HOUSE_CORPUS)
        raise DataError(f"{name}: no {missing} in {folder}; {_there(folder)}")
    train = folder / HOUSE_QUERIES.format(split="train")
    return own(
        [corpus],
        queries,
        name=name,
        split=split,
        train=train if split != "train" and train.is_file() else None,
        entry=entry,
    )


def own(
    corpus: list[Path],
    questions: Path,
    *,
    name: str = "own",
    split: str = "",
    train: Path | None = None,
    entry: House | None = None,
) -> Benchmark:
    """A user's own set: documents as `ctx1 index` reads them (none: they are indexed already) and a question file."""
    problems: list[str] = []
    report = LoadReport()
    documents = tuple(load(corpus, report=report)) if corpus else ()
    problems += [str(notice) for notice in report.notices]
    asked = load_questions(questions, problems=problems)
    trained = tuple(load_questions(train, problems=[])) if train is not None else ()
    made = Benchmark(name, split, documents, tuple(asked), train=trained, problems=tuple(problems))
    if entry is not None:
        made = replace(made, about=entry.about, licence=entry.licence, source=entry.source)
    return _graded(made, str(questions))


def _public(entry: Entry, split: str | None, folder: Path | None) -> Benchmark:
    chosen = split or next(iter(entry.splits))
    if chosen not in entry.splits:
        raise ConfigError(f"{entry.name} has no split {chosen!r} with gold: choose {' or '.join(entry.splits)}")
    pool, problems = _pool(entry, chosen, folder)
    train: tuple[Question, ...] = ()
    if "train" in entry.splits and chosen != "train" and _holds_train(entry, folder):
        train = _pool(entry, "train", folder)[0].questions
    made = Benchmark(
        entry.name,
        chosen,
        pool.documents,
        pool.questions,
        entry.about,
        entry.licence,
        entry.source,
        train,
        tuple(problems),
    )
    return _graded(made, str(folder) if folder else entry.source)


def _pool(entry: Entry, split: str, folder: Path | None) -> tuple[formats.Pool, list[str]]:
    if folder is None and entry.bring:
        raise DataError(f"{entry.name} is read from a folder, --benchmarks {entry.name}=FOLDER; bring {entry.bring}")
    tables = from_hub(entry.name, entry.hubs, entry.splits[split])
    if folder is not None:
        tables = from_folder(entry.name, folder, entry.files, split, beside=tables if entry.bring else None)
    return entry.form(tables), tables.problems


def _holds_train(entry: Entry, folder: Path | None) -> bool:
    """Whether the training questions lie beside the evaluated ones; they are not downloaded for the check alone."""
    if folder is None:
        return False
    role = "qrels" if "qrels" in entry.files else "queries"
    return role in from_folder(entry.name, folder, entry.files, "train").roles


def _graded(made: Benchmark, place: str) -> Benchmark:
    """The benchmark without the questions that cannot be scored. Raises `DataError` where nothing is left."""
    graded = tuple(one for one in made.questions if one.gold or one.facts or one.answer)
    if not graded:
        why = (
            "it holds no question"
            if not made.questions
            else f"none of its {len(made.questions)} questions has gold or an answer"
        )
        first = f"; {len(made.problems)} rows cannot be read, first {made.problems[0]}" if made.problems else ""
        raise DataError(f"{made.name}: nothing to score in {place}: {why}{first}")
    return replace(made, questions=graded, ungraded=len(made.questions) - len(graded))


def _in_data(name: str, data: Path) -> Path:
    folder = data / name
    if not folder.is_dir():
        raise DataError(
            f"no data for {name}: {folder} is not there; name the folder that holds it with --data or CTX1_DATA, "
            f"or the set's own with --benchmarks {name}=FOLDER"
        )
    return folder


def _splits(folder: Path) -> list[str]:
    return sorted(one.name.split(".")[1] for one in folder.glob(HOUSE_QUERIES.format(split="*")))


def _there(folder: Path) -> str:
    found = _splits(folder)
    return f"its splits are {', '.join(found)}" if found else "a folder of the house format has queries.<split>.jsonl"


def _unknown(name: str, path: Path, given: str) -> str:
    if given:
        return f"{path} is no folder"
    near = difflib.get_close_matches(name, names(), n=1, cutoff=0.5)
    hint = f"did you mean {near[0]!r}?" if near else f"known are {', '.join(names())}"
    return f"no benchmark {name!r}, and no folder of that name; {hint}"


HOUSE_CORPUS = ("corpus.jsonl.gz", "corpus.jsonl")


@dataclass(frozen=True, slots=True)
class Entry:
    """A public set. `files` are the published names by role, `hubs` the same in repositories that `datasets` reads.

    `splits` maps a split's name in the files to its name there; the first one is evaluated unless another is asked for.
    """

    name: str
    about: str
    licence: str
    source: str
    form: formats.Format
    splits: Mapping[str, str]
    files: Mapping[str, tuple[str, ...]]
    hubs: Mapping[str, Hub] = field(default_factory=dict)
    bring: str = ""
    """What a user must bring, for a set that cannot be had by name alone."""


@dataclass(frozen=True, slots=True)
class House:
    """A set in the house format that is looked for in the data folder under its name."""

    name: str
    about: str
    licence: str
    source: str


HOUSES = (
    House(
        "musique",
        "2 to 4 hops; the twenty paragraphs of each question, pooled",
        "CC BY 4.0",
        "https://github.com/StonyBrookNLP/musique",
    ),
    House(
        "2wiki",
        "2 to 4 hops between Wikipedia articles, pooled",
        "Apache-2.0",
        "https://github.com/Alab-NII/2wikimultihop",
    ),
    House(
        "hotpotqa",
        "2 hops; the paragraphs of the distractor setting, pooled",
        "CC BY-SA 4.0",
        "https://hotpotqa.github.io",
    ),
)

ENTRIES = (
    Entry(
        "multihop-rag",
        "2 to 4 news articles a question, and questions that none answers (left out: they have no gold)",
        "ODC-BY",
        "https://github.com/yixuantt/MultiHop-RAG",
        formats.multihop_rag,
        {"test": "train"},
        {"corpus": ("corpus.json",), "queries": ("MultiHopRAG.json",)},
        {
            "corpus": Hub("yixuantt/MultiHopRAG", "corpus", "train"),
            "queries": Hub("yixuantt/MultiHopRAG", "MultiHopRAG", "train"),
        },
    ),
    Entry(
        "musique-ans",
        "MuSiQue-Ans, 2 to 4 hops; the paragraphs of all questions of the split, pooled",
        "CC BY 4.0",
        "https://github.com/StonyBrookNLP/musique",
        formats.musique,
        {"dev": "validation", "train": "train"},
        {"queries": ("musique_ans_v1.0_{split}.jsonl", "data/musique_ans_v1.0_{split}.jsonl")},
        {"queries": Hub("dgslibisey/MuSiQue")},
    ),
    Entry(
        "hotpotqa-distractor",
        "HotpotQA, 2 hops; the paragraphs of all questions of the split, pooled",
        "CC BY-SA 4.0",
        "https://hotpotqa.github.io",
        formats.hotpotqa,
        {"dev": "validation", "train": "train"},
        {"queries": ("hotpot_{split}_distractor_v1.json", "hotpot_{split}_v1.1.json")},
        {"queries": Hub("hotpotqa/hotpot_qa", "distractor")},
    ),
    Entry(
        "2wikimultihopqa",
        "2WikiMultihopQA, 2 to 4 hops; the paragraphs of all questions of the split, pooled",
        "Apache-2.0",
        "https://github.com/Alab-NII/2wikimultihop",
        formats.hotpotqa,
        {"dev": "validation", "train": "train"},
        {"queries": ("{split}.json", "data/{split}.json")},
        {"queries": Hub("framolfese/2WikiMultihopQA")},
    ),
    Entry(
        "frames",
        "2 to 15 Wikipedia articles a question",
        "Apache-2.0",
        "https://huggingface.co/datasets/google/frames-benchmark",
        formats.frames,
        {"test": "test"},
        {"corpus": HOUSE_CORPUS, "queries": ("test.tsv",)},
        {"queries": Hub("google/frames-benchmark")},
        bring="the Wikipedia articles, which are not part of the set, as corpus.jsonl with a url (or title) each; "
        "the questions are downloaded where test.tsv is not beside it",
    ),
    Entry(
        "browsecomp-plus",
        "questions that take long research; 100,195 web documents. The questions are published encrypted",
        "MIT",
        "https://github.com/texttron/BrowseComp-Plus",
        formats.browsecomp_plus,
        {"test": "test"},
        {
            "corpus": ("corpus.jsonl", "corpus.jsonl.gz", "corpus.parquet"),
            "queries": ("browsecomp_plus_decrypted.jsonl", "data/browsecomp_plus_decrypted.jsonl"),
        },
        {"corpus": Hub("Tevatron/browsecomp-plus-corpus", split="train")},
        bring="the file of questions that scripts_build_index/decrypt_dataset.py of that repository writes; the corpus "
        "is downloaded where it is not beside it",
    ),
)

BEIR = "beir/"
BEIR_SETS = (
    "msmarco trec-covid nfcorpus nq hotpotqa fiqa arguana webis-touche2020 quora dbpedia-entity scidocs fever "
    "climate-fever scifact"
).split()
"""The sets of BEIR that anyone may download and that are one corpus each (cqadupstack is twelve)."""


def names() -> list[str]:
    """Every name that can be asked for."""
    return [one.name for one in (*HOUSES, *ENTRIES)] + [f"{BEIR}{one}" for one in BEIR_SETS]


def about(name: str) -> House | Entry | None:
    """The entry of a name; None for a name that is not in the catalogue."""
    if name.startswith(BEIR) and name.removeprefix(BEIR) in BEIR_SETS:
        return _beir(name)
    return next((one for one in (*HOUSES, *ENTRIES) if one.name == name), None)


def _beir(name: str) -> Entry:
    one = name.removeprefix(BEIR)
    split = "dev" if one == "msmarco" else "test"
    return Entry(
        name,
        f"the set {one} of BEIR",
        "CC BY-SA 4.0 for BEIR's edition; the set beneath it keeps its own",
        "https://github.com/beir-cellar/beir",
        formats.beir,
        {split: "validation" if split == "dev" else split, "train": "train"},
        {
            "corpus": ("corpus.jsonl", "corpus.jsonl.gz"),
            "queries": ("queries.jsonl", "queries.jsonl.gz"),
            "qrels": ("qrels/{split}.tsv",),
        },
        {
            "corpus": Hub(f"BeIR/{one}", "corpus", "corpus"),
            "queries": Hub(f"BeIR/{one}", "queries", "queries"),
            "qrels": Hub(f"BeIR/{one}-qrels"),
        },
    )
