"""Replies as lines of commands, in the lean profile."""

from __future__ import annotations

from typing import Any

import pytest

from context_agent import Action, MemoryCorpus, RankedId, SearchAgent, ToolCall
from context_agent.errors import ConfigError
from context_agent.harness.profile import default, lean
from context_agent.policies.tokens import TokenPolicy
from context_agent.policies.tokens.engines import FakeEngine
from context_agent.pruning.view import EpisodeEnded
from context_agent.train.rows import sampled_rows
from tests.policies.tokens.sampling import QUESTION

pytest.importorskip("transformers", reason="chat templates are rendered by transformers (the train extra)")

from tokenizers import AddedToken

from context_agent.policies.tokens.lines import LONGEST_REPLY, LinesRenderer
from context_agent.train.tiny_model import for_transformers, tiny_tokenizer

CHAT_ML = """{% for m in messages %}<|im_start|>{{ m.role }}
{{ m.content }}<|im_end|>
{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant
{% endif %}"""


@pytest.fixture(scope="module")
def renderer() -> LinesRenderer:
    tokenizer = tiny_tokenizer(["search: prune: keep: answer: #1 #2"], size=512)
    tokenizer.add_special_tokens([AddedToken(token, special=True) for token in ("<|im_start|>", "<|im_end|>")])
    wrapped: Any = for_transformers(tokenizer)
    wrapped.chat_template = CHAT_ML
    return LinesRenderer(wrapped, name="tiny")


@pytest.mark.parametrize(
    ("action", "text"),
    [
        (Action((ToolCall("search_corpus", {"query": "who  built it?\n"}),)), "search: who built it?"),
        (
            Action((ToolCall("search_corpus", {"query": "x"}), ToolCall("prune_chunks", {"chunk_ids": ["#3", "#5"]}))),
            "search: x\nprune: #3, #5",
        ),
        (Action((ToolCall("prune_chunks", {"all_but": ["#1"]}),)), "keep: #1"),
        (Action((ToolCall("prune_chunks", {"all_but": ["C#, a language #1", "#2"]}),)), "keep: C#, a language #1, #2"),
        (Action((ToolCall("restore_chunks", {"chunk_ids": ["#1"]}),)), "restore: #1"),
        (Action(ranking=(RankedId("#4"), RankedId("#1"))), "answer: #4, #1"),
        (Action(ranking=()), "answer:"),
    ],
)
def test_an_action_is_a_few_lines_and_is_read_back(renderer: LinesRenderer, action: Action, text: str) -> None:
    ids = renderer.reply(action)
    assert renderer.decode(ids) == f"{text}<|im_end|>"
    again = renderer.parse(ids)
    assert renderer.reply(again) == ids
    assert [call.name for call in again.calls] == [call.name for call in action.calls]
    assert again.ranking == action.ranking


@pytest.mark.parametrize(
    ("reply", "names", "ranking"),
    [
        ("Search: a b", ["search_corpus"], None),
        ("I would search for x", ["i would search for x"], None),
        ("look: x", ["look"], None),
        ("answer: 4, 1", [], ["#4", "#1"]),
        ("answer: #4 #1", [], ["#4", "#1"]),
        ("answer: The  Thing #4; and #1 tail", [], ["The Thing #4", "and #1"]),
        ("search: x\nanswer: #1", ["search_corpus"], None),
        ("answer:", [], []),
        ("", [], None),
        ("\n \n", [], None),
    ],
)
def test_any_reply_is_read(renderer: LinesRenderer, reply: str, names: list[str], ranking: list[str] | None) -> None:
    action = renderer.parse(renderer.encode(reply))
    assert [call.name.lower() for call in action.calls] == names
    assert (None if action.ranking is None else [item.id for item in action.ranking]) == ranking


def test_a_long_reply_is_read_up_to_a_limit(renderer: LinesRenderer) -> None:
    action = renderer.parse(renderer.encode("prune: #1\n" * LONGEST_REPLY))
    assert len(action.calls) == LONGEST_REPLY // len("prune: #1\n")


def test_the_opening_is_short_and_wants_numbered_passages(renderer: LinesRenderer) -> None:
    assert "search: a few words" in renderer.opening(lean()).text
    with pytest.raises(ConfigError, match="use profile lean"):
        renderer.opening(default())


def test_an_episode_in_lines_trains_what_was_sampled(renderer: LinesRenderer, corpus: MemoryCorpus) -> None:
    replies = ["search: rivers", "search: comets\nprune: #0 #99", "restore: #0", "nonsense", "answer: #0 #4"]
    engine = FakeEngine([renderer.encode(reply) + renderer.stop[:1] for reply in replies])
    with SearchAgent(corpus, TokenPolicy(engine, renderer), profile=lean(), budget=4_096) as agent:
        (trajectory,) = agent.search(QUESTION).trajectories
    ended = trajectory.events[-1]
    assert isinstance(ended, EpisodeEnded)
    assert (ended.stop_reason, len(ended.documents), ended.mistakes) == ("finished", 2, 2)
    rows = sampled_rows(trajectory)
    sampled = [token for row in rows for token, taught in zip(row.input_ids, row.loss_mask, strict=True) if taught]
    assert renderer.decode(sampled) == "<|im_end|>".join([*replies, ""])
