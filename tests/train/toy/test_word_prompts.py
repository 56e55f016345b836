from __future__ import annotations

import random

import pytest

from context_agent import Action, MemoryCorpus, RankedId, ScriptedPolicy, SearchAgent, ToolCall
from context_agent.harness.tools import SPAWN
from context_agent.policies.tokens import TokenPolicy, VocabularyCounter
from context_agent.policies.tokens.engines import FakeEngine
from context_agent.pruning.view import ActionTaken
from context_agent.testing.actions import rank_all, search
from context_agent.train.outcome import measure_outcome
from context_agent.train.rows import demonstrated_rows, sampled_rows
from context_agent.train.toy.environment import ToyEnvironment, environment_texts
from context_agent.train.toy.expert import ExpertNoise, NoisyExpert
from context_agent.train.toy.word_prompts import SWARM_WORDS, UNKNOWN, WordRenderer, words_profile


def test_the_vocabulary_covers_the_world_and_is_small(small: ToyEnvironment, words: WordRenderer) -> None:
    assert len(words.words) < 300
    for chunk in small.corpus.chunks:
        assert UNKNOWN not in words.decode(words.encode(f"{chunk.id} : {chunk.text} [12/512]"))


@pytest.mark.parametrize(
    ("action", "spelled"),
    [
        (Action((ToolCall("search_corpus", {"query": "East Isle"}),)), "search east isle <end>"),
        (
            Action(
                (
                    ToolCall("prune_chunks", {"all_but": ["east-isle_0", "pale-lamp_0"]}),
                    ToolCall("search_corpus", {"query": "pale lamp"}),
                )
            ),
            "keep east isle , pale lamp ; search pale lamp <end>",
        ),
        (Action((ToolCall("prune_chunks", {"chunk_ids": ["east-isle_0"]}),)), "prune east isle <end>"),
        (Action((ToolCall("restore_chunks", {"chunk_ids": ["east-isle_0"]}),)), "restore east isle <end>"),
        (
            Action((ToolCall(SPAWN, {"tasks": ["home of east isle", "maker of the pale lamp"]}),)),
            "spawn home of east isle , maker of the pale lamp <end>",
        ),
        (Action(ranking=(RankedId("east-isle"), RankedId("pale-lamp"))), "rank east isle , pale lamp <end>"),
    ],
)
def test_an_action_is_spelled_and_read_back(action: Action, spelled: str) -> None:
    words = WordRenderer(["home maker of the east isle pale lamp", SWARM_WORDS])
    ids = words.reply(action)
    assert words.decode(ids) == spelled
    parsed = words.parse(ids)
    assert [(call.name, call.arguments) for call in parsed.calls] == [
        (
            call.name,
            {key: value if key != "query" else str(value).lower() for key, value in dict(call.arguments).items()},
        )  # type: ignore[arg-type]
        for call in action.calls
    ]
    assert parsed.ranking == action.ranking


def test_whatever_is_sampled_can_be_read(words: WordRenderer) -> None:
    rng = random.Random(0)
    for _ in range(2_000):
        ids = [rng.randrange(len(words.words)) for _ in range(rng.randrange(1, 24))]
        action = words.parse(ids)
        assert action.calls or action.ranking is not None or isinstance(action.text, str)


@pytest.mark.parametrize(
    ("said", "tasks"),
    [("spawn", []), ("spawn , ,", []), ("spawn east isle , , pale lamp ,", ["east isle", "pale lamp"])],
)
def test_empty_tasks_are_none(said: str, tasks: list[str]) -> None:
    words = WordRenderer(["east isle pale lamp", SWARM_WORDS])
    (call,) = words.parse(words.encode(said)).calls
    assert (call.name, call.arguments) == (SPAWN, {"tasks": tasks})


def test_the_words_for_sub_agents_are_a_swarm_s_alone(small: ToyEnvironment, words: WordRenderer) -> None:
    assert words.decode(words.encode("spawn")) == UNKNOWN
    assert {*WordRenderer(environment_texts(small, swarm=True)).words} - {*words.words} >= {"spawn", "searchers"}


def test_a_search_beside_a_ranking_goes_on(words: WordRenderer) -> None:
    ids = words.encode("rank east isle ; search pale lamp")
    assert words.parse(ids).ranking is None
    assert len(words.parse(ids).calls) == 1


def test_a_sampled_episode_becomes_rows_of_what_was_sampled(small: ToyEnvironment, words: WordRenderer) -> None:
    question = next(question for question in small.questions["train"] if question.hops == 2)
    first, second = (small.titles[document_id].lower() for document_id in question.gold)
    lines = [f"search {first} ; search {second}", f"keep {first} , {second}", f"rank {first} , {second}"]
    engine = FakeEngine([(*words.encode(line), *words.stop) for line in lines])
    agent = SearchAgent(small.corpus, TokenPolicy(engine, words), profile=words_profile(), budget=512)
    result = agent.search(question.question, question_id=question.id)
    assert measure_outcome(result.trajectories[0], question).recall == 1.0
    rows = sampled_rows(result.trajectories[0])
    assert sum(row.trained for row in rows) == sum(len(sample.ids) for sample in engine.samples)
    assert len(rows) == 2


def test_the_teacher_finds_every_chain_when_it_is_careful(small: ToyEnvironment, words: WordRenderer) -> None:
    questions = small.questions["train"][:40]
    teacher = NoisyExpert(questions, small.titles, ExpertNoise(0, 0, 0), VocabularyCounter(words))
    agent = SearchAgent(small.corpus, teacher, profile=words_profile(), budget=512)
    outcomes = [measure_outcome(agent.search(question.question).trajectories[0], question) for question in questions]
    assert sum(outcome.recall for outcome in outcomes) / len(outcomes) > 0.9
    assert sum(outcome.pruned_gold for outcome in outcomes) == 0
    assert sum(outcome.pruned for outcome in outcomes) > 0


def test_a_careless_teacher_leaves_something_to_learn(small: ToyEnvironment, words: WordRenderer) -> None:
    questions = [question for question in small.questions["train"] if question.hops > 1][:40]
    teacher = NoisyExpert(questions, small.titles, ExpertNoise(0.5, 0.2, 0.5), VocabularyCounter(words))
    agent = SearchAgent(small.corpus, teacher, profile=words_profile(), budget=512)
    outcomes = [
        measure_outcome(agent.search(question.question, seed=7).trajectories[0], question) for question in questions
    ]
    assert 0.3 < sum(outcome.recall for outcome in outcomes) / len(outcomes) < 0.85


def test_a_lesson_is_trained_word_for_word(small: ToyEnvironment, words: WordRenderer) -> None:
    question = next(question for question in small.questions["train"] if question.hops == 3)
    teacher = NoisyExpert([question], small.titles, ExpertNoise(0, 0, 0), VocabularyCounter(words))
    trajectory = (
        SearchAgent(small.corpus, teacher, profile=words_profile(), budget=512)
        .search(question.question)
        .trajectories[0]
    )
    rows = demonstrated_rows(trajectory, words)
    text = words.decode(
        [token for row in rows for token, mask in zip(row.input_ids, row.loss_mask, strict=True) if mask]
    )
    assert text.startswith("search ")
    assert text.endswith("<end>")
    assert "rank " in text


def test_splits_share_no_gold(small: ToyEnvironment) -> None:
    gold = {
        split: {document_id for question in questions for document_id in question.gold}
        for split, questions in small.questions.items()
    }
    assert all(gold.values())
    assert sum(map(len, gold.values())) == len(set().union(*gold.values()))
    document_ids = {chunk.document_id for chunk in small.corpus.chunks}
    assert set().union(*gold.values()) <= document_ids


def test_the_harness_takes_the_profile(small: ToyEnvironment) -> None:
    corpus: MemoryCorpus = small.corpus
    title = next(iter(small.titles.values()))
    result = SearchAgent(corpus, ScriptedPolicy([search(title, limit=1), rank_all]), profile=words_profile()).search(
        "who?"
    )
    assert result.documents[0].id == title.lower().replace(" ", "-")


def test_a_lesson_says_which_relation_it_follows_before_it_searches_for_the_name_at_its_end(
    small: ToyEnvironment, words: WordRenderer
) -> None:
    question = next(question for question in small.questions["train"] if len(question.gold) == 3)
    teacher = NoisyExpert([question], small.titles, ExpertNoise(0, 0, 0), VocabularyCounter(words))
    with SearchAgent(small.corpus, teacher, profile=words_profile(), budget=512) as agent:
        (trajectory,) = agent.search(question.question).trajectories
    *_, last, first, _ = question.question.split(" of ")
    replies = [words.reply(event.action) for event in trajectory.events if isinstance(event, ActionTaken)]
    texts = [words.decode(reply) for reply in replies]
    assert texts[1].startswith(f"so {first.removeprefix('the ')} ; ")
    assert texts[2].startswith(f"so {last.rpartition('the ')[2]} ; ")
    assert [words.reply(words.parse(reply)) for reply in replies] == replies
