"""Conversations as real agents have them: giant results, repeated ids, images, large arguments, many stubs."""

from __future__ import annotations

import base64
import copy
import json
import struct
from fractions import Fraction
from typing import Any

import pytest

from context_agent.errors import ConfigError
from context_agent.pruning import ContextPruner, Prices
from context_agent.pruning.bundles import find_conversation
from context_agent.pruning.formats.parts import result_texts
from context_agent.pruning.images import UNKNOWN_SIZE, ImageRule, image_tokens
from context_agent.pruning.messages import Transcript
from context_agent.tokens import CharCounter
from tests.support.conversations import rendered
from tests.support.long_conversation import FILM, LONG, TASK, conversation, noises, pruner

ALWAYS = Prices(cached=1.0)


def everything(report: Any) -> list[str]:
    return [item.id for item in report.removed]


def chat(*turns: tuple[str, Any], ids: Any = None, user: str = TASK) -> list[dict[str, Any]]:
    """Chat messages: for each turn the arguments of a call and its result. `ids` gives the ids of the calls."""
    messages: list[dict[str, Any]] = [{"role": "user", "content": user}]
    for number, (arguments, result) in enumerate(turns):
        call_id = ids(number) if ids else f"c{number}"
        function = {"name": "read", "arguments": arguments}
        messages.append(
            {
                "role": "assistant",
                "content": None,
                "tool_calls": [{"id": call_id, "type": "function", "function": function}],
            }
        )
        messages.append({"role": "tool", "tool_call_id": call_id, "content": result})
    return messages


# Giant results


@pytest.mark.parametrize("effort", ["fast", "careful"])
def test_the_newest_result_is_cut_by_relevance_if_it_alone_is_larger_than_the_budget(effort: str) -> None:
    giant = f"{noises(0, 40)}\n\n{FILM}\n\n{noises(50, 40)}"
    messages = chat(("{}", giant))
    keeper = pruner(effort=effort)
    pruned = keeper.prune(messages)
    assert pruned.report.outcome == "pruned"
    assert pruned.report.tokens_after <= 300
    assert "Ana Berg" in pruned.messages[2]["content"]
    assert keeper.prune(messages).messages == pruned.messages
    assert keeper.restore(pruned.messages, everything(pruned.report)) == messages


def test_small_results_of_the_last_turn_stay_beside_a_giant_one() -> None:
    calls = [{"id": f"c{n}", "type": "function", "function": {"name": "f", "arguments": "{}"}} for n in range(3)]
    results = ["a small result", noises(0, 60), "another small result"]
    messages = [
        {"role": "user", "content": TASK},
        {"role": "assistant", "content": None, "tool_calls": calls},
        *({"role": "tool", "tool_call_id": f"c{n}", "content": text} for n, text in enumerate(results)),
    ]
    pruned = pruner().prune(messages)
    assert pruned.messages[2] is messages[2]
    assert pruned.messages[4] is messages[4]
    assert pruned.report.tokens_after <= 300


def test_a_result_of_many_megabytes_is_cut_too() -> None:
    messages = rendered("openai", conversation("word " * 500_000, noises(0, 9), noises(10, 2), "done"))
    keeper = pruner(strategy="age")
    pruned = keeper.prune(messages)
    assert pruned.report.outcome == "pruned"
    assert pruned.report.tokens_after <= 300
    assert keeper.restore(pruned.messages, everything(pruned.report)) == messages


def test_a_giant_error_does_not_keep_the_rest_out() -> None:
    error = f"Error: the build failed.\n\n{noises(0, 90)}"
    turns = conversation(FILM, noises(100, 3), "done")
    messages = rendered("anthropic", turns)
    part = next(p for m in messages for p in m["content"] if p.get("tool_use_id") == "c1")
    part |= {"is_error": True, "content": error}
    pruned = pruner().prune(messages)
    assert pruned.report.tokens_after <= 300
    assert "Ana Berg" in str(pruned.messages)


def test_what_cannot_fit_is_said() -> None:
    keeper = pruner(40)
    messages = chat(*(("{}", noises(10 * n, 3)) for n in range(4)))
    pruned = keeper.prune(messages)
    restored = keeper.prune([*pruned.messages, {"role": "user", "content": "restore: p1-p9"}])
    assert restored.report.outcome == "over budget"
    assert "tokens of tool results stay, 40 fit" in restored.report.warnings[-1]


# Ids


@pytest.mark.parametrize("ids", [lambda n: "call_0", lambda n: None, lambda n: "read", lambda n: ""])
def test_calls_whose_ids_repeat_or_miss_are_paired_by_position(ids: Any) -> None:
    messages = chat(*(("{}", noises(10 * n, 4) if n != 1 else f"{FILM}\n\n{noises(10, 3)}") for n in range(5)), ids=ids)
    before = copy.deepcopy(messages)
    keeper = pruner()
    pruned = keeper.prune(messages)
    assert pruned.report.outcome == "pruned"
    assert pruned.report.warnings == ()
    assert pruned.report.tokens_after <= 300
    assert "Ana Berg" in pruned.messages[4]["content"]
    assert keeper.prune(pruned.messages).messages == pruned.messages
    assert keeper.restore(pruned.messages, everything(pruned.report)) == before


def test_equal_results_of_calls_with_one_id_are_told_apart() -> None:
    messages = chat(*(("{}", noises(0, 6)) for _ in range(4)), ("{}", "done"), ids=lambda n: "call_0")
    keeper = pruner(120, strategy="age")
    pruned = keeper.prune(messages)
    ids = everything(pruned.report)
    assert len(ids) == len(set(ids))
    assert keeper.restore(pruned.messages, ids) == messages
    assert keeper.restore(messages, []) == messages


def test_parallel_calls_without_ids_are_paired_by_name_and_then_by_position() -> None:
    names = ["read", "search", "read"]
    texts = [noises(0, 6), noises(10, 6), noises(20, 6)]
    messages: list[dict[str, Any]] = [
        {"role": "user", "content": TASK},
        {"role": "assistant", "content": "", "tool_calls": [{"function": {"name": n, "arguments": {}}} for n in names]},
        *({"role": "tool", "tool_name": n, "content": t} for n, t in zip(names, texts, strict=True)),
        {"role": "assistant", "content": "I go on."},
    ]
    pruned = pruner().prune(messages)
    assert pruned.report.warnings == ()
    assert pruned.report.outcome == "pruned"


def test_a_call_that_was_interrupted_does_not_take_the_result_of_a_later_one() -> None:
    messages = chat(("{}", noises(0, 6)), ("{}", noises(10, 6)), ("{}", "done"), ids=lambda n: "call_0")
    interrupted = [*messages[:3], messages[1], *messages[3:]]
    pruned = pruner().prune(interrupted)
    assert [w for w in pruned.report.warnings if "call without a result" in w]
    assert pruned.report.removed


# Formats


def bedrock(*texts: str) -> list[dict[str, Any]]:
    messages: list[dict[str, Any]] = [{"role": "user", "content": [{"text": TASK}]}]
    for number, text in enumerate(texts):
        use = {"toolUseId": f"t{number}", "name": "search", "input": {"query": "more"}}
        content = [{"text": text}] if number % 2 else [{"json": {"results": text.split("\n\n"), "total": 3.5}}]
        result = {"toolUseId": f"t{number}", "content": content, "status": "success"}
        messages += [
            {"role": "assistant", "content": [{"text": "I search."}, {"toolUse": use}]},
            {"role": "user", "content": [{"toolResult": result}]},
        ]
    return messages


def gemini(*texts: str, snake: bool = False) -> list[dict[str, Any]]:
    call_key, result_key = ("function_call", "function_response") if snake else ("functionCall", "functionResponse")
    messages: list[dict[str, Any]] = [{"role": "user", "parts": [{"text": TASK}]}]
    for text in texts:
        messages += [
            {"role": "model", "parts": [{call_key: {"name": "search", "args": {"query": "more"}}}]},
            {"role": "user", "parts": [{result_key: {"name": "search", "response": {"result": text}}}]},
        ]
    return messages


def interactions(*texts: str) -> list[dict[str, Any]]:
    """Steps of Gemini's Interactions API. A result is a text, a list of parts or an object."""
    steps: list[dict[str, Any]] = [{"type": "user_input", "content": [{"type": "text", "text": TASK}]}]
    for number, text in enumerate(texts):
        outputs = (text, [{"type": "text", "text": text}], {"results": text.split("\n\n"), "total": 3.5})
        steps += [
            {"type": "thought", "signature": "c2ln", "summary": [{"type": "text", "text": "I search."}]},
            {"type": "function_call", "id": f"f{number}", "name": "search", "arguments": {"query": "more " * 300}},
            {"type": "function_result", "call_id": f"f{number}", "name": "search", "result": outputs[number % 3]},
        ]
    return steps


def legacy(*texts: str) -> list[dict[str, Any]]:
    messages: list[dict[str, Any]] = [{"role": "user", "content": TASK}]
    for text in texts:
        messages += [
            {"role": "assistant", "content": None, "function_call": {"name": "search", "arguments": "{}"}},
            {"role": "function", "name": "search", "content": text},
        ]
    return messages


TEXTS = (noises(0, 6), f"{noises(10, 3)}\n\n{FILM}\n\n{noises(20, 3)}", noises(30, 6), "done")


@pytest.mark.parametrize(
    ("kind", "messages"),
    [
        ("bedrock", bedrock(*TEXTS)),
        ("gemini", gemini(*TEXTS)),
        ("gemini", gemini(*TEXTS, snake=True)),
        ("gemini", interactions(*TEXTS)),
        ("openai", legacy(*TEXTS)),
    ],
)
def test_histories_of_other_providers_are_pruned(kind: str, messages: list[Any]) -> None:
    before = copy.deepcopy(messages)
    keeper = pruner()
    pruned = keeper.prune(messages)
    assert pruned.report.kind == kind
    assert pruned.report.outcome == "pruned"
    assert pruned.report.warnings == ()
    assert pruned.report.tokens_after <= 300
    assert "Ana Berg" in str(pruned.messages)
    assert messages == before
    assert keeper.prune(pruned.messages).messages == pruned.messages
    assert keeper.restore(pruned.messages, everything(pruned.report)) == before


def test_steps_of_an_interaction_keep_what_is_signed() -> None:
    steps = interactions(*TEXTS)
    own = [
        {"type": "google_search_call", "id": "g", "arguments": {"queries": ["director"]}, "signature": "c2ln"},
        {
            "type": "google_search_result",
            "call_id": "g",
            "result": [{"search_suggestions": TEXTS[0]}],
            "signature": "s",
        },
        {"type": "code_execution_call", "id": "e", "arguments": {"code": "print(1)", "language": "python"}},
        {"type": "code_execution_result", "call_id": "e", "result": TEXTS[0], "signature": "c2ln"},
        {"type": "tool_search_call", "id": "s", "arguments": {"query": "film"}, "signature": "c2ln"},
        {"type": "tool_search_result", "call_id": "s", "result": [{"type": "function", "name": "film"}]},
        {"type": "model_output", "content": [{"type": "text", "text": "I looked."}, {"type": "image", "data": "a"}]},
    ]
    failed = {"type": "function_result", "call_id": "f0", "result": "nothing", "is_error": True}
    history = [*steps[:3], failed, *own, *steps[4:]]
    pruned = pruner().prune(history)
    assert pruned.report.warnings == ()
    changed = [step["type"] for step, new in zip(history, pruned.messages, strict=True) if step != new]
    assert set(changed) == {"function_result"}
    assert Transcript(history).results[0].is_error
    assert "I looked." in Transcript(history).contents[10].text


@pytest.mark.parametrize("history", [gemini, legacy])
@pytest.mark.parametrize("is_restored_first", [False, True])
def test_a_result_that_repeats_the_stub_of_a_call_without_an_id_stays_text(
    history: Any, *, is_restored_first: bool
) -> None:
    keeper, before = pruner(), history(*TEXTS)
    pruned = keeper.prune(before)
    seen = keeper.restore(pruned.messages, everything(pruned.report)) if is_restored_first else pruned.messages
    imitations = [*history("done")[1:2], pruned.messages[2], *history("done")[1:]]
    again = keeper.prune([*seen, *imitations])
    removed = everything(again.report) + ([] if is_restored_first else everything(pruned.report))
    assert keeper.restore(again.messages, removed) == [*before, *imitations]


def test_a_json_value_keeps_its_type_and_its_other_members() -> None:
    pruned = pruner().prune(bedrock(*TEXTS))
    value = pruned.messages[2]["content"][0]["toolResult"]["content"][0]["json"]
    assert value["total"] == 3.5
    assert isinstance(value["results"], list)
    assert any("pruned" in item for item in value["results"])


@pytest.mark.parametrize("is_cited", [False, True])
@pytest.mark.parametrize(
    "part",
    [
        {"searchResult": {"source": "a", "title": "b", "content": [{"text": TEXTS[0]}]}},
        {"document": {"format": "txt", "name": "b", "source": {"text": TEXTS[0]}}},
        {"document": {"name": "b", "source": {"content": [{"text": TEXTS[0]}]}}},
    ],
)
def test_the_texts_of_a_source_of_bedrock_are_pruned_unless_they_can_be_cited(
    part: dict[str, dict[str, Any]], *, is_cited: bool
) -> None:
    messages = bedrock(*TEXTS)
    ((kind, found),) = part.items()
    own = [{kind: {**found, "citations": {"enabled": is_cited}}}]
    messages[2]["content"][0]["toolResult"]["content"] = own
    pruned = pruner().prune(messages)
    assert pruned.report.warnings == ()
    assert (pruned.messages[2] == messages[2]) == is_cited


def test_a_new_part_of_bedrock_does_not_hide_the_calls_of_its_message() -> None:
    messages = bedrock(*TEXTS)
    cited = {"citationsContent": {"content": [{"text": "I looked."}], "citations": []}}
    tool = {"toolAddition": {"tool": {"type": "toolDefinition"}}}
    messages[1]["content"][:0] = [cited, tool]
    messages[3]["content"].insert(0, {"newContent": {}})
    pruned = pruner().prune(messages)
    assert len(pruned.report.warnings) == 1
    assert "'newContent'" in pruned.report.warnings[0]
    assert pruned.messages[2] != messages[2]


@pytest.mark.parametrize("names", [("toolCall", "toolResponse"), ("tool_call", "tool_response")])
def test_the_tools_of_google_between_other_parts_stay(names: tuple[str, str]) -> None:
    messages = gemini(*TEXTS)
    call, answer = names
    own = [
        {call: {"toolType": "GOOGLE_SEARCH_WEB", "id": "g", "args": {"queries": ["director"]}}},
        {answer: {"toolType": "GOOGLE_SEARCH_WEB", "id": "g", "response": {"found": TEXTS[0]}}},
    ]
    messages[1]["parts"] = [*own, *messages[1]["parts"]]
    pruned = pruner().prune(messages)
    assert pruned.report.warnings == ()
    assert pruned.report.outcome == "pruned"
    assert pruned.messages[1] == messages[1]


def test_a_result_of_ag_ui_with_an_error_is_one() -> None:
    call = {"id": "c", "type": "function", "function": {"name": "search", "arguments": "{}"}}
    messages = [
        {"id": "1", "role": "user", "content": TASK},
        {"id": "2", "role": "assistant", "toolCalls": [call]},
        {"id": "3", "role": "tool", "toolCallId": "c", "content": "nothing", "error": "no such index"},
    ]
    assert [it.is_error for it in Transcript(messages).results] == [True]
    del messages[2]["error"]
    assert [it.is_error for it in Transcript(messages).results] == [False]


def test_the_tags_around_results_in_saved_chats_stay() -> None:
    messages: list[Any] = [{"from": "system", "value": "You search."}, {"from": "human", "value": TASK}]
    for text in TEXTS:
        call = '<tool_call>\n{"name": "search", "arguments": {}}\n</tool_call>'
        answer = f"<tool_response>\n{text}\n</tool_response>"
        messages += [{"from": "gpt", "value": call}, {"from": "tool", "value": answer}]
    bundle = find_conversation({"id": "7", "conversations": messages})
    assert bundle is not None
    keeper = pruner()
    pruned = keeper.prune(bundle.messages)
    assert pruned.report.warnings == ()
    assert pruned.messages[3] != messages[3]
    tagged = [message["value"] for message in pruned.messages if message["from"] == "tool"]
    assert all(value.startswith("<tool_response>\n") for value in tagged)
    assert all(value.endswith("\n</tool_response>") for value in tagged)
    assert keeper.restore(pruned.messages, everything(pruned.report)) == messages
    assert "unknown type" in pruner().prune([*messages, {"from": "narrator", "value": "x"}]).report.warnings[0]


def test_pairs_of_role_and_text_are_messages() -> None:
    pruned = pruner().prune([("user", "hi"), ("assistant", "hello")])
    assert pruned.report.outcome == "within budget"
    assert pruned.report.warnings == ()


# Images


def png(width: int, height: int) -> str:
    header = b"\x89PNG\r\n\x1a\n\x00\x00\x00\rIHDR" + struct.pack(">II", width, height)
    return base64.b64encode(header + bytes(3_000)).decode()


@pytest.mark.parametrize(
    ("rule", "size", "tokens"),
    [
        ("pixels", (200, 200), 54),
        ("pixels", (4000, 3000), 1534),
        ("tiles", (1024, 1024), 765),
        ("tiles", (2048, 4096), 1105),
        ("squares", (300, 300), 258),
        ("squares", (1000, 700), 516),
    ],
)
def test_images_are_counted_as_their_provider_counts_them(rule: ImageRule, size: tuple[int, int], tokens: int) -> None:
    assert image_tokens(png(*size), rule) == tokens
    assert image_tokens(f"data:image/png;base64,{png(*size)}", rule) == tokens
    assert image_tokens(base64.b64decode(png(*size)), rule) == tokens


@pytest.mark.parametrize(
    ("part", "tokens"),
    [
        ({"type": "input_image", "image_url": f"data:image/png;base64,{png(1024, 1024)}", "detail": "low"}, 85),
        ({"type": "image_url", "image_url": {"url": "https://example.com/a.png", "detail": "low"}}, 85),
        ({"type": "image_url", "image_url": {"url": f"data:;base64,{png(1024, 1024)}", "detail": "high"}}, 765),
    ],
)
def test_an_image_with_low_detail_counts_the_same_at_any_size(part: dict[str, Any], tokens: int) -> None:
    (image,), _ = result_texts([part], ("output",), "responses")
    assert image.tokens == tokens


@pytest.mark.parametrize("data", ["https://example.com/a.png", "", "\x00", b"\xff\xd8\xff", "iVBORw0KGgo=", b"GIF89a"])
def test_an_image_of_unknown_size_counts_as_a_screenshot(data: str | bytes) -> None:
    assert image_tokens(data, "pixels") == UNKNOWN_SIZE


def test_the_sizes_of_other_formats_are_read() -> None:
    jpeg = b"\xff\xd8\xff\xe0\x00\x04ab\xff\xc0\x00\x11\x08" + struct.pack(">HH", 200, 200) + bytes(9)
    webp = b"RIFF\0\0\0\0WEBPVP8X\0\0\0\0\0\0\0\0" + (199).to_bytes(3, "little") * 2
    assert {image_tokens(data, "pixels") for data in (jpeg, webp, b"GIF89a\xc8\x00\xc8\x00")} == {54}


def screens(kind: str, count: int) -> list[Any]:
    """A conversation of a computer-use agent: a screenshot in each result."""
    data = [png(1280, 720 + n) for n in range(count)]
    if kind == "anthropic":
        messages: list[Any] = [{"role": "user", "content": TASK}]
        for n, image in enumerate(data):
            source = {"type": "base64", "media_type": "image/png", "data": image}
            content = [{"type": "text", "text": f"Screen {n}."}, {"type": "image", "source": source}]
            messages += [
                {"role": "assistant", "content": [{"type": "tool_use", "id": f"t{n}", "name": "screen", "input": {}}]},
                {"role": "user", "content": [{"type": "tool_result", "tool_use_id": f"t{n}", "content": content}]},
            ]
        return messages
    items: list[Any] = [{"role": "user", "content": TASK}]
    for n, image in enumerate(data):
        part = {"type": "input_image", "image_url": f"data:image/png;base64,{image}", "detail": "auto"}
        items += [
            {"type": "function_call", "call_id": f"t{n}", "name": "screen", "arguments": "{}"},
            {"type": "function_call_output", "call_id": f"t{n}", "output": [part]},
        ]
    return items


@pytest.mark.parametrize("kind", ["anthropic", "responses"])
def test_old_images_give_way_to_a_stub_and_the_newest_stays(kind: str) -> None:
    messages = screens(kind, 6)
    before = copy.deepcopy(messages)
    keeper = ContextPruner(3_000, effort="fast", prices=ALWAYS)
    pruned = keeper.prune(messages)
    assert pruned.report.tokens_before > 6_000
    assert pruned.report.tokens_after <= 3_000
    text = json.dumps(pruned.messages)
    assert png(1280, 725) in text
    assert png(1280, 720) not in text
    assert "1 passage pruned" in text
    assert keeper.prune(messages).messages == pruned.messages
    assert keeper.prune(pruned.messages).messages == pruned.messages
    assert keeper.restore(pruned.messages, everything(pruned.report)) == before


def test_the_mark_of_a_cached_prefix_stays_when_its_image_goes() -> None:
    """Agents move the mark from turn to turn. A stub has the mark only while its image has it."""
    unmarked = screens("anthropic", 6)
    marked = copy.deepcopy(unmarked)
    part = next(block for block in marked[2]["content"] if block["type"] == "tool_result")["content"][-1]
    assert part["type"] == "image"
    part["cache_control"] = {"type": "ephemeral"}
    keeper = ContextPruner(3_000, effort="fast", prices=ALWAYS)
    pruned = json.dumps(keeper.prune(marked).messages)
    assert png(1280, 720) not in pruned
    assert pruned.count("cache_control") == 1
    assert "cache_control" not in json.dumps(keeper.prune(unmarked).messages)


def test_a_breakpoint_of_openais_cache_stays_in_its_place() -> None:
    unmarked = screens("responses", 6)
    marked = copy.deepcopy(unmarked)
    marked[2]["output"][0]["prompt_cache_breakpoint"] = {"mode": "explicit"}
    keeper = ContextPruner(3_000, effort="fast", prices=ALWAYS)
    pruned = keeper.prune(marked)
    stub = pruned.messages[2]["output"][0]
    assert (stub["type"], stub["prompt_cache_breakpoint"]) == ("input_text", {"mode": "explicit"})
    assert "prompt_cache_breakpoint" not in json.dumps(keeper.prune(unmarked).messages)
    del stub["prompt_cache_breakpoint"]
    assert keeper.restore(pruned.messages, everything(pruned.report)) == unmarked


@pytest.mark.parametrize("image_had_it", [True, False])
@pytest.mark.parametrize("stub_has_it", [True, False])
def test_a_restored_image_has_the_mark_of_its_stub(*, image_had_it: bool, stub_has_it: bool) -> None:
    """A mark that came back with its image could be one more than the provider allows."""

    def set_mark(history: list[Any], *, is_set: bool) -> list[Any]:
        copied = copy.deepcopy(history)
        part = next(block for block in copied[2]["content"] if block["type"] == "tool_result")["content"][-1]
        part.pop("cache_control", None)
        part.update({"cache_control": {"type": "ephemeral", "ttl": "1h"}} if is_set else {})
        return copied

    before = set_mark(screens("anthropic", 6), is_set=image_had_it)
    keeper = ContextPruner(3_000, effort="fast", prices=ALWAYS)
    pruned = keeper.prune(before)
    stubs = set_mark(pruned.messages, is_set=stub_has_it)
    assert keeper.prune(stubs).messages == stubs
    assert keeper.restore(stubs, everything(pruned.report)) == set_mark(before, is_set=stub_has_it)


def test_the_newest_image_stays_when_the_last_turn_has_no_result() -> None:
    messages = [*screens("anthropic", 3), {"role": "assistant", "content": [{"type": "text", "text": "Done."}]}]
    pruned = ContextPruner(1_300, effort="fast", prices=ALWAYS).prune([*messages, {"role": "user", "content": TASK}])
    text = json.dumps(pruned.messages)
    assert png(1280, 722) in text
    assert png(1280, 721) not in text


def test_of_equal_images_the_first_stays() -> None:
    messages = screens("anthropic", 4)
    images = [part for message in messages[1:] for result in message["content"] if "content" in result
              for part in result["content"] if part["type"] == "image"]  # fmt: skip
    for image in images:
        image["source"] = images[0]["source"]
    pruned = ContextPruner(1_500, effort="fast", prices=ALWAYS).prune(messages)
    assert {item.reason for item in pruned.report.removed} >= {"copy of an earlier passage"}


# Large arguments


def written(number: int) -> str:
    lines = "\n".join(f"line {n} of the file number {number} says nothing of interest" for n in range(80))
    return json.dumps({"path": f"src/file_{number}.txt", "content": lines, "mode": 420})


def test_large_arguments_of_old_calls_are_shortened_inside_valid_json() -> None:
    messages = chat(*((written(n), "written") for n in range(4)))
    before = copy.deepcopy(messages)
    keeper = pruner(1_500)
    pruned = keeper.prune(messages)
    assert pruned.report.tokens_before > 3_000
    first = json.loads(pruned.messages[1]["tool_calls"][0]["function"]["arguments"])
    assert (first["path"], first["mode"]) == ("src/file_0.txt", 420)
    assert "pruned" in first["content"]
    assert pruned.messages[-2] is messages[-2]
    assert keeper.prune(pruned.messages).messages == pruned.messages
    assert keeper.restore(pruned.messages, everything(pruned.report)) == before


def test_a_large_argument_is_lost_from_the_cache_once() -> None:
    messages = chat(("{}", noises(0, 9)), (written(0), "written"), ("{}", "done"))
    tokens = CharCounter().count(written(0))
    report = pruner(1_200, strategy="age").prune(messages).report
    assert report.outcome == "pruned"
    assert tokens < report.cached_lost < 1.5 * tokens


def test_the_arguments_of_a_call_that_waits_for_its_result_stay() -> None:
    """A client that asks the user first runs the call with the arguments that it got back."""
    messages = chat((written(0), "written"), (written(1), "written"))
    keeper = pruner(100, strategy="age")
    waiting = keeper.prune(messages[:4])
    assert waiting.messages[3] is messages[3]
    assert waiting.messages[1] != messages[1]
    assert waiting.report.warnings == ()
    assert keeper.prune(messages).messages[3] != messages[3]


def test_arguments_that_are_values_stay_values() -> None:
    messages: list[Any] = [{"role": "user", "content": TASK}]
    for n in range(4):
        use = {"type": "tool_use", "id": f"t{n}", "name": "write", "input": json.loads(written(n))}
        messages += [
            {"role": "assistant", "content": [use]},
            {"role": "user", "content": [{"type": "tool_result", "tool_use_id": f"t{n}", "content": "written"}]},
        ]
    before = copy.deepcopy(messages)
    keeper = pruner(1_500)
    pruned = keeper.prune(messages)
    value = pruned.messages[1]["content"][0]["input"]
    assert value["mode"] == 420
    assert "pruned" in value["content"]
    assert keeper.restore(pruned.messages, everything(pruned.report)) == before


LONG_TEXT = "rain and wind " * 100


@pytest.mark.parametrize(
    ("kind", "action", "stays"),
    [
        ("computer_call", {"type": "drag", "path": [{"x": n, "y": n} for n in range(90)]}, True),
        ("local_shell_call", {"type": "exec", "command": ["make"], "env": {"NOTES": LONG_TEXT}}, True),
        ("local_shell_call", {"type": "exec", "command": ["sh", "-c", LONG_TEXT], "env": {}}, False),
        ("shell_call", {"commands": ["ls", LONG_TEXT, *["date"] * 9]}, False),
    ],
)
def test_the_types_of_an_action_stay(kind: str, action: dict[str, Any], stays: bool) -> None:
    """The provider refuses an action whose points or environment are texts."""
    messages = [
        {"role": "user", "content": TASK},
        {"type": kind, "call_id": "c1", "action": action},
        {"type": f"{kind}_output", "call_id": "c1", "output": noises(0, 6)},
        {"role": "assistant", "content": "I go on."},
    ]
    pruned = pruner(60).prune(messages).messages[1]["action"]
    assert (pruned == action) is stays
    assert [type(value) for value in pruned.values()] == [type(value) for value in action.values()]
    assert all(isinstance(item, str) for key in ("command", "commands") for item in pruned.get(key, ()))


def test_arguments_that_are_broken_json_stay() -> None:
    broken = written(0)[:-3]
    messages = chat((broken, "written"), *((written(n), "written") for n in range(1, 4)))
    pruned = pruner(1_500).prune(messages)
    assert pruned.messages[1] is messages[1]


# Many stubs


def test_the_stubs_of_many_results_shrink_until_they_fit() -> None:
    messages = chat(*(("{}", f"Result {n}. {noises(n, 1)}") for n in range(300)), ("{}", "done"))
    keeper = ContextPruner(2_000, effort="fast", prices=ALWAYS)
    pruned = keeper.prune(messages)
    assert pruned.report.tokens_after <= 2_000
    assert pruned.report.outcome == "pruned"
    assert any("results pruned" in message["content"] for message in pruned.messages if message["role"] == "tool")
    assert keeper.prune(messages).messages == pruned.messages
    assert keeper.prune(pruned.messages).messages == pruned.messages
    assert keeper.restore(pruned.messages, everything(pruned.report)) == messages
    one = everything(pruned.report)[0]
    assert sum(a == b for a, b in zip(keeper.restore(pruned.messages, [one]), messages, strict=True)) > sum(
        a == b for a, b in zip(pruned.messages, messages, strict=True)
    )


# Settings


@pytest.mark.parametrize(("budget", "tokens"), [("8000", 8000), ("8,000", 8000), (8000.0, 8000)])
def test_a_budget_is_a_number_of_tokens(budget: Any, tokens: int) -> None:
    assert ContextPruner(budget).budget.tokens(1_000_000) == tokens


@pytest.mark.parametrize("budget", [0.25, "25%", "25 %", "0.25"])
def test_a_budget_may_be_a_share(budget: Any) -> None:
    keeper = ContextPruner(budget, effort="fast", prices=ALWAYS, counter=CharCounter())
    messages = rendered("openai", LONG)
    report = keeper.prune(messages).report
    assert report.tokens_after <= 0.26 * report.tokens_before
    assert keeper.prune(messages).report.outcome == "within budget"


@pytest.mark.parametrize(
    "budget",
    [
        "100%",
        "much",
        "",
        1.5,
        True,
        None,
        float("nan"),
        float("inf"),
        10**400,
        Fraction(10**400, 3),
        -3,
        "0%",
        "-5",
        "1e9",
    ],
)
def test_other_budgets_are_refused_with_what_is_expected(budget: Any) -> None:
    with pytest.raises(ConfigError, match=r"a number of tokens of at least 1, such as 8000, or a share"):
        ContextPruner(budget)


def test_the_body_of_a_request_is_refused_with_what_to_pass() -> None:
    with pytest.raises(ConfigError, match=r"Pass messages\['messages'\]"):
        pruner().prune({"messages": rendered("openai", LONG)})  # type: ignore[arg-type]


# Text that a coding agent adds to the user's messages

REMINDER = "<system-reminder>\nAgents for the Agent tool: what can each of them do?\n</system-reminder>\n"
ENVIRONMENT = "<environment_context>\n  <cwd>/home</cwd>\n</environment_context>"
RULES = "# AGENTS.md instructions for /home\n\n<INSTRUCTIONS>\nBe polite to <b>all</b>.\n</INSTRUCTIONS>"


@pytest.mark.parametrize(
    "texts",
    [
        [REMINDER, REMINDER, TASK],
        [TASK, REMINDER],
        [TASK, REMINDER.replace("system-reminder", "environment_details")],
        [f"<user_instructions>\nBe polite to all of them.\n</user_instructions>{TASK}"],
        [f"<session_context>\nThis is the Gemini CLI.\n</session_context>{TASK}"],
    ],
)
def test_the_task_is_what_the_user_wrote(texts: list[str]) -> None:
    parts = [{"type": "text", "text": text} for text in texts]
    assert Transcript([{"role": "user", "content": parts}]).task == TASK


def test_a_message_of_added_text_alone_is_no_task() -> None:
    nag = {"role": "user", "content": [{"type": "text", "text": REMINDER}]}
    assert Transcript([{"role": "user", "content": TASK}, nag]).task == TASK
    added = {"role": "user", "content": f"{RULES}{ENVIRONMENT}"}
    assert Transcript([added, {"role": "user", "content": "Go on"}]).task == "Go on"


@pytest.mark.parametrize("text", ["Explain <system-reminder> to me please", "</system-reminder> is what it prints"])
def test_a_block_without_an_end_or_a_beginning_is_the_users(text: str) -> None:
    assert Transcript([{"role": "user", "content": text}]).task == text


@pytest.mark.parametrize("name", ["system-reminder", "environment_details", "user_instructions"])
def test_a_long_reminder_does_not_hide_the_question(name: str) -> None:
    reminder = f"<{name}>\n{noises(100, 40)}\n</{name}>\n"
    messages = chat(("{}", f"{noises(0, 40)}\n\n{FILM}\n\n{noises(50, 40)}"), user=f"{reminder}{TASK}")
    assert "Ana Berg" in pruner().prune(messages).messages[2]["content"]


@pytest.mark.parametrize(
    "names", [("human", "ai", "tool"), ("HumanMessageChunk", "AIMessageChunk", "ToolMessageChunk")]
)
def test_langchain_messages_that_were_saved_as_dicts_are_pruned(names: tuple[str, str, str]) -> None:
    human, ai, tool = names
    call = {"type": "tool_call", "id": "c0", "name": "read", "args": {"file": "film"}}
    parts = [
        {"type": "text", "text": "I look."},
        {"type": "tool_use", "id": "c0", "name": "read", "input": call["args"]},
    ]
    messages = [
        {"type": human, "content": TASK, "additional_kwargs": {}},
        {"type": ai, "content": parts, "tool_calls": [call]},
        {
            "type": tool,
            "content": f"{noises(0, 40)}\n\n{FILM}\n\n{noises(50, 40)}",
            "tool_call_id": "c0",
            "artifact": None,
        },
        {"type": ai, "content": "Ana.", "tool_calls": []},
    ]
    before = copy.deepcopy(messages)
    keeper = pruner()
    pruned = keeper.prune(messages)
    assert pruned.report.kind == "langchain"
    assert pruned.report.outcome == "pruned"
    assert "Ana Berg" in pruned.messages[2]["content"]
    assert [pruned.messages[number] for number in (0, 1, 3)] == [before[number] for number in (0, 1, 3)]
    assert keeper.restore(pruned.messages, everything(pruned.report)) == before
