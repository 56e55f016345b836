"""A question whose words the corpus lacks is weighed towards vectors; any other keeps the weights of the corpus."""

import math
from collections.abc import Sequence

import numpy as np
import pytest

from context_agent.retrieval.embedders.minilm import MiniLMEmbedder
from context_agent.retrieval.fusion import query_weights
from context_agent.retrieval.memory import MemoryCorpus
from context_agent.retrieval.retriever import DENSE, SPARSE, KnowsWords
from context_agent.types import Document

CODES = {
    "PGSQL": "PostgreSQL",
    "K8S": "Kubernetes",
    "RHEL": "Red Hat Linux",
    "JDK": "Java",
    "VSC": "Visual Studio Code",
}
SUBJECTS = {
    "Memory": "The working set is kept in one arena, which lowers the peak.",
    "Rights": "A grant expires unless it is renewed, and a refusal names the missing right.",
    "Start": "State is read lazily, so that a cold start takes less time.",
    "Removed": "Settings that were deprecated for two years are gone.",
}
NOTES = [
    Document(f"{code}-{version}-{subject}", f"{subject}\n\n{text}", f"{code} 2024.{version}")
    for code in CODES
    for version in range(4)
    for subject, text in SUBJECTS.items()
]
LOGS = [
    Document(
        f"log-{number}", f"worker-{number % 16} lost lease {1000 + number} after {number % 7} retries, code E{number}"
    )
    for number in range(80)
]


def weights_of(corpus: MemoryCorpus, query: str) -> dict[str, float]:
    hits = {retriever.name: retriever.search(query, 25) for retriever in corpus.retrievers}
    return query_weights(corpus.retrievers, corpus.calibration.weights, query, hits)


def share_of_dense(corpus: MemoryCorpus, queries: Sequence[str]) -> float:
    weights = [weights_of(corpus, query) for query in queries]
    return float(np.mean([weight[DENSE] / (weight[DENSE] + weight[SPARSE]) for weight in weights]))


@pytest.fixture(scope="module")
def notes() -> MemoryCorpus:
    return MemoryCorpus(NOTES, embedder=MiniLMEmbedder())


@pytest.fixture(scope="module")
def logs() -> MemoryCorpus:
    return MemoryCorpus(LOGS)


NAMING = [f"Does {name} still eat so much RAM?" for name in CODES.values()]


def test_weights_differ_between_a_corpus_where_vectors_are_better_and_one_where_words_are(
    notes: MemoryCorpus, logs: MemoryCorpus
) -> None:
    by_words = share_of_dense(logs, [f"which lease was lost with code E{number}" for number in range(20, 30)])
    assert by_words <= 0.5
    assert share_of_dense(notes, NAMING) > by_words + 0.2


def test_fused_search_follows_the_vectors_that_know_the_name_behind_a_code(notes: MemoryCorpus) -> None:
    first = [[hit.chunk.title.split()[0] for hit in notes.search(query, k=4)] for query in NAMING]
    right = [sum(title == code for title in titles) / 4 for titles, code in zip(first, CODES, strict=True)]
    words = next(retriever for retriever in notes.retrievers if retriever.name == SPARSE)
    by_words = [
        sum(item.startswith(code) for item, _ in words.search(query, 4)) / 4
        for query, code in zip(NAMING, CODES, strict=True)
    ]
    assert np.mean(right) > np.mean(by_words) + 0.3


def test_a_question_in_the_words_of_the_corpus_keeps_its_weights(notes: MemoryCorpus) -> None:
    weights = weights_of(notes, "a grant expires unless it is renewed")
    assert weights == dict(notes.calibration.weights)


class Words:
    """A retriever by words with given scores and share of unknown words."""

    name = SPARSE

    def __init__(self, unknown: float) -> None:
        self.unknown = unknown

    def search(self, query: str, k: int, where: object = None) -> list[tuple[str, float]]:
        return []

    def unknown_share(self, query: str) -> float:
        return self.unknown


def sparse_weight(unknown: float, scores: Sequence[float]) -> float:
    hits = {SPARSE: [(str(rank), score) for rank, score in enumerate(scores)]}
    return query_weights([Words(unknown)], {}, "x", hits)[SPARSE]


def test_words_count_less_the_more_of_the_question_is_unknown() -> None:
    weights = [sparse_weight(unknown, [1.0] * 5) for unknown in (0.0, 0.3, 0.5, 0.8, 1.0)]
    assert weights[:2] == [1.0, 1.0]
    assert weights[1:] == sorted(weights[1:], reverse=True)
    assert 0 < weights[-1] < weights[-2] < weights[-3] < 1
    assert sparse_weight(0.55, [1.0] * 5) == pytest.approx(1 / math.e)


def test_a_hit_that_stands_out_by_the_known_words_keeps_the_weight_of_words() -> None:
    assert sparse_weight(0.9, [9.0, 3.0, 3.0, 2.0, 2.0]) == 1.0
    assert sparse_weight(0.9, [9.0]) == 1.0
    assert sparse_weight(0.9, [3.0, 3.0, 3.0, 2.9, 2.9]) < 1.0


@pytest.mark.parametrize(
    ("scores", "stands_out"),
    [
        ([10.0, 9.0, 9.0, 9.0, 7.0], True),
        ([10.0, 9.0, 9.0, 9.0, 7.1], False),
        ([10.0, 9.0, 9.0, 9.0, 9.0, 1.0], False),
        ([10.0, 7.0], True),
        ([10.0, 9.0], False),
        ([0.9, 0.1], True),
        ([0.0, 0.0], False),
    ],
)
def test_a_hit_stands_out_if_the_fifth_or_the_last_has_seven_tenths_of_its_score(
    scores: list[float], stands_out: bool
) -> None:
    assert (sparse_weight(0.9, scores) == 1.0) == stands_out


def test_no_hits_and_a_retriever_of_weight_zero_are_fine() -> None:
    assert sparse_weight(0.9, []) < 1.0
    assert query_weights([Words(1.0)], {SPARSE: 0.0}, "x", {SPARSE: []}) == {SPARSE: 0.0}


def test_the_unknown_share_is_that_of_the_weight_of_unknown_words(logs: MemoryCorpus) -> None:
    words = next(retriever for retriever in logs.retrievers if isinstance(retriever, KnowsWords))
    assert words.unknown_share("worker lease") == 0.0
    assert words.unknown_share("zebra") == 1.0
    assert 0.5 < words.unknown_share("worker zebra") < 1.0
    assert words.unknown_share("") == words.unknown_share("?!") == 0.0


def test_the_same_question_gets_the_same_weights(notes: MemoryCorpus) -> None:
    assert weights_of(notes, NAMING[0]) == weights_of(notes, NAMING[0])


PLANTS = [
    Document("presse", "Die Presse verliert Druck, sobald das Ventil am Zylinder klemmt."),
    Document("kessel", "Der Kessel wird im Oktober von der Firma Brandl geprüft."),
    Document("pumpe", "Die Pumpe im Keller läuft, wenn der Schwimmer oben steht."),
]


def test_vectors_that_do_not_know_the_language_count_little_and_do_not_decide_about_unknown_words() -> None:
    corpus = MemoryCorpus(PLANTS, embedder="static")
    question = "Wieso brummt nachts eigentlich unsere Heizungsanlage, Ventil?"
    words = next(retriever for retriever in corpus.retrievers if isinstance(retriever, KnowsWords))
    assert words.unknown_share(question) > 0.5
    assert weights_of(corpus, question) == {DENSE: 0.2, SPARSE: 1.0}
    assert query_weights(corpus.retrievers, {DENSE: 0.5}, question, {}) == {DENSE: 0.1, SPARSE: 1.0}


def test_words_that_a_text_has_as_one_are_known() -> None:
    corpus = MemoryCorpus([Document("a", "kind: PodDisruptionBudget"), Document("b", "kind: Service")])
    words = next(retriever for retriever in corpus.retrievers if isinstance(retriever, KnowsWords))
    assert words.unknown_share("pod disruption budget") == 0 < words.unknown_share("pod interruption budget")
