"""Train the final ranking of the embedded policy: trees over all evidence about an episode's candidates.

    python scripts/build_ranker.py collect --data FOLDER [--sets musique,conala] --out EPISODES
        [--embedder static,minilm] [--reader reader.onnx] [--questions 80] [--processes 2]
    python scripts/build_ranker.py compare EPISODES
    python scripts/build_ranker.py export EPISODES --out weights.safetensors

`collect` plays the train questions of every set in `--data`, which may be repeated. It stores what the policy knew
about each candidate. A set is a folder with `corpus.jsonl.gz`, and with `queries.train.jsonl` or a `questions.jsonl`
that has a `split` for each question. Judges' grades of other candidates in `labels.jsonl.gz` count too.

`compare` trains without some of the domains, for each fold of domains, and prints recall@5 on the domains left out.
`export` trains on all domains. It adds the trees to the shipped weights, with a matching calibration of scores and
confidence.

For some questions, whole retrievers, the reader, or both are left out. Not every search engine says what its retrievers
found, and the effort `fast` does not use the reader.

The program needs lightgbm.
"""

from __future__ import annotations

import argparse
import asyncio
import gzip
import json
import pickle
import random
import sys
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any
from zlib import crc32

import numpy as np
from numpy.typing import NDArray

from context_agent._support.onnx import OnnxModel
from context_agent._support.shipped_models import READER_FORMAT, TOKENIZER_FILE
from context_agent.budget import Budget
from context_agent.eval.probabilities import expected_calibration_error, roc_auc
from context_agent.harness.episode import Episode
from context_agent.harness.profile import default
from context_agent.harness.rendering import Renderer
from context_agent.policies.bridge import BridgePolicy, Scorer
from context_agent.policies.bridge.actor import BridgeActor
from context_agent.policies.bridge.effort import Effort
from context_agent.policies.bridge.ranking import (
    BY_DENSE,
    BY_READER,
    BY_WORDS,
    DENSE,
    LINKED_DENSE,
    RANKING,
    Trees,
    compared_rows,
    late_scores,
    with_late_interaction,
)
from context_agent.policies.bridge.score_calibration import (
    LIKELY,
    STOPPING,
    Evidence,
    ScoreCalibration,
    log_odds,
    sigmoid,
    stopping_features,
)
from context_agent.retrieval.chunker import DEFAULT_CHUNK_TOKENS, chunk_document
from context_agent.retrieval.corpus import Corpus
from context_agent.retrieval.embedders import load_embedder
from context_agent.retrieval.memory import MemoryCorpus
from context_agent.tokens import HarmonyCounter
from context_agent.train.bridge.calibration_fit import RANKED, AssessedEpisode, fit_calibration, logistic_regression
from context_agent.train.bridge.withheld_corpus import WithheldCorpus
from context_agent.types import Chunk, Document

Floats = NDArray[np.float32]
CUTOFF = 5
MOST_COMPARED = 20
"""The number of the best candidates, by each ranking, whose late interaction is stored."""
SMALL = 1200
"""The maximum number of documents of a set, for embedders that are slower than `static`."""
UNANSWERABLE = 3
"""One of this many questions is also asked on the corpus without its gold documents."""


@dataclass
class RankedEpisode:
    """What an episode knew about its n candidates.

    `grades` are 2 for gold, 1 for a candidate that a judge found equally good, and 0 for all others. `scores` are those
    of the policy without trees.
    """

    source: str
    domain: str
    question: str
    type: str
    kind: str
    gold: int
    documents: list[str]
    grades: Floats
    rows: Floats
    scores: Floats
    repeats: Floats
    """The factors on the scores of repeated candidates, shape (n,)."""
    coverage: Floats
    """The coverage of the question's T terms, shape (n, T). `weight` and `in_name` describe the terms."""
    weight: Floats
    in_name: NDArray[np.bool_]
    chunks: int
    opening: Floats
    """The inputs after the first turn, shape (m, F), for the first m candidates."""
    one_shot: dict[str, float] = field(default_factory=dict)
    late: Floats = field(default_factory=lambda: np.zeros(0, dtype=np.float32))
    """Late interaction of the candidates that the networks or the shipped trees rank best, else NaN, shape (n,)."""


def questions_of(folder: Path, split: str) -> list[dict[str, Any]]:
    """Return the questions of a split of the set."""
    file = folder / f"queries.{split}.jsonl"
    rows = [
        json.loads(line) for line in (file if file.is_file() else folder / "questions.jsonl").open(encoding="utf-8")
    ]
    return [row for row in rows if row.get("split", split) == split]


def documents_of(folder: Path) -> list[Document]:
    """Return the documents of a set."""
    with gzip.open(folder / "corpus.jsonl.gz", "rt", encoding="utf-8") as lines:
        return [Document(row["id"], row["text"], row["title"] or "") for row in map(json.loads, lines)]


def grades_of(folder: Path) -> dict[str, dict[str, int]]:
    """Return the judged grades of documents, by question. If there are none, return an empty mapping."""
    file = folder / "labels.jsonl.gz"
    if not file.is_file():
        return {}
    with gzip.open(file, "rt", encoding="utf-8") as lines:
        return {row["id"]: row["grades"] for row in map(json.loads, lines)}


def set_folders(data: Sequence[Path], names: Sequence[str], split: str) -> Iterator[Path]:
    """Yield the folders of sets with questions of the split, ordered by name."""
    for folder in sorted(path.parent for root in data for path in root.glob("*/corpus.jsonl.gz")):
        has_questions = (folder / f"queries.{split}.jsonl").is_file() or (folder / "questions.jsonl").is_file()
        if has_questions and (not names or folder.name in names):
            yield folder


def collect(folder: Path, spec: str, options: argparse.Namespace) -> list[RankedEpisode]:
    """Return the episodes of a set with one embedder."""
    questions, documents = questions_of(folder, options.split), documents_of(folder)
    draw = random.Random(folder.name)
    with_gold = [row for row in questions if row["gold"]]
    chosen = draw.sample(with_gold, min(options.questions, len(with_gold)))
    chosen += [row for row in questions if not row["gold"]][: options.questions // UNANSWERABLE]
    if spec != "static" and len(documents) > SMALL:
        gold = {document for row in chosen for document in row["gold"]}
        others = [document for document in documents if document.id not in gold]
        few = set(draw.sample([document.id for document in others], max(0, SMALL - len(gold)))) | gold
        documents = [document for document in documents if document.id in few]
    corpus = MemoryCorpus(_chunks(documents), embedder=load_embedder(spec))
    scorer = Scorer.shipped()
    reader = OnnxModel(options.reader, TOKENIZER_FILE, format=READER_FORMAT) if options.reader else None
    policy = BridgePolicy(Scorer.of(scorer.networks, None, scorer.head), effort="careful", reader=reader)
    grades, episodes = grades_of(folder), []
    for number, row in enumerate(chosen):
        kind = "answered" if row["gold"] else "nothing"
        labels = grades.get(row["id"], {})
        episodes.append(_episode(folder, spec, row, corpus, policy, kind=kind, grades=labels, ranker=scorer.ranker))
        if number % UNANSWERABLE == 0 and row["gold"]:
            without = WithheldCorpus(corpus, row["gold"])
            episodes.append(
                _episode(folder, spec, row, without, policy, kind="withheld", grades={}, ranker=scorer.ranker)
            )
    return [episode for episode in episodes if episode is not None]


def _chunks(documents: Sequence[Document]) -> list[Chunk]:
    counter = HarmonyCounter()
    return [
        chunk
        for item in documents
        for chunk in chunk_document(item, size=DEFAULT_CHUNK_TOKENS, counter=counter, overlap=0)
    ]


def _episode(
    folder: Path,
    spec: str,
    row: dict[str, Any],
    corpus: Corpus,
    policy: BridgePolicy,
    *,
    kind: str,
    grades: dict[str, int],
    ranker: Trees | None,
) -> RankedEpisode | None:
    actor, opening = asyncio.run(_play(row["question"], corpus, policy))
    if not len(actor.notes):
        return None
    gold = set(row["gold"]) if kind == "answered" else set()
    documents = [candidate.document_id for candidate in actor.notes.candidates]
    labels = [2.0 if item in gold else float(grades.get(item, 0) == 2) for item in documents]
    undiscounted = actor.judgment.combined_scores()
    rows = actor.judgment.ranking_inputs()
    orders = [actor.scores, rows[:, RANKING.index("odds")]]
    if ranker is not None:
        orders.append(ranker(rows))
    best = np.unique(np.concatenate([compared_rows(order, MOST_COMPARED) for order in orders]))
    return RankedEpisode(
        source=f"{folder.name}/{spec}",
        domain=folder.name,
        question=row["id"],
        type=row.get("type", ""),
        kind=kind,
        gold=len(gold),
        documents=documents,
        grades=np.array(labels, dtype=np.float32),
        rows=rows,
        late=late_scores(actor.notes, best),
        scores=actor.scores,
        repeats=actor.scores / np.maximum(undiscounted, 1e-9),
        coverage=actor.judgment.coverage(),
        weight=actor.notes.question.weight,
        in_name=actor.notes.question.in_name,
        chunks=corpus.count(),
        opening=opening,
        one_shot=_one_shot(corpus, row["question"], gold) if gold else {},
    )


async def _play(question: str, corpus: Corpus, policy: BridgePolicy) -> tuple[BridgeActor, Floats]:
    """Return the actor after an episode, and the ranker's inputs after the first turn."""
    renderer = Renderer(default(), HarmonyCounter())
    actor = policy.open(question, corpus, profile=renderer.profile)
    opening: list[Floats] = []
    read_alone = actor.judgment.read_alone

    def after_first_turn() -> None:
        read_alone()
        opening.append(actor.judgment.ranking_inputs())

    actor.judgment.read_alone = after_first_turn  # type: ignore[method-assign]
    episode = Episode(question, corpus, budget=Budget(), renderer=renderer, instructions="")
    view = episode.open()
    while not episode.done:
        view = await episode.step(await actor.act(view))
    return actor, opening[0] if opening else np.zeros((0, 0), dtype=np.float32)


def _one_shot(corpus: Corpus, question: str, gold: set[str]) -> dict[str, float]:
    """Return recall@5 of single searches."""
    rankings = {"hybrid": [hit.chunk.document_id for hit in corpus.search(question, k=50)]}
    if isinstance(corpus, MemoryCorpus):
        owner = {chunk.id: chunk.document_id for chunk in corpus.chunks}
        for retriever in corpus.retrievers:
            rankings[retriever.name] = [owner[item] for item, _ in retriever.search(question, 50)]
    return {name: _recall(ranking, gold) for name, ranking in rankings.items()}


def _recall(ranking: Sequence[str], gold: set[str]) -> float:
    return len(gold & set(list(dict.fromkeys(ranking))[:CUTOFF])) / len(gold)


def _collect_all(options: argparse.Namespace) -> None:
    options.out.mkdir(parents=True, exist_ok=True)
    names = options.sets.split(",") if options.sets else []
    jobs = [
        (folder, spec)
        for spec in options.embedder.split(",")
        for folder in set_folders(options.data, names, options.split)
    ]
    began = time.monotonic()
    with ProcessPoolExecutor(options.processes) as pool:
        futures = {pool.submit(collect, folder, spec, options): (folder.name, spec) for folder, spec in jobs}
        for done, future in enumerate(as_completed(futures), start=1):
            name, spec = futures[future]
            episodes = future.result()
            (options.out / f"{name}-{spec}.pickle").write_bytes(pickle.dumps(episodes))
            seconds = time.monotonic() - began
            print(f"{seconds:6.0f} s  {done}/{len(jobs)}  {name}/{spec}: {len(episodes)} episodes", file=sys.stderr)


@dataclass(frozen=True)
class Group:
    """The competing candidates of one question: their inputs (n, F), their grades (n,), and the question's weight."""

    rows: Floats
    grades: Floats
    weight: float


def load_episodes(folder: Path) -> list[RankedEpisode]:
    """Return all episodes that `collect` wrote to a folder."""
    return [episode for file in sorted(folder.glob("*.pickle")) for episode in pickle.loads(file.read_bytes())]


def without(rows: Floats, *, reader: bool = False, dense: bool = False, words: bool = False) -> Floats:
    """Return the inputs as they would be without the reader, without vectors, or without the scores of words."""
    rows = rows.copy()
    names = [*(BY_READER if reader else ()), *(VECTORS if dense else ()), *(BY_WORDS if words else ())]
    names += ["reader_dense", "reader_words"] if reader else []
    rows[:, [RANKING.index(name) for name in names]] = np.nan
    column = RANKING.index
    told = (
        ("reader_dense", "reader_words")
        if np.isfinite(rows[:, column("alone")]).any()
        else ("odds_dense", "odds_words")
    )
    weights = np.maximum(np.nan_to_num(rows[:, [column(name) for name in told]]), 0)
    trusted = (weights * np.nan_to_num(rows[:, [column("cosine_z"), column("bm25_z")]])).sum(axis=1)
    rows[:, column("trusted")] = trusted
    rows[np.argsort(-trusted, kind="stable"), column("trusted_rank")] = np.log1p(np.arange(len(rows)))
    return rows


VECTORS = (*DENSE, *LINKED_DENSE, *BY_DENSE, "reader_dense", "odds_dense", "agreement")


def with_late(rows: Floats, episode: RankedEpisode, order: Floats, compared: int) -> Floats:
    """Return the inputs with the late interaction of the `compared` best candidates in the order of the scores."""
    best = compared_rows(order, compared)
    late = np.full(len(rows), np.nan, dtype=np.float32)
    late[best] = episode.late[best]
    return with_late_interaction(rows, late)


def groups_of(episodes: Sequence[RankedEpisode], seed: int = 0) -> list[Group]:
    """Return five groups of each answered episode.

    They have all inputs, no late interaction, no reader, a random selection of inputs, and only the inputs after one
    turn.
    """
    draw = np.random.default_rng(seed)
    answered = [episode for episode in episodes if episode.kind == "answered"]
    counts = Counter(episode.source for episode in answered)
    groups = []
    for episode in answered:
        weight = counts[episode.source] ** -BALANCE * (HOPS_WEIGHT if episode.gold > 1 else 1.0)
        dropped = {name: bool(draw.random() < DROPPED) for name in ("reader", "dense", "words")}
        rows, opening = episode.rows, episode.opening
        unread = without(rows, reader=True)
        some = without(rows, **dropped)
        if draw.random() >= DROPPED:
            some = with_late(some, episode, episode.scores, int(draw.integers(FAST, CAREFUL + 1)))
        odds = rows[:, RANKING.index("odds")]
        late = with_late(rows, episode, episode.scores, CAREFUL)
        variants = (late, rows, with_late(unread, episode, odds, FAST), some)
        groups += [Group(variant, episode.grades, weight) for variant in variants]
        groups.append(Group(opening, episode.grades[: len(opening)], weight))
    return [group for group in groups if 0 < (group.grades > 0).sum() < len(group.grades)]


CAREFUL, FAST = Effort().compared, Effort.named("fast").compared
"""The number of candidates that each effort compares by late interaction."""
DROPPED = 0.4
"""The probability that the reader, the vectors, the scores of words or late interaction are left out of a group."""
BALANCE = 0.5
"""How much small sets count compared with large ones. With 0, each question counts the same. With 1, each set does."""
HOPS_WEIGHT = 1.5
"""The weight of a question that needs several documents."""
PARAMETERS = {
    "objective": "lambdarank",
    "lambdarank_truncation_level": 8,
    "label_gain": [0, 2, 3],
    "num_leaves": 16,
    "learning_rate": 0.05,
    "min_data_in_leaf": 60,
    "feature_fraction": 0.4,
    "bagging_fraction": 0.7,
    "bagging_freq": 1,
    "lambda_l2": 5.0,
    "max_bin": 63,
    "num_threads": 1,
    "verbosity": -1,
    "seed": 0,
    "deterministic": True,
}
ROUNDS = 120
RISING = (
    "odds", "odds_gap", "combined", "combined_gap", "read", "read_gap", "read_z", "alone", "alone_gap", "alone_z",
    "cosine", "cosine_z", "cosine_gap", "found_dense", "found_sparse", "asked_score", "found_score", "trusted", "bm25",
    "bm25_z", "coverage", "coverage_z", "clause_cosine", "clause_cosine_gap", "clause_coverage", "best_sentence",
    "pairs", "title_meaning", "late", "late_gap", "late_z",
)  # fmt: skip
"""Inputs that never lower a score when they rise."""
FALLING = (
    "odds_rank", "combined_rank", "read_rank", "alone_rank", "cosine_rank", "found_dense_rank", "found_sparse_rank",
    "asked_place", "place", "trusted_rank", "clause_rank", "late_rank",
)  # fmt: skip
"""Inputs that never raise a score when they rise."""
MONOTONE = [int(name in RISING) - int(name in FALLING) for name in RANKING]


def fit_trees(groups: Sequence[Group], rounds: int = ROUNDS, **parameters: object) -> Trees:
    """Return trees that are trained to rank these groups."""
    import lightgbm

    data = lightgbm.Dataset(
        np.concatenate([group.rows for group in groups]),
        np.concatenate([group.grades for group in groups]),
        group=[len(group.grades) for group in groups],
        weight=np.repeat([group.weight for group in groups], [len(group.grades) for group in groups]),
        feature_name=list(RANKING),
    )
    booster = lightgbm.train({**PARAMETERS, "monotone_constraints": MONOTONE, **parameters}, data, rounds)
    return as_arrays(booster.dump_model()["tree_info"])


def as_arrays(trees: Sequence[dict[str, Any]]) -> Trees:
    """Return the trees in LightGBM's dump as arrays."""
    flat = [_flat(tree["tree_structure"]) for tree in trees]
    nodes, depth = max(len(tree) for tree, _ in flat), max(depth for _, depth in flat)
    shape = (len(flat), nodes)
    feature, left, right = (np.zeros(shape, dtype=np.int16) for _ in range(3))
    missing_left, threshold, value = (
        np.zeros(shape, dtype=np.int8),
        np.zeros(shape, np.float32),
        np.zeros(shape, np.float32),
    )
    for row, (tree, _) in enumerate(flat):
        for node, parts in enumerate(tree):
            feature[row, node], threshold[row, node], left[row, node], right[row, node] = parts[:4]
            missing_left[row, node], value[row, node] = parts[4:]
    return Trees(feature, threshold, left, right, missing_left, value, depth)


LARGEST = 1e30
"""The largest stored threshold. LightGBM uses larger ones to separate known from missing values."""


def _flat(root: dict[str, Any]) -> tuple[list[tuple[int, float, int, int, int, float]], int]:
    """Return the nodes of a tree as (feature, threshold, left, right, missing left, value), and its depth."""
    nodes: list[Any] = []

    def add(node: dict[str, Any]) -> tuple[int, int]:
        number = len(nodes)
        nodes.append(None)
        if "leaf_value" in node and "split_feature" not in node:
            nodes[number] = (0, 0.0, number, number, 1, node["leaf_value"])
            return number, 0
        left, left_depth = add(node["left_child"])
        right, right_depth = add(node["right_child"])
        # Without missing values in training, LightGBM takes a missing value for 0.
        missing_left = node["default_left"] if node["missing_type"] == "NaN" else node["threshold"] >= 0
        # The next lower float32, so that a float32 input goes where its float64 went.
        threshold = np.float32(np.clip(node["threshold"], -LARGEST, LARGEST))
        if float(threshold) > node["threshold"]:
            threshold = np.nextafter(threshold, np.float32(-np.inf))
        nodes[number] = (node["split_feature"], threshold, left, right, int(missing_left), 0.0)
        return number, 1 + max(left_depth, right_depth)

    _, depth = add(root)
    return nodes, depth


def recall(episode: RankedEpisode, scores: Floats) -> float:
    """Return recall@5 of an episode's documents in the order of `scores`, shape (n,)."""
    gold = {item for item, grade in zip(episode.documents, episode.grades, strict=True) if grade == 2}
    order = [episode.documents[row] for row in np.argsort(-scores, kind="stable")]
    return len(gold & set(list(dict.fromkeys(order))[:CUTOFF])) / episode.gold


def ranked_rows(trees: Trees, episode: RankedEpisode, *, read: bool) -> Floats:
    """Return the inputs of the final ranking by these trees. They choose the candidates for late interaction."""
    rows = episode.rows if read else without(episode.rows, reader=True)
    return with_late(rows, episode, trees(rows), CAREFUL if read else FAST)


def ranked_recall(trees: Trees, episode: RankedEpisode, *, read: bool = True) -> float:
    """Return recall@5 of the final ranking by these trees, with the reader or without it."""
    return recall(episode, sigmoid(trees(ranked_rows(trees, episode, read=read))) * episode.repeats)


FOLDS = 4


def fold_of(domain: str) -> int:
    """Return the fold of a domain. All questions of a domain are in the same fold."""
    return crc32(domain.encode()) % FOLDS


def folds_of(episodes: Sequence[RankedEpisode]) -> dict[int, Trees]:
    """Return the trees for each fold. They are trained on the domains of all other folds."""
    return {fold: fit_trees(groups_of([e for e in episodes if fold_of(e.domain) != fold])) for fold in range(FOLDS)}


def compare(folder: Path, others: Sequence[Path]) -> None:
    """Print recall@5 of each domain by trees that were not trained on it, and by the present ranking."""
    episodes = [episode for episode in load_episodes(folder) if episode.kind == "answered"]
    foreign = [episode for other in others for episode in load_episodes(other) if episode.kind == "answered"]
    print(f"{'set':29}{'n':>5}   BM25  dense hybrid  agent   fast  trees   seen   trees less best one-shot")
    rows = []
    for fold, trees in folds_of(episodes).items():
        rows += _compared(trees, [episode for episode in episodes if fold_of(episode.domain) == fold], "")
    if foreign:
        rows += _compared(fit_trees(groups_of(episodes)), foreign, " dev")
    mean = np.mean(np.array(rows), axis=0)
    print(f"{'mean':34}" + "".join(f"{value:7.3f}" for value in mean))


def export(folder: Path, out: Path) -> None:
    """Write the shipped weights with new trees, and with a calibration that fits them."""
    scorer = Scorer.shipped()
    episodes = load_episodes(folder)
    answered = [episode for episode in episodes if episode.kind == "answered"]
    folds = folds_of(answered)
    slope, constant = _probability_scale(folds, answered)
    folds = {fold: scaled(trees, slope, constant) for fold, trees in folds.items()}
    judged = [episode for episode in episodes if not episode.domain.startswith(GENERATED)]
    assessed = [assessed_episode(folds[fold_of(episode.domain)], episode) for episode in judged]
    domains = [episode.domain for episode in judged]
    calibration = fit_calibration(balanced(assessed, domains))
    _show_confidence(calibration, assessed, domains)
    stopping = _fit_stopping(folds, answered)
    trees = scaled(fit_trees(groups_of(answered)), slope, constant)
    notes = {"ranked_questions": str(len(answered)), "ranked_sets": str(len({episode.source for episode in answered}))}
    calibration = replace(calibration, stopping=stopping)
    Scorer.of(scorer.networks, calibration, scorer.head, trees).save(out, notes)
    print(f"{out} written: {len(trees.feature)} trees, {len(answered)} questions, slope {slope:.2f}")


def _show_confidence(
    calibration: ScoreCalibration, episodes: Sequence[AssessedEpisode], domains: Sequence[str]
) -> None:
    """Print the AUC and the calibration error of the confidence in each domain.

    The trees were not trained on the domain.
    """
    print("confidence        n    AUC   error   (with the reader)")
    for domain in [*sorted(set(domains)), "all"]:
        mine = [e for e, name in zip(episodes, domains, strict=True) if domain in {name, "all"}]
        # As many without an answer as with one.
        without_answer = [episode for episode in mine if not episode.answerable]
        times = round(len(mine) / max(1, len(without_answer))) - 1
        mine += without_answer * max(0, times - 1)
        chances = [calibration.confidence(episode.features) for episode in mine]
        answers = [float(episode.answerable) for episode in mine]
        if 0 < sum(answers) < len(answers):
            error = expected_calibration_error(chances, answers)
            print(f"{domain:22}{len(mine):5} {roc_auc(chances, answers):6.3f} {error:6.3f}")


def scaled(trees: Trees, slope: float, constant: float) -> Trees:
    """Return trees whose score is `slope` times the score of these trees, plus `constant`."""
    return replace(trees, value=(trees.value * slope + constant / len(trees.value)).astype(np.float32))


def _probability_scale(folds: Mapping[int, Trees], episodes: Sequence[RankedEpisode]) -> tuple[float, float]:
    """Return the slope and the constant that turn the trees' scores into log-odds (Platt, 1999)."""
    scores = []
    for episode in episodes:
        trees = folds[fold_of(episode.domain)]
        scores.append(trees(ranked_rows(trees, episode, read=True)))
    labels = np.concatenate([episode.grades > 0 for episode in episodes])
    rows = np.concatenate(scores)[:, None]
    constant, slope = logistic_regression(rows, labels, np.ones(len(rows), dtype=np.float32)).tolist()
    return slope, constant


def evidence_of(episode: RankedEpisode, rows: Floats, scores: Floats) -> Floats:
    """Return the features of an episode's evidence, given the inputs of the ranking and the scores, shape (n,)."""
    column = {name: rows[:, number] for number, name in enumerate(RANKING)}
    return Evidence(
        weight=episode.weight,
        in_name=episode.in_name,
        coverage=episode.coverage,
        scores=scores,
        cosines=column["cosine"],
        words=column["bm25"],
        late=column["late"],
        read=np.fmax(column["read"], column["alone"]),
        chunks=episode.chunks,
    ).features()


def assessed_episode(trees: Trees, episode: RankedEpisode) -> AssessedEpisode:
    """Return the data of an episode from which the calibration learns."""
    inputs, unread = (ranked_rows(trees, episode, read=read) for read in (True, False))
    scores, unread_scores = (sigmoid(trees(rows)) * episode.repeats for rows in (inputs, unread))
    best: dict[str, int] = {}
    for row in np.argsort(-scores, kind="stable").tolist():
        best.setdefault(episode.documents[row], row)
    rows = list(best.values())[:RANKED]
    return AssessedEpisode(
        answerable=episode.kind == "answered",
        features=evidence_of(episode, inputs, scores),
        unread=evidence_of(episode, unread, unread_scores),
        scores=scores[rows],
        labels=(episode.grades[rows] > 0).astype(np.float32),
    )


def balanced(episodes: Sequence[AssessedEpisode], domains: Sequence[str]) -> list[AssessedEpisode]:
    """Return the episodes with new weights. In each domain, answerable and unanswerable ones have the same total
    weight.
    """
    counts = Counter((domain, episode.answerable) for domain, episode in zip(domains, episodes, strict=True))
    sizes = Counter(domains)
    return [
        replace(episode, weight=sizes[domain] / (2 * counts[domain, episode.answerable]))
        for domain, episode in zip(domains, episodes, strict=True)
    ]


def stopping_of(trees: Trees, episode: RankedEpisode, *, read: bool) -> tuple[Floats, float]:
    """Return the features after the first turn, and the recall of a final ranking at that point."""
    rows = episode.opening if read else without(episode.opening, reader=True)
    repeats = episode.repeats[: len(rows)]
    scores = sigmoid(trees(rows)) * repeats
    ranked = trees(with_late(rows, episode, scores, CAREFUL if read else FAST))
    named = float(episode.weight[episode.in_name].sum())
    best: dict[str, float] = {}
    for row in np.argsort(-scores, kind="stable").tolist():
        best.setdefault(episode.documents[row], float(scores[row]))
    return stopping_features(rows, list(best.values()), named), recall(episode, sigmoid(ranked) * repeats)


def _fit_stopping(folds: Mapping[int, Trees], episodes: Sequence[RankedEpisode]) -> Floats:
    """Return the logistic models that predict whether the first turn is enough, without the reader and with it."""
    coefficients = []
    for read in (False, True):
        parts = [stopping_of(folds[fold_of(e.domain)], e, read=read) for e in episodes]
        later = [ranked_recall(folds[fold_of(e.domain)], e, read=read) for e in episodes]
        rows = np.nan_to_num(np.stack([features for features, _ in parts]))
        labels = np.array([now >= end for (_, now), end in zip(parts, later, strict=True)])
        coefficients.append(logistic_regression(rows, labels, np.ones(len(rows), dtype=np.float32)))
        likely = rows[:, STOPPING.index("best")] > log_odds(np.array([LIKELY]))
        chance = np.where(likely, sigmoid(coefficients[-1][0] + rows @ coefficients[-1][1:]), 0)
        change = np.array([now - end for (_, now), end in zip(parts, later, strict=True)])
        print(f"the first turn suffices {'with' if read else 'without'} the reader: {labels.mean():.3f}")
        _show_stopping(chance, change, np.array([episode.domain in CHAINS for episode in episodes]))
    return np.stack(coefficients)


def _show_stopping(chance: Floats, change: Floats, chains: NDArray[np.bool_]) -> None:
    """Print what stopping early would save and cost at several thresholds, separately for questions of several hops."""
    for threshold in (0.85, 0.9, 0.93, 0.95, 0.97):
        stops = chance >= threshold
        cells = [
            f"{kind} {stops[mask].mean():.2f} stopped, recall {(stops * change)[mask].mean():+.4f}"
            for kind, mask in (("chains", chains), ("others", ~chains))
        ]
        print(f"  from {threshold:.2f}: " + "; ".join(cells))


GENERATED = "coded-"
"""The beginning of the names of generated sets. Without its gold documents, such a set still has texts that differ from
them in a figure or a code alone. Therefore these sets do not count in the calibration.
"""
CHAINS = ("2wiki", "hotpotqa", "musique", "newsfacts")
"""The sets whose questions need several documents."""


def _compared(trees: Trees, episodes: Sequence[RankedEpisode], label: str) -> list[list[float]]:
    table = []
    for source in sorted({episode.source for episode in episodes}):
        mine = [episode for episode in episodes if episode.source == source]
        figures = {name: np.mean([e.one_shot[name] for e in mine]) for name in ("bm25", "dense", "hybrid")}
        figures["agent"] = np.mean([recall(e, e.scores) for e in mine])
        figures["fast"] = np.mean([ranked_recall(trees, e, read=False) for e in mine])
        figures["trees"] = np.mean([ranked_recall(trees, e) for e in mine])
        figures["seen"] = np.mean(
            [len({d for d, g in zip(e.documents, e.grades, strict=True) if g == 2}) / e.gold for e in mine]
        )
        figures["gain"] = figures["trees"] - max(figures[name] for name in ("bm25", "dense", "hybrid"))
        table.append([float(value) for value in figures.values()])
        print(f"{source + label:24}{len(mine):5}" + "".join(f"{value:7.3f}" for value in table[-1]), flush=True)
    return table


def main() -> int:
    """Run the step that the command line names."""
    options = _options()
    if options.step == "collect":
        _collect_all(options)
    elif options.step == "compare":
        compare(options.episodes, options.dev)
    else:
        export(options.episodes, options.out)
    return 0


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    steps = parser.add_subparsers(dest="step", required=True)
    step = steps.add_parser("collect")
    step.add_argument("--data", type=Path, action="append", required=True, help="folder of sets; may be repeated")
    step.add_argument("--split", default="train", choices=("train", "dev"))
    step.add_argument("--sets", help="names, comma-separated; by default all with train questions")
    step.add_argument("--embedder", default="static,minilm")
    step.add_argument("--reader", type=Path, help="another reader than the shipped one")
    step.add_argument("--questions", type=int, default=80, help="answered questions a set and embedder at most")
    step.add_argument("--processes", type=int, default=2)
    step.add_argument("--out", type=Path, required=True, help="folder of episodes")
    step = steps.add_parser("compare")
    step.add_argument("episodes", type=Path)
    step.add_argument("--dev", type=Path, action="append", default=[], help="episodes that are only measured")
    step = steps.add_parser("export")
    step.add_argument("episodes", type=Path)
    step.add_argument("--out", type=Path, required=True, help="file of weights")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
