"""The oracle expert: a policy that imitates it could act the same way without knowing the gold."""

import pytest

from context_agent import BridgePolicy, Document, MemoryCorpus, SearchAgent
from context_agent.errors import ConfigError
from context_agent.eval.gold import gold_of
from context_agent.harness.profile import context_1, default
from context_agent.policies.tokens.harmony import HarmonyRenderer
from context_agent.pruning.view import ActionTaken, Block, EditApplied
from context_agent.synth_data.demonstrations.experts import learner_instructions, oracle_expert
from context_agent.synth_data.demonstrations.oracle import OraclePolicy, OracleSettings
from context_agent.testing.embedders import HashEmbedder
from context_agent.train.rows import demonstrated_rows
from context_agent.types import Question

QUESTION = Question("q", "In which town was the designer of the Almar Bridge born?", gold=("bridge", "designer"))


def documents():
    """A bridge, its designer, and two dozen similar documents."""
    yield Document(
        "bridge", "The Almar Bridge crosses the Oste. It was designed by Ilka Verdun in 1911.", "Almar Bridge"
    )
    yield Document("designer", "Ilka Verdun was born in Prell and studied engines there.", "Ilka Verdun")
    for number in range(24):
        text = f"The Bridge of Town {number} was designed by a designer born in town number {number}. " * 3
        yield Document(f"d{number}", text, f"Bridge {number}")


@pytest.fixture(scope="module")
def corpus():
    return MemoryCorpus(documents(), embedder=HashEmbedder())


def play(corpus, question=QUESTION, *, window=2048, profile=None, seed=0, **manner):
    profile = profile or default()
    gold = gold_of(question, corpus)
    policy = OraclePolicy(BridgePolicy(), gold, settings=OracleSettings(**manner), extended=profile.extended_arguments)
    agent = SearchAgent(corpus, policy, budget=window, profile=profile, seed=seed)
    (trajectory,) = agent.search(question.question, k=30).trajectories
    return trajectory


def actions(trajectory):
    return [event.action for event in trajectory.events if isinstance(event, ActionTaken)]


def shown_before(trajectory):
    """The view before each action."""
    return list(trajectory.views())[:-1]


def test_it_finds_all_gold_ranks_it_first_and_stops(corpus):
    trajectory = play(corpus)
    assert [document.id for document in trajectory.end.documents] == ["bridge", "designer"]
    assert trajectory.end.stop_reason == "finished"
    assert trajectory.end.mistakes == 0
    *_, final = trajectory.views()
    found_ids = {block.document_id for block in final.blocks}
    assert {"bridge", "designer"} <= found_ids
    search_views = [
        view for view, action in zip(shown_before(trajectory), actions(trajectory), strict=True) if action.calls
    ]
    for view in search_views[1:]:
        assert not {"bridge", "designer"} <= {block.document_id for block in view.blocks}, (
            "it goes on only while needed"
        )


@pytest.mark.parametrize("noise", [0.0, 0.4])
@pytest.mark.parametrize("profile", [default(), context_1()])
def test_no_id_is_named_that_was_not_shown(corpus, profile, noise):
    trajectory = play(corpus, profile=profile, noise=noise, prune_at=0.0)
    for view, action in zip(shown_before(trajectory), actions(trajectory), strict=True):
        visible_ids = {segment.id for segment in view.segments if isinstance(segment, Block)}
        named_ids = {item.id for item in action.ranking or ()}
        for call in action.calls:
            named_ids |= {*call.arguments.get("chunk_ids", ()), *call.arguments.get("all_but", ())}
        assert named_ids <= visible_ids
    assert trajectory.end.dropped == {}


def test_it_prunes_in_batches_and_never_gold(corpus):
    trajectory = play(corpus, prune_at=0.0)
    edits = [event.edit for event in trajectory.events if isinstance(event, EditApplied)]
    assert edits, "an episode in a small window prunes"
    assert max(len(edit.pruned) for edit in edits) >= 3
    *_, final = trajectory.views()
    assert not any(block.document_id in QUESTION.gold for block in final.pruned)


def test_by_noise_gold_goes_and_comes_back(corpus):
    restored = 0
    for seed in range(8):
        trajectory = play(corpus, noise=0.5, prune_at=0.0, seed=seed)
        restored += any(event.edit.restored for event in trajectory.events if isinstance(event, EditApplied))
        assert {document.id for document in trajectory.end.documents} >= {"bridge", "designer"}
    assert restored
    assert play(corpus, noise=0.5, seed=1).without_timestamps() == play(corpus, noise=0.5, seed=1).without_timestamps()


def test_what_a_profile_does_not_declare_is_not_used(corpus):
    trajectory = play(corpus, profile=context_1(), prune_at=0.0)
    arguments = {name for action in actions(trajectory) for call in action.calls for name in call.arguments}
    assert arguments <= {"query", "chunk_ids"}


def test_a_title_is_searched_only_once_it_was_read(corpus):
    trajectory = play(corpus)
    searched = [
        "verdun" in (view.question + view.text()).casefold()
        for view, action in zip(shown_before(trajectory), actions(trajectory), strict=True)
        for call in action.calls
        if "verdun" in str(call.arguments.get("query", "")).casefold()
    ]
    assert searched
    assert all(searched)


def test_where_gold_cannot_be_found_it_ends_with_a_few_candidates(corpus):
    unreachable = Question("q", "Who painted the harbour?", gold=("bridge", "designer"))
    trajectory = play(corpus, unreachable, hedge=2, search_titles=False)
    ranked_ids = [document.id for document in trajectory.end.documents]
    assert len([document_id for document_id in ranked_ids if document_id not in unreachable.gold]) <= 2
    assert trajectory.end.stop_reason in ("finished", "no_ranking")


def test_gold_by_fact_is_met_by_any_of_its_chunks(corpus):
    question = Question("q", QUESTION.question, facts=(("bridge_0", "d0_0"), ("designer_0",)))
    trajectory = play(corpus, question)
    ranked_ids = [document.id for document in trajectory.end.documents]
    assert "designer" in ranked_ids
    assert {"bridge", "d0"} & set(ranked_ids)


def test_its_episodes_make_rows_to_train_on(corpus):
    renderer = HarmonyRenderer()
    trajectory = play(corpus, prune_at=0.0)
    rows = demonstrated_rows(trajectory, renderer)
    edits = sum(isinstance(event, EditApplied) for event in trajectory.events)
    assert 1 <= len(rows) <= edits + 1
    prompt = renderer.decode(rows[0].input_ids)
    assert "You are a retrieval subagent" in prompt, "the prompt that a pupil will have is in view"
    target = renderer.decode([t for t, keep in zip(rows[-1].input_ids, rows[-1].loss_mask, strict=True) if keep])
    assert "<Document id=bridge_0>" in target


@pytest.mark.parametrize("wrong", [{"noise": 1.0}, {"prune_at": 2.0}, {"batch": 0}, {"hedge": -1}, {"keep": -1}])
def test_a_manner_that_cannot_work_is_refused(wrong):
    with pytest.raises(ConfigError, match=next(iter(wrong))):
        OracleSettings(**wrong)


def test_a_slower_pace_makes_more_turns_of_fewer_searches(corpus):
    fast, slow = (play(corpus, window=4096, search_titles=False, pace=pace) for pace in (None, 1))
    searches_per_turn = [sum(call.name == "search_corpus" for call in action.calls) for action in actions(slow)]
    assert max(searches_per_turn) == 1
    assert len(actions(slow)) > len(actions(fast))
    assert [document.id for document in slow.end.documents] == ["bridge", "designer"]
    with pytest.raises(ConfigError, match="pace"):
        OracleSettings(pace=0)


def test_pruning_begins_where_it_is_told_to(corpus):
    late, early = (play(corpus, window=4096, pace=1, prune_at=share, batch=1) for share in (1.0, 0.0))
    prune_counts = [
        sum(bool(event.edit.pruned) for event in trajectory.events if isinstance(event, EditApplied))
        for trajectory in (late, early)
    ]
    assert prune_counts[0] < prune_counts[1]


@pytest.mark.parametrize("keep", [0, 2])
def test_a_prune_leaves_gold_and_the_first_chunks_shown(corpus, keep):
    trajectory = play(corpus, window=2048, names_only=True, pace=1, prune_at=0.0, batch=1, keep=keep)
    pruned_count = 0
    for view, action in zip(shown_before(trajectory), actions(trajectory), strict=False):
        for call in action.calls:
            if call.name != "prune_chunks":
                continue
            visible_ids = [block.id for block in view.blocks]
            pruned_ids = call.arguments.get("chunk_ids") or [
                chunk_id for chunk_id in visible_ids if chunk_id not in call.arguments["all_but"]
            ]
            kept_blocks = [block for block in view.blocks if block.id not in pruned_ids]
            gold_blocks = [block for block in view.blocks if block.document_id in QUESTION.gold]
            pruned_count += len(pruned_ids)
            assert {block.id for block in gold_blocks} <= {block.id for block in kept_blocks}
            assert len(kept_blocks) == max(keep, len(gold_blocks))
    assert pruned_count


@pytest.mark.parametrize("pace", [None, 1])
def test_with_names_only_it_asks_the_question_and_then_for_names_in_view(corpus, pace):
    trajectory = play(corpus, names_only=True, pace=pace)
    first_queries, *later_queries = [
        [call.arguments["query"] for call in action.calls if "query" in call.arguments]
        for action in actions(trajectory)
    ]
    assert first_queries == [QUESTION.question]
    assert [query for queries in later_queries for query in queries if query == "Ilka Verdun"] == ["Ilka Verdun"]
    assert pace is None or all(len(queries) <= pace for queries in later_queries)
    for view, queries in zip(shown_before(trajectory)[1:], later_queries, strict=True):
        visible_text = "\n".join((QUESTION.question, *(block.text for block in view.blocks))).casefold()
        assert all(query.casefold() in visible_text for query in queries)
    assert {document.id for document in trajectory.end.documents} >= {"bridge", "designer"}


def test_with_names_only_no_query_is_made_twice(corpus):
    question = Question(
        "q", "Which is older, the Almar Bridge or Bridge 3, or Bridge 4?", gold=("bridge", "d3", "d4", "none")
    )
    queries = [
        call.arguments["query"]
        for action in actions(play(corpus, question, names_only=True))
        for call in action.calls
        if "query" in call.arguments
    ]
    assert len(queries) > 1
    assert len({query.casefold() for query in queries}) == len(queries)


def test_an_episode_leaves_room_for_the_tools_in_the_prompt_of_the_model_that_will_learn(corpus):
    pytest.importorskip("transformers")
    from context_agent.policies.tokens import VocabularyCounter
    from context_agent.policies.tokens.template import TemplateRenderer
    from context_agent.train.tiny_model import CHAT_TEMPLATE, for_transformers, own_tokenizer

    tokenizer = for_transformers(own_tokenizer())
    tokenizer.chat_template = CHAT_TEMPLATE
    renderer = TemplateRenderer(tokenizer, name="tiny")
    opening = renderer.opening(default()).tokens
    window = 3 * opening
    expert = oracle_expert(
        settings=OracleSettings(pace=1, prune_at=1.0),
        profile=default(),
        counter=VocabularyCounter(renderer),
        instructions=learner_instructions(renderer, default()),
    )
    agent = SearchAgent(corpus, expert(gold_of(QUESTION, corpus)), budget=window, profile=default())
    (trajectory,) = agent.search(QUESTION.question, k=30).trajectories
    assert next(iter(trajectory.views())).tokens > opening
    assert all(len(row.input_ids) <= window for row in demonstrated_rows(trajectory, renderer))
