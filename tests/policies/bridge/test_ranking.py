"""The final ranking: its trees, what they see, and when the first turn suffices."""

from __future__ import annotations

import dataclasses
import math
import re
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from context_agent import BridgePolicy, Document, MemoryCorpus, SearchAgent
from context_agent.errors import ConfigError
from context_agent.policies.bridge import Effort, Scorer
from context_agent.policies.bridge.candidates import (
    AnalyzedPassage,
    ChunkCandidate,
    Finding,
    Floats,
    Notes,
    WordWeights,
)
from context_agent.policies.bridge.features import DIRECT
from context_agent.policies.bridge.links import EXPANSION, LINK_FEATURES
from context_agent.policies.bridge.networks import Network
from context_agent.policies.bridge.ranking import (
    BY_LATE,
    BY_READER,
    RANKING,
    Judgments,
    Trees,
    compared_rows,
    correlation,
    families,
    identifier_odds,
    late_scores,
    ranking_features,
    with_late_interaction,
    with_reranker,
)
from context_agent.policies.bridge.score_calibration import STOPPING, ScoreCalibration, log_odds
from context_agent.pruning.view import ActionTaken

STUMP = Trees(
    feature=np.array([[1, 0, 0], [0, 0, 0]], np.int16),
    threshold=np.array([[0.5, 0, 0], [2, 0, 0]], np.float32),
    left=np.array([[1, 1, 2], [1, 1, 2]], np.int16),
    right=np.array([[2, 1, 2], [2, 1, 2]], np.int16),
    missing_left=np.array([[1, 1, 1], [0, 1, 1]], np.int8),
    value=np.array([[0, 1, 10], [0, 100, 1000]], np.float32),
    depth=1,
)


def column(rows: Floats, name: str) -> Floats:
    return rows[:, RANKING.index(name)]


def notes_of(question: str, *passages: tuple[str, str], findings: list[Finding] | None = None) -> Notes:
    corpus = MemoryCorpus([Document(str(number), text, title) for number, (title, text) in enumerate(passages)])
    notes = Notes.of(question, WordWeights(corpus))
    for number, (title, text) in enumerate(passages):
        finding = findings[number] if findings else None
        notes.add(ChunkCandidate(f"{number}_0", str(number), AnalyzedPassage(title, text), 10, 0, finding=finding))
    return notes


def features(notes: Notes, odds: Floats | None = None, alone: Floats | None = None, **known: Floats) -> Floats:
    n = len(notes)
    unknown = np.full(n, np.nan, np.float32)
    rows = np.zeros((n, len(DIRECT + LINK_FEATURES)), np.float32)
    rows[:, DIRECT.index("bm25")] = known.get("words", np.zeros(n, np.float32))
    said = Judgments(
        np.zeros(n, np.float32) if odds is None else odds, unknown, unknown, unknown if alone is None else alone
    )
    cosines = known.get("cosines", unknown)
    return ranking_features(notes, rows, cosines, said, corpus_size=n)


def test_a_row_follows_the_thresholds_and_a_missing_input_its_own_way() -> None:
    rows = np.array([[0, 0], [0, 1], [3, 0], [np.nan, np.nan]], np.float32)
    assert STUMP(rows).tolist() == [1 + 100, 10 + 100, 1 + 1000, 1 + 1000]


@given(st.integers(0, 2**32 - 1))
def test_trees_equal_a_walk_node_by_node(seed: int) -> None:
    draw = np.random.default_rng(seed)
    trees = random_trees(draw)
    rows = draw.normal(size=(5, 4)).astype(np.float32)
    rows[draw.random(rows.shape) < 0.2] = np.nan
    walked = [sum(walk(trees, tree, row) for tree in range(len(trees.feature))) for row in rows]
    np.testing.assert_allclose(trees(rows), walked, rtol=1e-5, atol=1e-5)


def random_trees(draw: np.random.Generator) -> Trees:
    """Complete trees of depth 3 over 4 inputs."""
    shape = (6, 15)
    number = np.arange(15)
    inner = number < 7
    left, right = (np.where(inner, 2 * number + side, number) for side in (1, 2))
    return Trees(
        feature=draw.integers(0, 4, shape).astype(np.int16),
        threshold=draw.normal(size=shape).astype(np.float32),
        left=np.broadcast_to(left, shape).astype(np.int16),
        right=np.broadcast_to(right, shape).astype(np.int16),
        missing_left=draw.integers(0, 2, shape).astype(np.int8),
        value=draw.normal(size=shape).astype(np.float32) * ~inner,
        depth=3,
    )


def walk(trees: Trees, tree: int, row: Floats) -> float:
    node = 0
    while trees.left[tree, node] != node:
        value = row[trees.feature[tree, node]]
        goes_left = trees.missing_left[tree, node] if math.isnan(value) else value <= trees.threshold[tree, node]
        node = trees.left[tree, node] if goes_left else trees.right[tree, node]
    return float(trees.value[tree, node])


@pytest.mark.parametrize(
    ("name", "value"),
    [("feature", 9), ("feature", -1), ("left", 3), ("right", -1), ("value", np.inf), ("depth", 5000), ("depth", 0)],
)
def test_trees_that_do_not_fit_are_refused(name: str, value: float) -> None:
    tensors = STUMP.tensors()
    damaged = np.array(tensors[name], copy=True)
    damaged[(0,) * damaged.ndim] = value
    with pytest.raises(ValueError, match="outside of its range"):
        Trees.of({**tensors, name: damaged}, inputs=2)
    with pytest.raises(ValueError, match="have different shapes"):
        Trees.of({**tensors, "left": tensors["left"][:1]}, inputs=2)


def test_the_ranker_survives_a_file_and_a_damaged_one_is_refused(tmp_path: Path) -> None:
    shipped = Scorer.shipped()
    assert shipped.ranker is not None
    shipped.save(tmp_path / "weights")
    loaded = Scorer.load(tmp_path / "weights")
    assert loaded.digest == shipped.digest
    assert loaded.ranker is not None
    rows = np.random.default_rng(0).normal(size=(9, len(RANKING))).astype(np.float32)
    np.testing.assert_array_equal(loaded.ranker(rows), shipped.ranker(rows))
    broken = dataclasses.replace(shipped.ranker, left=shipped.ranker.left + np.int16(5000))
    dataclasses.replace(shipped, ranker=broken).save(tmp_path / "broken")
    with pytest.raises(ConfigError, match="is too large, or has a number outside of its range"):
        Scorer.load(tmp_path / "broken")


def test_weights_without_trees_rank_by_the_networks(tmp_path: Path) -> None:
    shipped = Scorer.shipped()
    Scorer.of(shipped.networks, shipped.calibration, shipped.head).save(tmp_path / "weights")
    loaded = Scorer.load(tmp_path / "weights")
    assert loaded.ranker is None
    corpus = MemoryCorpus([Document("1", "The office closes at six on Fridays.", "hours.md")])
    assert SearchAgent(corpus, BridgePolicy(loaded)).search("When does the office close on Fridays?").documents


def test_scores_are_relative_to_the_search_that_found_a_candidate() -> None:
    findings = [Finding(0, 0, 1.0, 0.9, 8.0), Finding(0, 1, 0.5, 0.3, 4.0), Finding(3, 0, 0.2, math.nan, 2.0)]
    rows = features(notes_of("what?", ("a", "x"), ("b", "y"), ("c", "z"), findings=findings))
    assert column(rows, "found_sparse").tolist() == [1.0, 0.5, 1.0]
    assert column(rows, "found_dense")[0] == 0
    assert column(rows, "found_dense")[1] < 0
    assert np.isnan(column(rows, "found_dense")[2])
    assert column(rows, "asked").tolist() == [1, 1, 0]
    assert np.isnan(column(rows, "asked_place")[2])


SHOP = ("Refunds", "Refunds take five days."), ("Shipping", "Shipping takes five days.")
MONEY = "How do I get my money back?"


def test_late_interaction_compares_only_the_best_candidates() -> None:
    notes = notes_of(MONEY, SHOP[1], SHOP[1], SHOP[0])
    rows = compared_rows(np.float32([1, 3, 2]), 2)
    assert rows.tolist() == [1, 2]
    late = late_scores(notes, rows)
    assert np.isnan(late[0])
    assert late[2] > late[1]
    assert len(compared_rows(np.float32([1, 3, 2]), 16)) == 3


def test_late_interaction_is_an_input_of_the_trees_beside_those_that_do_not_change() -> None:
    notes = notes_of(MONEY, *[SHOP[1]] * 4, SHOP[0])
    inputs = features(notes, cosines=np.float32([1, 2, 3, 4, 5]), words=np.float32([5, 4, 3, 2, 1]))
    late = np.float32([0.1, 0.2, 0.3, 0.4, np.nan])
    assert all(np.isnan(column(inputs, name)).all() for name in BY_LATE)
    rows = with_late_interaction(inputs, late)
    others = [number for number, name in enumerate(RANKING) if name not in BY_LATE]
    np.testing.assert_array_equal(rows[:, others], inputs[:, others])
    np.testing.assert_array_equal(column(rows, "late"), late)
    assert column(rows, "late_gap")[:4] == pytest.approx([-0.3, -0.2, -0.1, 0], abs=1e-6)
    assert column(rows, "late_rank")[3] == 0
    assert column(rows, "late_best") == pytest.approx([0.4] * 5)
    assert column(rows, "late_dense")[0] == pytest.approx(1)
    assert column(rows, "late_words")[0] == pytest.approx(-1)
    assert np.isnan(column(rows, "late_gap")[4])
    assert np.isnan(column(rows, "late_rank")[4])


@pytest.mark.parametrize(
    ("effort", "question", "compared"),
    [
        ("careful", "How long does shipping take?", [16]),
        ("fast", "How long does shipping take?", [10]),
        ("careful", "How many days does shipping take?", [16, len(SHOP) + 4]),
        ("fast", "How many days does shipping take?", [10]),
    ],
)
def test_late_interaction_orders_the_ranking(
    effort: str, question: str, compared: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    sizes: list[int] = []

    def preferring_shipping(question: str, texts: Sequence[str], *, longest: int) -> Floats:
        sizes.append(len(texts))
        return np.float32([0.9 if "Shipping" in text else 0.1 for text in texts])

    others = [(f"Page {number}", f"Refunds take {number} days.") for number in range(20)]
    corpus = MemoryCorpus([Document(title.lower(), text, title) for title, text in (*SHOP, *others)])
    shipped = Scorer.shipped()
    by_late = dataclasses.replace(STUMP, feature=np.full((2, 3), RANKING.index("late"), np.int16))
    monkeypatch.setattr("context_agent.policies.bridge.ranking.late_interaction", preferring_shipping)
    agent = SearchAgent(corpus, BridgePolicy(dataclasses.replace(shipped, ranker=by_late), effort=effort))
    assert agent.search(question).documents[0].id == "shipping"
    assert sizes == compared


def test_the_retriever_that_orders_as_the_reader_does_is_trusted() -> None:
    notes = notes_of("what?", *[(str(number), "text") for number in range(6)])
    reader = np.array([3, 2, 1, -1, -2, -3], np.float32)
    rows = features(notes, alone=reader, cosines=reader / 10, words=-reader)
    assert column(rows, "reader_dense")[0] == pytest.approx(1)
    assert column(rows, "reader_words")[0] == pytest.approx(-1)
    assert np.isnan(column(features(notes, cosines=reader), "reader_dense")).all()


def test_without_a_reader_its_inputs_are_missing_and_the_others_are_not() -> None:
    rows = features(notes_of("what?", ("a", "x"), ("b", "y")))
    missing = {name for name in RANKING if np.isnan(column(rows, name)).all()}
    assert set(BY_READER) <= missing
    assert not missing & {"odds", "coverage", "title_meaning", "family_size", "size"}


@given(st.lists(st.floats(-(2.0**60), 2.0**60, width=32), min_size=0, max_size=9))
def test_a_correlation_is_between_minus_one_and_one_or_unknown(values: list[float]) -> None:
    row = np.array(values, np.float32)
    result = correlation(row, row[::-1])
    assert math.isnan(result) or -1.0001 <= result <= 1.0001


def test_titles_that_differ_in_a_number_or_one_word_are_a_family() -> None:
    titles = ["krsn q1 2024 results", "krsn q2 2024 results", "artist gid redirect", "label gid redirect", "metformin"]
    names = families([*titles, "omeprazole", ""])
    assert names[0] == names[1]
    assert names[2] == names[3]
    assert len(set(names[2:])) == 4


@pytest.mark.parametrize(
    ("question", "many"),
    [
        ("In which versions was the flag changed?", True),
        ("margin across all quarters", True),
        ("Which medicines lower vitamin B12?", True),
        ("Who wrote the letter?", False),
        ("What is the capital of Norway?", False),
    ],
)
def test_a_question_for_several_documents_is_recognized(question: str, many: bool) -> None:
    assert notes_of(question, ("a", "x")).question.asks_many is many


def test_siblings_of_one_page_are_all_ranked_if_the_question_asks_for_all() -> None:
    models = ("HL-210", "HL-220", "HL-240", "HL-310", "HL-410")
    text = "Ribbons of this printer may be wound either way. Clean the head with alcohol after each ribbon."
    documents = [Document(f"r{model}", text, f"Halden {model}: Ribbon") for model in models]
    documents += [Document(f"d{model}", "The display shows the speed.", f"Halden {model}: Display") for model in models]
    documents += [Document(f"n{number}", f"Note {number} about paper.", f"Note {number}") for number in range(20)]
    result = SearchAgent(MemoryCorpus(documents)).search("Which Halden printers take ribbons wound either way?")
    assert {document.id for document in result.documents[:5]} == {f"r{model}" for model in models}


def test_an_easy_question_ends_after_the_first_turn_and_a_chain_does_not() -> None:
    calibration = ScoreCalibration(np.zeros((2, 13), np.float32), np.array([0, 0, 1], np.float32), stopping(9.0))
    assert calibration.suffices(stop_features(best=0.9)) > 0.99
    assert calibration.suffices(stop_features(best=0.2)) == 0, "nothing likely was found"
    unknown = dataclasses.replace(calibration, stopping=None)
    assert unknown.suffices(stop_features(best=0.9)) == 0
    documents = [
        Document(str(number), f"Hall {number} closes at {number % 12} on Fridays.", f"Hall {number}")
        for number in range(60)
    ]
    corpus = MemoryCorpus(documents)
    question = "When does hall 17 close on Fridays?"
    quick = SearchAgent(corpus, BridgePolicy(effort=Effort(sufficient=0.0))).search(question)
    whole = SearchAgent(corpus, BridgePolicy(effort=Effort(sufficient=1.1))).search(question)
    assert quick.documents[0].id == whole.documents[0].id == "17"
    assert quick.turns < whole.turns


def test_a_search_without_the_reader_ends_after_a_turn_without_a_new_document_among_the_best() -> None:
    policy = BridgePolicy(effort=Effort(sufficient=1.1, readings=0))
    result = SearchAgent(halls(), policy).search("When does hall 17 close on Fridays?")
    assert result.documents[0].id == "17"
    assert result.turns == 2


def halls(*, text: str = "Hall {0} closes at {1} on Fridays.", more: str = "") -> MemoryCorpus:
    """Return a corpus of halls. Each text names the next hall, so that a search can follow the names."""
    return MemoryCorpus(
        [
            Document(
                str(number),
                text.format(number, number % 12) + f" Its keeper lives in Hall {number + 1}." + more * (number == 17),
                "Big " * (number == 17) + f"Hall {number}" + " North" * (number == 17),
            )
            for number in range(60)
        ]
    )


def policy_where_names_promise(promise: float) -> BridgePolicy:
    """Return the policy that ships, if each search for a name found something with this probability."""
    shipped = Scorer.shipped()
    expansion = shipped.networks["expansion"]
    layer = (np.zeros((len(EXPANSION), 1), np.float32), log_odds(np.array([promise])))
    networks = {**shipped.networks, "expansion": Network(expansion.scaling, ((layer,),))}
    return BridgePolicy(dataclasses.replace(shipped, networks=networks), effort=Effort(sufficient=1.1))


@pytest.mark.parametrize(
    ("hall", "promise", "ends_early"),
    [
        ("big hall 17", 0.9, True),
        ("Big Hall 17", 0.06, False),
        ("Big Hall 17", 0.04, True),
        ("hall 18", 0.06, False),
        ("big hall of the father", 0.06, False),
    ],
)
def test_a_search_ends_after_a_turn_without_a_new_document_among_the_best_if_no_name_promises_one(
    hall: str, promise: float, ends_early: bool
) -> None:
    agent = SearchAgent(halls(), policy_where_names_promise(promise))
    assert (agent.search(f"When does the {hall} close on fridays?").turns == 2) is ends_early


@pytest.mark.parametrize(
    ("question", "ends_early"),
    [
        ("When does the API of the big hall close on fridays?", True),
        ("Closing time of the big hall on fridays?", True),
        ("When does the Ostrel of the big hall close on fridays?", False),
        ("Ostrel time of the big hall on fridays?", False),
        ("When does the API 2 of the big hall close on fridays?", False),
    ],
)
def test_a_common_word_and_the_first_word_of_a_sentence_are_not_names_that_a_search_follows(
    question: str, ends_early: bool
) -> None:
    corpus = halls(
        text="The API says that hall {0} closes at {1} on Fridays, its closing time.", more=" It has an Ostrel."
    )
    assert (SearchAgent(corpus, policy_where_names_promise(0.5)).search(question).turns == 2) is ends_early


@pytest.mark.parametrize(
    ("question", "promise", "follows"),
    [
        ("When does a keeper close on fridays?", 0.04, False),
        ("When does a keeper close on fridays?", 0.06, True),
        ("When does the keeper of Hall 17 close on fridays?", 0.04, True),
    ],
)
def test_the_names_in_texts_must_promise_more_if_the_question_asks_for_none(
    question: str, promise: float, follows: bool
) -> None:
    result = SearchAgent(halls(), policy_where_names_promise(promise)).search(question)
    actions = [event.action for event in result.trajectories[0].events if isinstance(event, ActionTaken)]
    queries = {call.arguments.get("query", "") for action in actions for call in action.calls}
    assert any(re.fullmatch(r"Hall \d+( .*)?", query) for query in queries - {"Hall 17"}) is follows


def stopping(constant: float) -> Floats:
    return np.array([[constant, *[0] * len(STOPPING)]] * 2, np.float32)


def stop_features(best: float) -> Floats:
    values = np.zeros(len(STOPPING), np.float32)
    values[STOPPING.index("best")] = log_odds(np.array([best]))[0]
    return values


def test_an_identifier_in_another_notation_adds_what_the_reader_does_not_see():
    notes = notes_of("What is E2047?", ("", "E2047 is a jam."), ("", "E-2047 is a jam."), ("", "E2048 is a jam."))
    same, other, none = identifier_odds(notes)
    assert same == other > none == 0
    assert identifier_odds(notes, only_renoted=True).tolist() == [0, other, 0]


@given(st.data(), st.integers(1, 12))
def test_a_reranker_exchanges_the_scores_of_what_it_read(data: st.DataObject, count: int) -> None:
    scores = data.draw(arrays(np.float32, count, elements=st.floats(0, 1, width=32)))
    rows = np.array(data.draw(st.lists(st.integers(0, count - 1), unique=True, min_size=1)), dtype=np.intp)
    relevance = data.draw(arrays(np.float32, len(rows), elements=st.integers(-9, 9)))
    hops = data.draw(arrays(np.int64, len(rows), elements=st.integers(0, 2)))
    changed = with_reranker(scores, rows, relevance, hops)
    others = np.setdiff1d(np.arange(count), rows)
    np.testing.assert_array_equal(changed[others], scores[others])
    np.testing.assert_array_equal(np.sort(changed), np.sort(scores))
    (
        np.testing.assert_array_equal(with_reranker(scores, rows, 4 * relevance + 8, hops), changed),
        "the scale does not matter",
    )


def order_after(*relevance: float, hops: Sequence[int] = (0, 0, 0, 0)) -> list[int]:
    """The order of four candidates, of which the first is far ahead and the last two are equal."""
    scores = np.array([0.9, 0.5, 0.1, 0.1], np.float32)
    changed = with_reranker(scores, np.arange(4), np.array(relevance, np.float32), np.array(hops))
    return np.argsort(-changed, kind="stable").tolist()


def test_a_reranker_and_the_scores_so_far_count_about_the_same() -> None:
    assert order_after(0, 0, 0, 0) == [0, 1, 2, 3]
    assert order_after(0, 5, 0, 0) == [1, 0, 2, 3]
    assert order_after(0, 0, 0, 5) == [0, 3, 1, 2]
    assert order_after(-5, 0, 0, 5) == [3, 1, 0, 2]


def test_a_reranker_raises_passages_of_later_hops_and_does_not_lower_them() -> None:
    assert order_after(0, 9, 5, 0) == [1, 0, 2, 3]
    assert order_after(0, 9, 5, 0, hops=(1, 0, 0, 0)) == [0, 1, 2, 3]
    assert order_after(0, 9, 5, 0, hops=(0, 1, 0, 0)) == [1, 0, 2, 3]
