"""The benchmarks that have a name: their files, their tables on the hub, their splits and their licenses.

`license` is the license of the data as its publisher states it. None of the data ships with this package.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from context_agent.eval.benchmarks import conversations, formats
from context_agent.eval.benchmarks.source_tables import HubTable

_PACKINGS = ("", ".gz")
TABLE_FILES = {
    "corpus": tuple(f"{name}{end}" for name in ("corpus.jsonl", "corpus.tsv", "collection.tsv") for end in _PACKINGS),
    "queries": tuple(f"{name}{end}" for name in ("queries.jsonl", "queries.tsv") for end in _PACKINGS),
    "qrels": tuple(
        f"{name}.{kind}{end}"
        for name in ("qrels/{split}", "qrels.{split}", "qrels")
        for kind in ("tsv", "txt")
        for end in _PACKINGS
    ),
}
"""The names of the files of a folder in the format of BEIR or TREC, by role."""
CORPUS_FILES = ("corpus.jsonl.gz", "corpus.jsonl")
"""The names of a corpus in the native format."""


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
    """Return the names that files of BRIGHT may have, published or exported. `{split}` is a domain."""
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
        TABLE_FILES,
        {
            "corpus": HubTable(f"BeIR/{dataset}", "corpus", "corpus"),
            "queries": HubTable(f"BeIR/{dataset}", "queries", "queries"),
            "qrels": HubTable(f"BeIR/{dataset}-qrels"),
        },
    )


def judged_folder(name: str, splits: Iterable[str]) -> PublicBenchmark:
    """Return the set of a user's folder in the format of BEIR or TREC."""
    return PublicBenchmark(
        name,
        "a folder of the user, with judgments",
        "not stated",
        "",
        formats.beir,
        {split: split for split in splits},
        TABLE_FILES,
    )
