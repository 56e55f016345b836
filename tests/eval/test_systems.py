"""The systems of a run: their names, their answers, and what each control does."""

from __future__ import annotations

import copy

import pytest

from context_agent import Document, MemoryCorpus, ScriptedPolicy
from context_agent._support.shipped_models import shipped_reader
from context_agent.errors import ConfigError
from context_agent.eval.gold import gold_of
from context_agent.eval.one_shot import read
from context_agent.eval.scoring import score
from context_agent.eval.systems import SYSTEMS, Answerer, AnswerSettings, find_systems, without_pruning
from context_agent.policies.bridge import BridgePolicy
from context_agent.pruning.view import EditApplied
from context_agent.testing.actions import search
from context_agent.types import Question

WINDOW = 2048
ONE_SHOT = [system.name for system in SYSTEMS if not system.keeps_context and not system.reranked]
CONTROLS = ["agent-unpruned", "agent-random", "agent-oldest", "agent-oracle", "agent-summary", "agent-both"]


class ShortestFirst:
    """Prefers the shortest texts."""

    name = "shortest"

    def score(self, query: str, texts: list[str]):
        import numpy as np

        return np.array([-len(text) for text in texts], dtype=np.float32)


def answer(corpus, name, question, policy=None, seed=0, **settings):
    (system,) = find_systems([name], reranker=True)
    answerer = Answerer(corpus, policy or BridgePolicy(), AnswerSettings(**settings))
    return answerer.answer(system, question, gold_of(question, corpus), window=WINDOW, seed=seed)


def greedy() -> ScriptedPolicy:
    """Search until its window is full."""
    return ScriptedPolicy([search(topic, limit=6) for topic in ("comets", "rivers", "operas", "engines")] * 3)


def test_an_unknown_system_is_refused_with_the_nearest() -> None:
    with pytest.raises(ConfigError, match="Did you mean 'hybrid'"):
        find_systems(["hybird"])


@pytest.mark.parametrize("name", ["bm25@4", "agent@0", "agent@x", "agent@"])
def test_only_agents_have_rollouts(name: str) -> None:
    with pytest.raises(ConfigError, match="agent@4"):
        find_systems([name])


@pytest.mark.parametrize("name", ["agent+swarm", "agent+swarm0", "agent+swarm99", "agent-random+swarm4", "bm25+swarm4"])
def test_only_the_agent_has_a_swarm_and_of_a_breadth_that_can_be(name: str) -> None:
    with pytest.raises(ConfigError, match=r"agent\+swarm4"):
        find_systems([name])


def test_a_swarm_answers_with_its_sub_agents_and_may_have_rollouts(corpus: MemoryCorpus) -> None:
    (system,) = find_systems(["agent+swarm2@3"])
    assert (system.name, system.swarm, system.rollouts) == ("agent+swarm2@3", 2, 3)
    result = answer(corpus, "agent+swarm2", Question("q", "Which comets met the operas of Title 7?", gold=("d7",)))
    assert len(result.searchers) == 2
    assert result.documents


def test_a_reranked_system_needs_a_reranker() -> None:
    with pytest.raises(ConfigError, match="--reranker"):
        find_systems(["hybrid+reranker"])


def test_a_system_named_twice_runs_once() -> None:
    assert [system.name for system in find_systems(["bm25", "agent@4", "bm25"])] == ["bm25", "agent@4"]


@pytest.mark.parametrize("name", ONE_SHOT)
def test_one_shot_systems_rank_documents_once_each_and_keep_no_context(corpus: MemoryCorpus, name: str) -> None:
    result = answer(corpus, name, Question("q", "SENTINEL-0007 closes Title 7", gold=("d7",)), k=5)
    ids = [document.id for document in result.documents]
    assert 0 < len(ids) <= 5
    assert len(set(ids)) == len(ids)
    assert (result.stop_reason, result.trajectories) == ("one_shot", ())
    assert "d7" in ids or name in ("dense", "hybrid+reader")


def test_bm25_is_the_order_of_the_sparse_retriever_alone(corpus: MemoryCorpus) -> None:
    question = "how rivers met operas"
    (sparse,) = [retriever for retriever in corpus.retrievers if retriever.name == "bm25"]
    expected = [chunk_id.rpartition("_")[0] for chunk_id, _ in sparse.search(question, 50)][:3]
    assert [document.id for document in answer(corpus, "bm25", Question("q", question), k=3).documents] == expected


def test_the_reranker_orders_its_own_system_and_leaves_hybrid_alone() -> None:
    documents = [Document(f"d{n}", "the osk river " + "flows on and on " * n, f"T{n}") for n in range(1, 9)]
    plain, reranked = MemoryCorpus(documents), MemoryCorpus(documents, reranker=ShortestFirst())
    question = Question("q", "osk river")
    shortest = answer(reranked, "hybrid+reranker", question, k=8)
    assert [document.id for document in shortest.documents] == [f"d{n}" for n in range(1, 9)]
    assert answer(reranked, "hybrid", question).documents == answer(plain, "hybrid", question).documents


def test_subqueries_find_the_documents_of_the_names_in_a_question() -> None:
    documents = [Document(f"n{n}", f"noise about words and questions {n}", f"Noise {n}") for n in range(30)]
    documents += [Document("a", "It is a painter's work.", "Brasko Murals"), Document("b", "A town.", "Vellmar")]
    corpus = MemoryCorpus(documents)
    question = Question("q", 'Which noise about words and questions came first, "Brasko Murals" or Vellmar?')
    ids = [document.id for document in answer(corpus, "subqueries", question, k=6).documents]
    assert {"a", "b"} <= set(ids)


def test_the_unpruned_agent_never_edits_and_the_pruning_controls_do(corpus: MemoryCorpus) -> None:
    question = Question("q", "comets?", gold=("d3",))
    for name in CONTROLS:
        result = answer(corpus, name, question, greedy())
        edits = [event for event in result.trajectories[0].events if isinstance(event, EditApplied)]
        assert bool(edits) == (name != "agent-unpruned"), name


def test_a_summary_is_no_prune(corpus: MemoryCorpus) -> None:
    question = Question("q", "comets?", gold=tuple(f"d{n}" for n in range(60)))
    result = answer(corpus, "agent-summary", question, greedy())
    scores, curve = score(question, result, gold=gold_of(question, corpus))
    assert any(event.edit.replaced for event in result.trajectories[0].events if isinstance(event, EditApplied))
    assert scores["prune_accuracy"] is None, "nothing was pruned, and gold was summarized"
    assert scores["held_recall"] == scores["trajectory_recall"] > 0
    assert [turn.pruned for turn in curve] == [0] * len(curve)
    assert result.trajectories[0].header.profile.name == "default+summary"


def test_the_oracle_prunes_by_each_questions_own_gold(corpus: MemoryCorpus) -> None:
    answerer = Answerer(corpus, greedy(), AnswerSettings())
    (system,) = find_systems(["agent-oracle"])
    unpruned = answer(corpus, "agent-unpruned", Question("q", "comets?"), greedy())
    encountered = list(unpruned.trajectories[0].encountered)
    for gold in (encountered[0], encountered[1]):
        question = Question(gold, "comets?", gold=(gold,))
        result = answerer.answer(system, question, gold_of(question, corpus), window=WINDOW, seed=0)
        *_, view = result.trajectories[0].views()
        assert gold not in {block.document_id for block in view.pruned}
        assert len(view.pruned) > 3


def test_random_pruning_differs_by_seed_and_not_by_repetition(corpus: MemoryCorpus) -> None:
    def pruned_ids(seed: int) -> list[tuple[str, ...]]:
        result = answer(corpus, "agent-random", Question("q", "comets?"), greedy(), seed=seed)
        return [event.edit.pruned for event in result.trajectories[0].events if isinstance(event, EditApplied)]

    assert pruned_ids(1) == pruned_ids(1)
    assert pruned_ids(1) != pruned_ids(2)


def test_rollouts_are_fused_and_saved(corpus: MemoryCorpus, tmp_path) -> None:
    result = answer(corpus, "agent@3", Question("q", "comets and rivers", gold=("d5",)), trajectories=tmp_path)
    assert len(result.trajectories) == 3
    assert len(list((tmp_path / "agent@3").rglob("*.jsonl"))) == 3


def test_only_the_bridge_policy_has_its_pruning_switched_off() -> None:
    policy, scripted = BridgePolicy(reader=copy.copy(shipped_reader())), greedy()
    unpruned = without_pruning(policy)
    assert isinstance(unpruned, BridgePolicy)
    assert not unpruned.effort.prune
    assert policy.effort.prune
    assert unpruned.scorer is policy.scorer
    assert unpruned.reader is policy.reader
    assert without_pruning(scripted) is scripted


def test_every_control_answers_for_the_bridge_policy(corpus: MemoryCorpus) -> None:
    question = Question("q", "What did Title 7 and comets meet?", gold=("d7",))
    for name in CONTROLS:
        assert answer(corpus, name, question).documents, name


def test_the_reader_moves_a_passage_that_answers_to_the_front() -> None:
    documents = [Document(f"n{number}", f"The river Osk is mentioned in report {number}.") for number in range(8)]
    documents.append(Document("answer", "Every winter the Osk freezes, because it flows slowly."))
    found = read(MemoryCorpus(documents), "Why does the river Osk freeze?", 50)
    assert found[0] == "answer_0"
    assert sorted(found) == sorted({f"{document.id}_0" for document in documents})
