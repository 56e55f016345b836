"""Prompts by a tokenizer's own chat template, for models that do not speak harmony.

Replies as lines of commands, in the lean profile.
"""

from __future__ import annotations

import random
import sys
from collections.abc import Sequence
from typing import Any

import pytest
from tokenizers import AddedToken

from context_agent import Action, MemoryCorpus, RankedId, SearchAgent, ToolCall, Trajectory
from context_agent.errors import ConfigError
from context_agent.harness.action_text import ranking_of
from context_agent.harness.profile import context_1, default, lean
from context_agent.policies.tokens import TokenPolicy
from context_agent.policies.tokens import template as template_module
from context_agent.policies.tokens.engines import FakeEngine
from context_agent.policies.tokens.lines import LONGEST_REPLY, LinesRenderer
from context_agent.policies.tokens.template import TemplateRenderer
from context_agent.pruning.view import EpisodeEnded
from context_agent.testing.random_views import random_text
from context_agent.testing.token_episodes import FORGERIES, QUESTION, play, small_corpus
from context_agent.train.rows import sampled_rows
from context_agent.train.tiny_model import for_transformers, tiny_tokenizer

pytest.importorskip("transformers", reason="chat templates are rendered by transformers (the train extra)")


HERMES = r"""{%- if tools %}<|im_start|>system
{{ messages[0].content }}
# Tools
{% for tool in tools %}{{ tool | tojson }}
{% endfor %}For each call: <tool_call>
{"name": <name>, "arguments": <args>}
</tool_call><|im_end|>
{% set messages = messages[1:] %}{%- endif %}
{%- for m in messages %}
{%- if m.role == 'tool' %}
{%- if loop.previtem.role != 'tool' %}<|im_start|>user{% endif %}{{ '\n' }}<tool_response>
{{ m.content }}
</tool_response>{% if loop.last or loop.nextitem.role != 'tool' %}<|im_end|>
{% endif %}
{%- else %}<|im_start|>{{ m.role }}
{{ m.content }}<|im_end|>
{% endif %}
{%- endfor %}
{%- if add_generation_prompt %}<|im_start|>assistant
{% if enable_thinking is defined and not enable_thinking %}<think>

</think>

{% endif %}{% endif %}"""
"""As Qwen and Hermes models write it."""
THINKING = HERMES.replace("<|im_start|>assistant\n{% if", "<|im_start|>assistant\n<think>\n{% if")
"""As models write it that always think: the prompt opens the thought, and the reply closes it."""
STRICT = """{% for m in messages %}{% if m.role in ('system', 'tool') %}{{ raise_exception('no such role') }}{% endif %}
{%- if loop.index0 % 2 != (m.role == 'assistant') | int %}{{ raise_exception('roles must alternate') }}{% endif %}
<|im_start|>{{ m.role }}
{{ m.content | trim }}<|im_end|>
{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant
{% endif %}"""
"""As Gemma and Mistral models have it: no system, no tools, strict turns, trimmed content."""


@pytest.fixture(scope="module")
def tokenizer() -> Any:
    backend = tiny_tokenizer(["Which comets met which bridges? A tool, a search, a corpus."] * 4, size=600)
    backend.add_special_tokens(
        [AddedToken(f"<|im_{name}|>", special=True, normalized=False) for name in ("start", "end")]
    )
    backend.add_tokens([AddedToken(f"<{s}tool_call>", special=False, normalized=False) for s in ("", "/")])
    return for_transformers(backend)


def renderer(tokenizer: Any, template: str, **options: Any) -> TemplateRenderer:
    tokenizer.chat_template = template
    return TemplateRenderer(tokenizer, **options)


@pytest.mark.parametrize("template", [HERMES, STRICT], ids=["hermes", "strict"])
def test_the_prompt_is_what_the_template_renders(tokenizer: Any, template: str) -> None:
    chat_renderer = renderer(tokenizer, template)
    question = "Which comet?"
    opening = chat_renderer.opening(default())
    text = chat_renderer.decode([*opening.before, *chat_renderer.encode(question), *opening.after])
    assert question in text
    assert text.endswith("<|im_end|>\n<|im_start|>assistant\n")
    for tool in default().tools:
        assert f'"name":"{tool}"' in text or f'"name": "{tool}"' in text
    assert "<tool_call>" in text, "the form of a call is told"


def test_results_come_as_tool_messages_where_the_template_has_them(tokenizer: Any) -> None:
    chat_renderer = renderer(tokenizer, HERMES)
    end = chat_renderer.stop[0]
    assert chat_renderer.decode([end]) == "<|im_end|>"
    first, between, last = chat_renderer.frame((7, end), ["search_corpus", "grep_corpus"])
    assert chat_renderer.decode(first) == "\n<|im_start|>user\n<tool_response>\n"
    assert chat_renderer.decode(between) == "\n</tool_response>\n<tool_response>\n"
    assert chat_renderer.decode(last) == "\n</tool_response><|im_end|>\n<|im_start|>assistant\n"
    assert chat_renderer.frame((7,), ["search_corpus"])[0] == (end, *first), "a reply that was cut is closed"


def test_results_come_as_the_user_s_where_it_has_none(tokenizer: Any) -> None:
    chat_renderer = renderer(tokenizer, STRICT)
    first, between, last = chat_renderer.frame((), ["search_corpus", "grep_corpus"])
    assert [chat_renderer.decode(part) for part in (first, between, last)] == [
        "<|im_end|>\n<|im_start|>user\n",
        "\n",
        "<|im_end|>\n<|im_start|>assistant\n",
    ]


def test_options_reach_the_template(tokenizer: Any) -> None:
    chat_renderer = renderer(tokenizer, HERMES, options={"enable_thinking": False})
    assert chat_renderer.decode(chat_renderer.opening(default()).after).endswith("<think>\n\n</think>\n\n")


@pytest.mark.parametrize("template", [HERMES, STRICT], ids=["hermes", "strict"])
@pytest.mark.parametrize("seed", range(3))
def test_episodes_are_exact(tokenizer: Any, template: str, seed: int) -> None:
    chat_renderer = renderer(tokenizer, template)
    run = play(small_corpus(), chat_renderer, seed, window=16_384, turns=5, profile=context_1() if seed else default())
    rows = sampled_rows(run.result.trajectories[0])
    trained = [t for row in rows for t, keep in zip(row.input_ids, row.loss_mask, strict=True) if keep]
    assert trained == [token for sample in run.engine.samples for token in sample.ids]
    for view, request in zip(run.views, run.engine.requests, strict=True):
        assert len(request.prompt) <= view.tokens
        assert len(request.prompt) + request.max_tokens <= view.budget.window


@pytest.mark.parametrize(
    "action",
    [
        Action((ToolCall("search_corpus", {"query": "x"}),), reasoning="Look."),
        Action((ToolCall("search_corpus", {"query": "x"}), ToolCall("grep_corpus", {"pattern": "é"})), text="Both."),
        Action(text="<Document id=d1><Justification>so</Justification></Document>"),
        Action((ToolCall("search_corpus", {"query": "a </tool_call> and a <tool_call> after </think>"}),)),
    ],
)
def test_a_reply_that_was_written_is_read_back(tokenizer: Any, action: Action) -> None:
    chat_renderer = renderer(tokenizer, HERMES)
    parsed = chat_renderer.parse(chat_renderer.reply(action))
    assert [(c.name, c.arguments) for c in parsed.calls] == [(c.name, c.arguments) for c in action.calls]
    assert (parsed.text, parsed.reasoning) == (action.text, action.reasoning)


@pytest.mark.parametrize("reasoning", ["", "Look."])
@pytest.mark.parametrize("kind", [TemplateRenderer, LinesRenderer])
def test_a_thought_that_the_template_opens_is_closed_once(
    tokenizer: Any, kind: type[TemplateRenderer], reasoning: str
) -> None:
    tokenizer.chat_template = THINKING
    chat_renderer = kind(tokenizer)
    opening = chat_renderer.opening(lean())
    for action in (
        Action((ToolCall("search_corpus", {"query": "x"}),), reasoning=reasoning),
        Action(ranking=(RankedId("#4"),), reasoning=reasoning),
    ):
        ids = chat_renderer.reply(action)
        text = chat_renderer.decode([*opening.after, *ids])
        assert text.count("<think>") == text.count("</think>") == 1
        assert text.index("<think>") < text.index("</think>")
        parsed = chat_renderer.parse(ids)
        assert [(c.name, c.arguments) for c in parsed.calls] == [(c.name, c.arguments) for c in action.calls]
        assert parsed.reasoning == ("" if kind is LinesRenderer else reasoning)
        if not action.calls:
            assert [item.id for item in ranking_of(parsed)] == ["#4"]


def test_lines_after_a_thought_are_the_reply(lines_renderer: LinesRenderer) -> None:
    parsed = lines_renderer.parse(lines_renderer.encode("<think>\nWho? answer: #9\n</think>\n\nsearch: who built it?"))
    assert [(call.name, call.arguments) for call in parsed.calls] == [("search_corpus", {"query": "who built it?"})]
    assert parsed.reasoning == "Who? answer: #9"
    in_a_query = lines_renderer.parse(lines_renderer.encode("search: the tags <think> and </think>"))
    assert in_a_query.calls[0].arguments == {"query": "the tags <think> and </think>"}


def test_a_ranking_from_another_format_is_written_in_the_published_one(tokenizer: Any) -> None:
    chat_renderer = renderer(tokenizer, HERMES)
    parsed = chat_renderer.parse(chat_renderer.reply(Action(ranking=(RankedId("#4"),), text="answer: #4")))
    assert parsed.text == "<Document id=#4><Justification></Justification></Document>"


def test_no_content_gives_an_added_token(tokenizer: Any) -> None:
    chat_renderer = renderer(tokenizer, HERMES)
    draw = random.Random(4)
    for _ in range(200):
        text = random_text(draw) + draw.choice(FORGERIES)
        ids = chat_renderer.encode(text)
        assert not any(chat_renderer.vocabulary.reserves(token) for token in ids)


def test_a_search_through_the_template(tokenizer: Any) -> None:
    chat_renderer = renderer(tokenizer, HERMES)
    replies = [Action((ToolCall("search_corpus", {"query": "comets"}),)), Action(text="<Document id=d34></Document>")]
    engine = FakeEngine([chat_renderer.reply(action) for action in replies])
    result = SearchAgent(small_corpus(), TokenPolicy(engine, chat_renderer)).search(QUESTION)
    assert [document.id for document in result.documents] == ["d34"]


@pytest.mark.parametrize("template", [None, "", "{{ messages[0].content }}"])
def test_a_template_that_cannot_work_is_refused(tokenizer: Any, template: str | None) -> None:
    with pytest.raises(ConfigError, match="template"):
        renderer(tokenizer, template)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("template", "reason"),
    [
        ("{{ messages[0].content + 1 }}", "TypeError"),
        ("{{ raise_exception('no role fits') }}", "no role fits"),
        ("{% for m in messages %}", "TemplateSyntaxError"),
        ("{{ messages[0].content }}", "omits or reorders messages"),
    ],
)
def test_the_error_about_a_template_says_what_the_template_does(tokenizer: Any, template: str, reason: str) -> None:
    with pytest.raises(ConfigError, match=reason):
        renderer(tokenizer, template)


@pytest.mark.parametrize("inner", ["x", "", "{% if loop.previtem %}{{ messages | length }}{% endif %}"])
def test_a_template_that_loops_is_stopped(tokenizer: Any, inner: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(template_module, "TEMPLATE_SECONDS", 0.2)
    loops = [f"{{% for i{n} in range(100000) %}}" for n in range(4)]
    trace = sys.gettrace()
    with pytest.raises(ConfigError, match="loops"):
        renderer(tokenizer, "".join(loops) + inner + "{% endfor %}" * 4)
    assert sys.gettrace() is trace


CHAT_ML = """{% for m in messages %}<|im_start|>{{ m.role }}
{{ m.content }}<|im_end|>
{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant
{% endif %}"""


@pytest.fixture(scope="module")
def lines_renderer() -> LinesRenderer:
    tokenizer = tiny_tokenizer(["search: prune: keep: answer: #1 #2"], size=512)
    tokenizer.add_special_tokens([AddedToken(token, special=True) for token in ("<|im_start|>", "<|im_end|>")])
    chat_tokenizer: Any = for_transformers(tokenizer)
    chat_tokenizer.chat_template = CHAT_ML
    return LinesRenderer(chat_tokenizer, name="tiny")


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
        (Action(ranking=(RankedId("#4"),), text="I would cite 4."), "answer: #4"),
    ],
)
def test_an_action_is_a_few_lines_and_is_read_back(lines_renderer: LinesRenderer, action: Action, text: str) -> None:
    ids = lines_renderer.reply(action)
    assert lines_renderer.decode(ids) == f"{text}<|im_end|>"
    parsed = lines_renderer.parse(ids)
    assert lines_renderer.reply(parsed) == ids
    assert [call.name for call in parsed.calls] == [call.name for call in action.calls]
    assert parsed.ranking == action.ranking


def test_a_ranking_in_the_published_format_is_written_as_a_line(lines_renderer: LinesRenderer) -> None:
    """So that an expert behind a server can teach this format."""
    text = "<Document id=#4><Justification>so</Justification></Document>\n<Document id=#1></Document>"
    assert lines_renderer.decode(lines_renderer.reply(Action(text=text))) == "answer: #4, #1<|im_end|>"


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
def test_any_reply_is_read(
    lines_renderer: LinesRenderer, reply: str, names: list[str], ranking: list[str] | None
) -> None:
    action = lines_renderer.parse(lines_renderer.encode(reply))
    assert [call.name.lower() for call in action.calls] == names
    assert (None if action.ranking is None else [item.id for item in action.ranking]) == ranking


def played_in_lines(
    renderer: LinesRenderer, corpus: MemoryCorpus, replies: Sequence[str]
) -> tuple[Trajectory, EpisodeEnded]:
    """An episode of the profile `lean` in which the model gives these replies, and its end."""
    engine = FakeEngine([renderer.encode(reply) + renderer.stop[:1] for reply in replies])
    with SearchAgent(corpus, TokenPolicy(engine, renderer), profile=lean(), budget=4_096) as agent:
        (trajectory,) = agent.search(QUESTION).trajectories
    end = trajectory.events[-1]
    assert isinstance(end, EpisodeEnded)
    return trajectory, end


@pytest.mark.parametrize("line", ["keep:", "keep: ,;", "prune:", "restore: "])
def test_a_line_that_names_nothing_changes_nothing(
    lines_renderer: LinesRenderer, corpus: MemoryCorpus, line: str
) -> None:
    replies = [f"search: {QUESTION}", line, "answer: #0"]
    trajectory, end = played_in_lines(lines_renderer, corpus, replies)
    assert (end.stop_reason, end.mistakes) == ("finished", 1)
    *_, last = trajectory.views()
    assert last.blocks
    assert not last.hidden


def test_a_long_reply_is_read_up_to_a_limit(lines_renderer: LinesRenderer) -> None:
    action = lines_renderer.parse(lines_renderer.encode("prune: #1\n" * LONGEST_REPLY))
    assert len(action.calls) == LONGEST_REPLY // len("prune: #1\n")


def test_the_opening_is_short_and_wants_numbered_passages(lines_renderer: LinesRenderer) -> None:
    assert "search: a few words" in lines_renderer.opening(lean()).text
    with pytest.raises(ConfigError, match="profile lean"):
        lines_renderer.opening(default())


def test_an_episode_in_lines_trains_what_was_sampled(lines_renderer: LinesRenderer, corpus: MemoryCorpus) -> None:
    replies = ["search: rivers", "search: comets\nprune: #0 #99", "restore: #0", "nonsense", "answer: #0 #4"]
    trajectory, end = played_in_lines(lines_renderer, corpus, replies)
    assert (end.stop_reason, end.mistakes) == ("finished", 2)
    *_, last = trajectory.views()
    labels = {block.label: block.document_id for block in last.blocks}
    assert [document.id for document in end.documents[:2]] == [labels["#0"], labels["#4"]]
    rows = sampled_rows(trajectory)
    sampled = [token for row in rows for token, use in zip(row.input_ids, row.loss_mask, strict=True) if use]
    assert lines_renderer.decode(sampled) == "<|im_end|>".join([*replies, ""])
