"""The embedded policy in episodes: it follows names, keeps to the budget, and stands on nothing but its view."""

from __future__ import annotations

import zlib
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from context_agent import BridgePolicy, Document, Limits, MemoryCorpus, SearchAgent
from context_agent.errors import ConfigError
from context_agent.harness.policy import PartialRanker
from context_agent.harness.profile import default
from context_agent.policies.bridge import Effort
from context_agent.policies.bridge.networks import Scorer
from context_agent.pruning.view import ActionTaken, EditApplied, ToolResult
from context_agent.testing.embedders import HashEmbedder
from tests.support.two_hop_films import recall, world


@pytest.fixture(scope="module")
def films():
    documents, questions = world()
    return MemoryCorpus(documents, embedder=HashEmbedder()), questions


def run(corpus, question, window=None, policy=None, **options):
    return SearchAgent(corpus, policy or BridgePolicy(), budget=window, **options).search(question)


class _NarrowReader:
    """A reader whose rows have another length than those of the shipped one."""

    width = 3

    def encode_pairs(self, pairs):
        return np.zeros((len(pairs), self.width), dtype=np.float32)


class _ArbitraryReader:
    """A reader whose rows follow from the texts, and mean nothing."""

    width = 385

    def encode_pairs(self, pairs):
        draws = [np.random.default_rng(zlib.crc32("\n".join(pair).encode("utf-8", "surrogatepass"))) for pair in pairs]
        return np.array([draw.normal(0, 3, self.width) for draw in draws], dtype=np.float32).reshape(-1, self.width)


def test_weights_that_correct_another_reader_are_refused():
    weights = Scorer.shipped()
    with pytest.raises(ConfigError, match="rows of another length"):
        BridgePolicy(reader=_NarrowReader())
    with pytest.raises(ConfigError, match="rows of another length"):
        BridgePolicy(replace(weights, head=np.zeros(3, dtype=np.float32)))
    assert BridgePolicy(replace(weights, head=None), reader=_NarrowReader()).reader.width == 3


def test_it_follows_a_name_to_the_second_hop(films):
    corpus, questions = films
    recalls = [recall(run(corpus, question), gold) for question, gold in questions[::20]]
    assert sum(recalls) / len(recalls) >= 0.9


@pytest.mark.parametrize("window", [512, 1024, 2048, 4096, 32_768])
def test_it_keeps_to_any_window_without_a_mistake(films, window):
    corpus, questions = films
    for question, _ in questions[:5]:
        result = run(corpus, question, window)
        (trajectory,) = result.trajectories
        assert trajectory.end is not None
        assert result.stop_reason == "finished"
        assert result.documents
        assert trajectory.end.mistakes == 0
        assert not trajectory.end.dropped
        assert all(view.tokens <= window for view in trajectory.views())
        trajectory.verify()


def test_a_small_window_makes_it_prune_and_bring_back(films):
    corpus, questions = films
    kinds = set()
    for question, _ in questions[:20]:
        for event in run(corpus, question, 1024).trajectories[0].events:
            if isinstance(event, EditApplied):
                kinds |= {name for name in ("pruned", "restored") if getattr(event.edit, name)}
        if len(kinds) == 2:
            return
    pytest.fail(f"20 questions had only these edits: {kinds}")


def long_documents(count, words):
    """Documents about persons that mention the next one, and say nothing more."""
    return [
        Document(
            f"person-{number}",
            f"Person Alder{number} Birk{number} was taught by Alder{number + 1} Birk{number + 1}. "
            + " ".join(f"word{number}x{place}" for place in range(words)),
            f"Alder{number} Birk{number}",
        )
        for number in range(count)
    ]


def test_nothing_is_pruned_for_results_that_a_small_corpus_does_not_have():
    corpus = MemoryCorpus(long_documents(34, words=80), embedder=HashEmbedder())
    assert sum(chunk.tokens for chunk in corpus.chunks) < 12_000
    result = run(corpus, "Who taught the teacher of Alder1 Birk1 and the teacher of Alder2 Birk2?")
    (trajectory,) = result.trajectories
    searches = [event for event in trajectory.events if isinstance(event, ToolResult) and event.name == "search_corpus"]
    assert len(searches) > 6
    assert not any(isinstance(event, EditApplied) for event in trajectory.events)


def test_it_stops_searching_when_it_has_seen_every_chunk():
    corpus = MemoryCorpus(long_documents(8, words=5), embedder=HashEmbedder())
    (trajectory,) = run(corpus, "Who taught the teacher of Alder1 Birk1?").trajectories
    assert len({block.id for view in trajectory.views() for block in view.blocks}) == 8
    assert len([event for event in trajectory.events if isinstance(event, ActionTaken)]) == 2


def test_without_pruning_it_never_edits_and_still_ends(films):
    corpus, questions = films
    policy = BridgePolicy(effort=Effort(prune=False))
    for question, _ in questions[:5]:
        result = run(corpus, question, 2048, policy)
        assert result.stop_reason == "finished"
        assert not any(isinstance(event, EditApplied) for event in result.trajectories[0].events)


def test_equal_episodes_are_equal_to_the_byte(films):
    corpus, questions = films
    policy = BridgePolicy()
    first, second = (run(corpus, questions[3][0], policy=policy).trajectories[0].without_timestamps() for _ in range(2))
    assert first == second


def test_bounds_on_effort_hold(films):
    corpus, questions = films
    policy = BridgePolicy(effort=Effort(searches=9, turns=2))
    (trajectory,) = run(corpus, questions[0][0], policy=policy).trajectories
    searches = [event for event in trajectory.events if isinstance(event, ToolResult) and event.name == "search_corpus"]
    assert len(searches) <= 9
    assert len([event for event in trajectory.events if isinstance(event, ActionTaken)]) <= 4
    with pytest.raises(ConfigError, match=r"searches.*at least 1; got 0"):
        Effort(searches=0)


def test_a_limit_that_strikes_gets_the_ranking_so_far(films):
    corpus, questions = films
    question, gold = questions[0]
    assert isinstance(BridgePolicy().open(question, corpus, profile=default()), PartialRanker)
    result = run(corpus, question, limits=Limits(turns=1))
    assert result.stop_reason == "turns"
    assert gold & {document.id for document in result.documents[:5]}


def test_nothing_found_ends_without_a_ranking():
    corpus = MemoryCorpus([Document("a", "some text")], embedder=HashEmbedder())

    class Nothing:
        def __getattr__(self, name):
            return getattr(corpus, name)

        def search(self, *args, **options):
            return []

    result = run(Nothing(), "anything at all")
    assert result.documents == ()


def test_documents_without_titles_are_ranked_too():
    documents, questions = world(titled=False)
    corpus = MemoryCorpus(documents, embedder=HashEmbedder())
    result = run(corpus, questions[7][0])
    assert "f7" in {document.id for document in result.documents[:5]}


def test_a_corpus_that_waits_is_asked_in_threads(films):
    corpus, questions = films

    class Waiting:
        blocking = True

        def __getattr__(self, name):
            return getattr(corpus, name)

    question, gold = questions[12]
    assert recall(run(Waiting(), question), gold) == recall(run(corpus, question), gold)


def test_vectors_that_the_corpus_does_not_trust_are_not_used(films):
    corpus, questions = films

    class Distrusted:
        calibration = type("Calibration", (), {"weights": {"dense": 0.0, "bm25": 1.0}})()

        def __getattr__(self, name):
            return getattr(corpus, name)

        def similarity(self, query, chunk_ids):
            raise AssertionError("asked for useless vectors")

    question, gold = questions[20]
    assert recall(run(Distrusted(), question), gold) == 1.0


ODD_QUESTIONS = [
    "?",
    "a",
    "of the",
    "🙂🙂",
    "東京の首都はどこですか",
    "x" * 3000,
    'say "unclosed',
    "1984?",
    "A and B or C, D and E or F?",
]


@pytest.mark.parametrize("question", ODD_QUESTIONS)
def test_odd_questions_end_well(films, question):
    assert run(films[0], question).stop_reason in {"finished", "no_ranking"}


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(question=st.text(min_size=1, max_size=120).filter(str.strip), window=st.sampled_from([1024, 2048, 32_768]))
def test_any_question_ends_within_its_window(films, question, window):
    result = run(films[0], question, window, BridgePolicy(reader=_ArbitraryReader()))
    end = result.trajectories[0].end
    assert end is not None
    assert end.mistakes == 0


def test_an_exact_name_ranks_above_longer_names_with_the_same_words():
    names = ["make_self_pipe_writer", "make_pipe_self", "close_self_pipe", "make_self_pipes", "self_make_pipe"]
    texts = [f"def _{name}(self): make a pipe for the self pipe of {name}" for name in names]
    documents = [Document(f"d{number}", text, f"loop.py: {text[4:20]}") for number, text in enumerate(texts)]
    documents.append(Document("exact", "The loop calls _make_self_pipe when it opens, before any callback.", "notes"))
    result = run(MemoryCorpus(documents, embedder=HashEmbedder()), "where is _make_self_pipe called?")
    assert result.documents[0].id == "exact"


def test_the_best_passages_are_shown_even_if_they_are_of_one_document():
    names = "Payment Login Upload Report Mail Cache Session Worker Queue Token".split()
    around = " ".join(f"word{number}" for number in range(120))
    places = {
        place: [
            f"The {name} Service in {place} replaced the {names[at - 1]} Service. Its timeout is {at}00. {around}"
            for at, name in enumerate(names)
        ]
        for place in ("Staging", "Production")
    }
    actors = []

    class Watched(BridgePolicy):
        def open(self, *args, **options):
            actors.append(super().open(*args, **options))
            return actors[-1]

    documents = [Document(place, "\n\n".join(texts)) for place, texts in places.items()]
    corpus = MemoryCorpus(documents, embedder=HashEmbedder())
    question = "Who wrote the service in Production that the Queue Service replaced?"
    result = run(corpus, question, 9_216, Watched())
    shown = {chunk.id for document in result.documents for chunk in document.chunks}
    best = {candidate.id for candidate, _ in actors[0].ranked()[: Effort().ranking]}
    assert any(event.edit.pruned for event in result.trajectories[0].events if isinstance(event, EditApplied))
    assert best <= shown
