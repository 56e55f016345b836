"""Measure recall@5 of the embedded policy and of one-shot search on multi-hop questions, without a language model.

    python benchmarks/multihop.py --data FOLDER [--sets 2wiki,hotpotqa,newsfacts,musique] [--split dev]
        [--embedder static] [--window TOKENS] [--no-prune] [--effort careful|fast] [--shuffle dense|bm25]
        [--only dense|bm25] [--cache FOLDER] [--weights FILE]
    python benchmarks/multihop.py --data FOLDER --train weights.safetensors --embedder static,minilm
        [--reader B.onnx=0,2,4 --reader A.onnx=1,3] [--rounds 1] [--limit 300] [--other-sets musique,git]
    python benchmarks/multihop.py --data FOLDER --data TECHNICAL --sets musique,linux,rfc [--train weights.safetensors]

A set is a folder with `corpus.jsonl.gz` (`id`, `title`, `text`), `queries.train.jsonl` and `queries.dev.jsonl` (`id`,
`question`, `gold`: document ids). You may repeat `--data`. The first of these folders that has a set is used. So you
can train weights on the sets of some domains (`--train` with their names), and test them on another domain
(`--weights`).

For each set the program prints:

- recall@5 of BM25, dense and hybrid search with the question alone;
- recall@5 of the agent, and its gain over hybrid search, with bootstrap 95% intervals over questions;
- `seen`: the share of the gold documents that the agent saw;
- `ms` and `turns`: the median time and the mean number of turns of an episode;
- `pruned`: the share of the pruned blocks that are not gold.

`--embedder` takes any spec that the package knows. Vectors are computed once and kept in `--cache`. `--shuffle` makes a
retriever useless, to see whether the agent notices. With `dense`, each chunk gets the vector of another one. With
`bm25`, the search returns other chunks than those it found. `--only` switches the other retriever off.

`--train` trains the scorer's weights on the train questions instead. There is one source for each set and embedder. The
first embedder also has one for each retriever alone, and small samples of the sets, since many users have a few dozen
documents. `--reader` names a reader that was not trained on the questions of some folds (`scripts/build_reader.py`).
"""

from __future__ import annotations

import argparse
import gzip
import hashlib
import json
import pickle
import random
import statistics
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from context_agent._support.onnx import OnnxModel
from context_agent._support.question_files import load_questions
from context_agent._support.shipped_models import READER_FORMAT, TOKENIZER_FILE
from context_agent.agent import SearchAgent
from context_agent.eval.statistics import Figure
from context_agent.harness.trajectory import Trajectory
from context_agent.policies.bridge import BridgePolicy, Effort, Scorer
from context_agent.policies.bridge.effort import EFFORTS
from context_agent.pruning.view import Block
from context_agent.retrieval.chunker import DEFAULT_CHUNK_TOKENS, chunk_document
from context_agent.retrieval.embedders import Embedder, load_embedder
from context_agent.retrieval.filters import Where
from context_agent.retrieval.memory import MemoryCorpus
from context_agent.retrieval.retriever import Retriever
from context_agent.tokens import HarmonyCounter
from context_agent.train.bridge.episodes import BridgeSource
from context_agent.types import Chunk, Document, Question

SETS = ("2wiki", "hotpotqa", "newsfacts", "musique")
CUTOFF = 5
DEPTH = 25
HELP = ("sqlite", "gimp", "office", "git", "finance", "apache", "gis", "mail", "desktop", "foldoc")
WEIGHTS = {"musique": 0.6, **dict.fromkeys(HELP, 0.4)}
"""The training weight of sets that have fewer questions than others."""
ALONE_SHARE, SMALL_SHARE = 0.4, 0.4
"""The training weights of a retriever alone and of the small samples, as shares of the set's weight."""
ALONE_QUESTIONS, OTHER_QUESTIONS = 20, 150
"""The maximum number of questions of a set for a retriever alone, and for each embedder after the first."""
CALIBRATED = 25
"""The number of questions of a source to which the calibration is fitted."""
SMALL_SIZES, SMALL_QUESTIONS = (2, 5, 10, 20, 40, 80), 4
"""The numbers of documents in the small samples, and the number of questions that are tried for each sample."""

Floats = NDArray[np.float32]


class CachedEmbedder:
    """An embedder that keeps its vectors in a folder. The text and the embedder's name identify them."""

    def __init__(self, inner: Embedder, folder: Path) -> None:
        self._inner = inner
        self.name = inner.name
        self.dimension = inner.dimension
        digest = hashlib.sha256(f"{inner.name}:{self.dimension}".encode())
        digest.update(inner.embed_query("a probe of the model's identity").tobytes())
        self._folder = folder / digest.hexdigest()[:16]
        self._folder.mkdir(parents=True, exist_ok=True)
        self._queries: dict[str, Floats] = {}
        if (file := self._folder / "queries.pickle").is_file():
            self._queries = pickle.loads(file.read_bytes())

    def embed_documents(self, texts: Sequence[str]) -> Floats:
        """Return the texts' vectors. If the folder has them, they are not computed again."""
        digest = hashlib.sha256("\0".join(texts).encode(errors="replace")).hexdigest()[:16]
        file = self._folder / f"{digest}.npy"
        if not file.is_file():
            np.save(file, self._inner.embed_documents(texts))
        return np.asarray(np.load(file), dtype=np.float32)

    def embed_query(self, text: str) -> Floats:
        """Return the query's vector, and keep it."""
        if (vector := self._queries.get(text)) is None:
            vector = self._queries[text] = np.asarray(self._inner.embed_query(text), dtype=np.float16)
        return vector.astype(np.float32)

    def save(self) -> None:
        """Write the query vectors to the folder."""
        (self._folder / "queries.pickle").write_bytes(pickle.dumps(self._queries))


class Exchanged:
    """A retriever that returns other chunks than those it found."""

    def __init__(self, inner: Retriever, names: dict[str, str]) -> None:
        self.name = inner.name
        self._inner, self._names = inner, names

    def search(self, query: str, k: int, where: Where | None = None) -> list[tuple[str, float]]:
        """Return the inner retriever's ranking with exchanged ids."""
        return [(self._names[item], score) for item, score in self._inner.search(query, k, where)]


class Silent:
    """A retriever that finds nothing."""

    def __init__(self, inner: Retriever) -> None:
        self.name = inner.name

    def search(self, query: str, k: int, where: Where | None = None) -> list[tuple[str, float]]:
        """Return nothing."""
        return []


@dataclass
class Row:
    """The results of one set: the recalls of each search method by question, and the agent's costs."""

    name: str
    recalls: dict[str, list[float]] = field(default_factory=dict)
    seen: list[float] = field(default_factory=list)
    seconds: list[float] = field(default_factory=list)
    turns: list[int] = field(default_factory=list)
    pruned_wrong: list[float] = field(default_factory=list)
    """The share of an episode's pruned blocks that are not gold."""

    def figures(self) -> dict[str, object]:
        """Return the row as plain data."""
        gain = [a - h for a, h in zip(self.recalls["agent"], self.recalls["hybrid"], strict=True)]
        figures = {way: Figure.of(values) for way, values in self.recalls.items()} | {"gain": Figure.of(gain)}
        plain: dict[str, object] = {name: [f.mean, f.low, f.high] for name, f in figures.items()}
        plain["seen"] = statistics.mean(self.seen)
        plain["median_ms"] = 1000 * statistics.median(self.seconds)
        plain["turns"] = statistics.mean(self.turns)
        plain["pruned_not_gold"] = statistics.mean(self.pruned_wrong) if self.pruned_wrong else None
        return {"set": self.name, "questions": len(self.seen), **plain}


def set_folder(data: Sequence[Path], name: str) -> Path:
    """Return the folder of a set in the first folder of `data` that has it.

    If no folder has the set, raise `FileNotFoundError`.
    """
    for folder in data:
        if (folder / name / "corpus.jsonl.gz").is_file():
            return folder / name
    tried = ", ".join(str(folder / name) for folder in data)
    raise FileNotFoundError(f"no set {name}: {tried} has no corpus.jsonl.gz; name the folder that holds it with --data")


def load_chunks(folder: Path) -> list[Chunk]:
    """Return the set's documents, divided into chunks as for an index."""
    counter = HarmonyCounter()
    chunks: list[Chunk] = []
    with gzip.open(folder / "corpus.jsonl.gz", "rt", encoding="utf-8") as lines:
        for row in map(json.loads, lines):
            chunks += chunk_document(
                Document(row["id"], row["text"], row["title"]), size=DEFAULT_CHUNK_TOKENS, counter=counter, overlap=0
            )
    return chunks


def build(chunks: Sequence[Chunk], embedder: Embedder, *, shuffle: str | None, only: str | None) -> MemoryCorpus:
    """Return the corpus. `shuffle` makes a retriever useless, and `only` keeps a single retriever."""
    vectors = embedder.embed_documents([chunk.indexed_text for chunk in chunks])
    if shuffle == "dense":
        vectors = vectors[np.random.default_rng(0).permutation(len(vectors))]
    ids = [chunk.id for chunk in chunks]
    exchanged_ids = dict(zip(ids, random.Random(0).sample(ids, len(ids)), strict=True))

    def wrap(retriever: Retriever) -> Retriever:
        if only and retriever.name != only:
            return Silent(retriever)
        return Exchanged(retriever, exchanged_ids) if shuffle == "bm25" == retriever.name else retriever

    return MemoryCorpus(chunks, embedder=embedder, vectors=vectors, wrap=wrap)


def recall(ranked_ids: Iterable[str], gold: Sequence[str]) -> float:
    """Return the share of the gold documents among the first `CUTOFF` different documents."""
    return len(set(list(dict.fromkeys(ranked_ids))[:CUTOFF]) & set(gold)) / len(set(gold))


def measure(name: str, corpus: MemoryCorpus, questions: Sequence[Question], agent: SearchAgent) -> Row:
    """Run the one-shot searches and the agent on every question, and return the results."""
    row = Row(name, {way: [] for way in ("bm25", "dense", "hybrid", "agent")})
    owner = {chunk.id: chunk.document_id for chunk in corpus.chunks}
    for question in questions:
        for retriever in corpus.retrievers:
            hits = retriever.search(question.question, DEPTH)
            row.recalls[retriever.name].append(recall((owner[item] for item, _ in hits), question.gold))
        fused = corpus.search(question.question, k=DEPTH)
        row.recalls["hybrid"].append(recall((hit.chunk.document_id for hit in fused), question.gold))
        started = time.perf_counter()
        result = agent.search(question.question)
        row.seconds.append(time.perf_counter() - started)
        row.recalls["agent"].append(recall((document.id for document in result.documents), question.gold))
        seen_documents = {document for trajectory in result.trajectories for document in trajectory.encountered}
        row.seen.append(len(seen_documents & set(question.gold)) / len(set(question.gold)))
        row.turns.append(result.turns)
        if pruned := {block.id for trajectory in result.trajectories for block in _pruned(trajectory)}:
            row.pruned_wrong.append(sum(owner[chunk_id] not in question.gold for chunk_id in pruned) / len(pruned))
    return row


def _pruned(trajectory: Trajectory) -> list[Block]:
    """Return the blocks that the view no longer showed after some turn."""
    return [block for view in trajectory.views() for block in view.pruned]


def embedders(specs: str, cache: Path) -> list[CachedEmbedder]:
    """Return a cached embedder for each spec in a comma-separated list."""
    return [CachedEmbedder(load_embedder(spec), cache) for spec in specs.split(",")]


def train_weights(options: argparse.Namespace, names: Sequence[str]) -> None:
    """Train on the train questions of all sets, with every embedder and with each retriever alone, and write the
    weights.
    """
    # Training needs torch, and measuring does not.
    from context_agent.train.bridge.calibration_fit import calibrate
    from context_agent.train.bridge.training import train

    sources, alone = [], []
    for position, embedder in enumerate(embedders(options.embedder, options.cache)):
        for name in names:
            if position and options.other_sets and name not in options.other_sets.split(","):
                continue
            folder, weight = set_folder(options.data, name), WEIGHTS.get(name, 1.0)
            questions = load_questions(folder / "queries.train.jsonl")[: options.limit]
            chunks = load_chunks(folder)
            label = f"{name}/{embedder.name}"
            corpus = build(chunks, embedder, shuffle=None, only=None)
            sources.append(BridgeSource(label, corpus, questions[: OTHER_QUESTIONS if position else None], weight))
            if position:
                continue
            sources += small_sources(f"{name}/small", chunks, questions, embedder, weight * SMALL_SHARE)
            for only in ("bm25", "dense"):
                corpus = build(chunks, embedder, shuffle=None, only=only)
                few = random.Random(only).sample(questions, min(ALONE_QUESTIONS, len(questions)))
                alone.append(BridgeSource(f"{label}/{only}", corpus, few, weight * ALONE_SHARE))
        embedder.save()
    windows = [int(size) for size in options.windows.split(",")]
    trained = train(
        [*sources, *alone],
        policy=_policy(options),
        windows=windows,
        rounds=options.rounds,
        readers=dict(pair for spec in options.reader for pair in _readers(spec)),
        report=progress(),
    )
    # `answerable.py --fit` can calibrate them too, if this run does not come to its end.
    trained.scorer.save(options.train, trained.notes())
    trained = calibrate(trained, sources, progress(), CALIBRATED)
    trained.scorer.save(options.train, trained.notes())
    for label, figure in trained.recall.items():
        print(f"{label:40} recall@5 {figure}   gold seen {trained.seen[label]}")


def small_sources(
    label: str, chunks: Sequence[Chunk], questions: Sequence[Question], embedder: Embedder, weight: float
) -> list[BridgeSource]:
    """Return small samples of a set's documents. Each has a few questions that these documents answer."""
    draw = random.Random(label)
    by_document: dict[str, list[Chunk]] = {}
    for chunk in chunks:
        by_document.setdefault(chunk.document_id, []).append(chunk)
    order = iter(draw.sample(questions, len(questions)))
    samples = []
    for size in SMALL_SIZES:
        sampled: list[Question] = []
        gold: dict[str, None] = {}
        for question in islice(order, SMALL_QUESTIONS):
            if len({**gold, **dict.fromkeys(question.gold)}) <= size:
                sampled.append(question)
                gold |= dict.fromkeys(question.gold)
        others = [document for document in draw.sample(sorted(by_document), size) if document not in gold]
        documents = [*gold, *others][:size]
        if sampled:
            few = [chunk for document in documents for chunk in by_document[document]]
            samples.append((MemoryCorpus(few, embedder=embedder), sampled))
    return [BridgeSource(label, corpus, sampled, weight / len(samples)) for corpus, sampled in samples]


def _readers(spec: str) -> Iterable[tuple[int, OnnxModel]]:
    """Return the reader of each fold, from a spec such as `FILE=0,2`."""
    file, _, folds = spec.partition("=")
    model = OnnxModel(Path(file), TOKENIZER_FILE, format=READER_FORMAT)
    return [(int(fold), model) for fold in folds.split(",")]


def main() -> int:
    """Print a table, or train."""
    options = _options()
    names = options.sets.split(",")
    try:
        folders = [set_folder(options.data, name) for name in names]
    except FileNotFoundError as error:
        print(error, file=sys.stderr)
        return 2
    if options.train:
        train_weights(options, names)
        return 0
    (embedder,) = embedders(options.embedder, options.cache)
    for position, (name, folder) in enumerate(zip(names, folders, strict=True)):
        corpus = build(load_chunks(folder), embedder, shuffle=options.shuffle, only=options.only)
        questions = load_questions(folder / f"queries.{options.split}.jsonl")[: options.limit]
        agent = SearchAgent(corpus, _policy(options), budget=options.window)
        figures = measure(name, corpus, questions, agent).figures()
        embedder.save()
        _show(figures, options.json, heading=position == 0)
    return 0


def _policy(options: argparse.Namespace) -> BridgePolicy:
    effort = replace(Effort.named(options.effort), prune=not options.no_prune)
    return BridgePolicy(Scorer.load(options.weights) if options.weights else None, effort=effort)


def _show(figures: dict[str, object], as_json: bool, *, heading: bool) -> None:
    if as_json:
        print(json.dumps(figures), flush=True)
        return
    if heading:
        print(
            "set           n   BM25  dense hybrid  agent                gain over hybrid        seen   ms turns pruned"
        )
    bm25, dense, hybrid = (figures[way][0] for way in ("bm25", "dense", "hybrid"))  # type: ignore[index]
    agent, gain = (Figure(*figures[way]) for way in ("agent", "gain"))  # type: ignore[misc]
    share = figures["pruned_not_gold"]
    not_gold = "-" if share is None else f"{share:.3f}"
    print(
        f"{figures['set']:10} {figures['questions']:4} {bm25:6.3f} {dense:6.3f} {hybrid:6.3f}  {agent} {gain}  "
        f"{figures['seen']:6.3f} {figures['median_ms']:4.0f} {figures['turns']:5.1f} {not_gold}",
        flush=True,
    )


def progress() -> Callable[[str, float], None]:
    """Return a function that writes a line to stderr every ten seconds, and at the end of each step."""
    started, last = time.monotonic(), 0.0

    def report(what: str, share: float) -> None:
        nonlocal last
        now = time.monotonic()
        if now - last >= 10 or share >= 1:
            print(f"{now - started:6.0f} s  {what} {share:.0%}", file=sys.stderr, flush=True)
            last = now

    return report


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument(
        "--data", type=Path, action="append", required=True, help="folder with a folder for each set; may be repeated"
    )
    parser.add_argument("--sets", default=",".join(SETS))
    parser.add_argument("--split", default="dev", choices=("train", "dev"))
    parser.add_argument("--embedder", default="static", help="spec of an embedder; a list of specs with --train")
    parser.add_argument("--cache", type=Path, default=Path(".cache/multihop"), help="keeps vectors")
    parser.add_argument("--window", type=int, help="tokens")
    parser.add_argument("--no-prune", action="store_true")
    parser.add_argument("--shuffle", choices=("dense", "bm25"))
    parser.add_argument("--only", choices=("dense", "bm25"))
    parser.add_argument("--weights", help="file of the bridge policy's weights instead of those that ship")
    parser.add_argument("--limit", type=int, help="questions a set at most")
    parser.add_argument("--json", action="store_true", help="a JSON object a set")
    parser.add_argument("--train", type=Path, metavar="FILE", help="train and write the weights instead")
    parser.add_argument("--other-sets", help="sets to train on with the embedders after the first; by default all")
    parser.add_argument("--reader", action="append", default=[], metavar="FILE=FOLDS", help="reader of some folds")
    parser.add_argument("--effort", choices=EFFORTS, default="careful")
    parser.add_argument("--windows", default="0", help="windows to train under, comma-separated; 0 is the default one")
    parser.add_argument("--rounds", type=int, default=2)
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
