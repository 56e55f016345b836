"""What the proxy does to a body: encodings, bytes that stay, paths of other providers, hints."""

from __future__ import annotations

import gzip
import io
import json
import random
import zlib
from collections.abc import Callable
from typing import Any

import brotli
import pytest
import zstandard

from context_agent._support.json_text import differences, with_values
from context_agent.integrations.conversation_pruners import ConversationPruners
from context_agent.integrations.server.compressed_bodies import UndecodableBody, decoded_body
from context_agent.integrations.server.conversation_paths import CODE_ASSIST_CONTENTS, conversation_field
from context_agent.integrations.server.pruned_bodies import BodyPruner, PrunedBody
from context_agent.pruning import ContextPruner, Prices
from tests.support.growth import MOST_GROWTH, growth
from tests.support.proxied import CHAT, conversation, proxy_client
from tests.support.upstream import Reply, upstream

LIMIT = 1_000_000


def zipped(data: bytes) -> bytes:
    compressor = zlib.compressobj(wbits=-15)
    return compressor.compress(data) + compressor.flush()


ENCODERS: dict[str, Callable[[bytes], bytes]] = {
    "gzip": gzip.compress,
    "deflate": zlib.compress,
    "deflate, bare": zipped,
    "br": brotli.compress,
    "zstd": zstandard.compress,
    "gzip, zstd": lambda data: zstandard.compress(gzip.compress(data)),
    "identity": bytes,
}


def bodies() -> BodyPruner:
    return BodyPruner(
        ConversationPruners(lambda: ContextPruner(300, strategy="bm25", prices=Prices(cached=1.0))), LIMIT
    )


@pytest.mark.parametrize("name", ENCODERS)
def test_a_compressed_conversation_is_pruned_and_sent_on_without_its_encoding(name: str) -> None:
    body = json.dumps({"model": "m", "messages": conversation(6)}).encode()
    encoding = name.removesuffix(", bare")
    headers = {"Content-Encoding": encoding, "Content-Type": "application/json", "Content-Digest": "sha-256=:x:"}
    with upstream(lambda _: Reply(b"{}")) as server, proxy_client(server.url) as client:
        answer = client.post(CHAT, content=ENCODERS[name](body), headers=headers)
        (received,) = server.requests
    assert json.loads(answer.headers["X-Context-Pruned"])["outcome"] == "pruned"
    sent = json.loads(received.body)
    assert sent["model"] == "m"
    assert "pruned" in json.dumps(sent["messages"])
    names = {field.lower() for field, _ in received.headers}
    assert not {"content-encoding", "content-digest"} & names


@pytest.mark.parametrize("name", ENCODERS)
def test_a_compressed_body_that_is_not_pruned_is_the_same_object(name: str) -> None:
    body = ENCODERS[name](json.dumps({"messages": conversation(1)}).encode())
    assert bodies().prune(body, "messages", b"", encodings=name.removesuffix(", bare")).body is body


@pytest.mark.parametrize("name", [name for name in ENCODERS if name != "identity"])
@pytest.mark.parametrize("damage", ["cut", "bomb", "garbage", "empty"])
def test_a_bomb_or_a_damaged_body_passes_unpruned(name: str, damage: str) -> None:
    text = json.dumps({"messages": conversation(6)}).encode()
    match damage:
        case "cut":
            whole = ENCODERS[name](text)
            body = whole[: len(whole) // 2]
        case "bomb":
            body = ENCODERS[name](text + b" " * 50 * LIMIT)
        case "garbage":
            body = b"\x00\xff" * 50
        case _:
            body = b""
    pruned = bodies().prune(body, "messages", b"", encodings=name.removesuffix(", bare"))
    assert pruned.body is body
    assert pruned.counts == {"outcome": "no conversation"}


@pytest.mark.parametrize("name", ["gzip", "deflate", "deflate, bare", "zstd"])
def test_a_body_of_many_streams_is_unpacked_in_linear_time(name: str) -> None:
    def unpack(count: int) -> None:
        unpacked = decoded_body(ENCODERS[name](b"[]") * count, name.removesuffix(", bare"), 10**9)
        assert unpacked == b"[]" * count

    assert growth(unpack, lambda size: size, 15_000) < MOST_GROWTH


@pytest.mark.parametrize("name", ["gzip", "deflate", "deflate, bare", "br", "zstd", "two frames of zstd"])
def test_a_body_that_lacks_its_end_is_refused(name: str) -> None:
    """The part that arrived may be valid JSON: a list of messages without the last ones, for example."""
    data = random.Random(0).randbytes(400_000)
    whole = zstandard.compress(b"[]") + zstandard.compress(data) if "frames" in name else ENCODERS[name](data)
    encoding = name.removesuffix(", bare").rpartition(" ")[2]
    assert decoded_body(whole, encoding, LIMIT).endswith(data)
    for size in (len(whole) - 1, len(whole) - 150_000, 3):
        with pytest.raises(UndecodableBody, match="truncated"):
            decoded_body(whole[:size], encoding, LIMIT)


def test_an_unknown_encoding_and_too_many_are_refused() -> None:
    with pytest.raises(UndecodableBody, match="got 'snappy'"):
        decoded_body(b"x", "snappy", LIMIT)
    with pytest.raises(UndecodableBody, match="at most 3"):
        decoded_body(b"x", "gzip, gzip, gzip, gzip", LIMIT)


def test_a_zstd_stream_without_a_size_is_read() -> None:
    raw = io.BytesIO()
    with zstandard.ZstdCompressor().stream_writer(raw, closefd=False) as writer:
        writer.write(b"abc" * 1000)
    assert decoded_body(raw.getvalue(), "zstd", LIMIT) == b"abc" * 1000


ODD = r'{"a" : 1E400, "b":1e-1,"messages": MESSAGES ,"u":"\/ é é", "n":-0.0, "n":[1.10, 2e+3]  }'


@pytest.mark.parametrize("encoding", ["utf-8", "utf-16", "utf-32"])
@pytest.mark.parametrize("escaped", [True, False])
def test_every_byte_outside_the_changed_texts_is_the_clients(encoding: str, escaped: bool) -> None:
    messages = conversation(6)
    messages[1]["content"] += " é \U0001f600"
    text = ODD.replace("MESSAGES", json.dumps(messages, indent=1, ensure_ascii=escaped))
    pruned = bodies().prune(text.encode(encoding), "messages", b"")
    assert pruned.counts["outcome"] == "pruned"
    changed = pruned.body.decode(encoding)
    before, after = json.loads(text)["messages"], json.loads(changed)["messages"]
    assert before == messages
    for old, new in zip(before, after, strict=True):
        if old != new:
            changed = changed.replace(json.dumps(new["content"], ensure_ascii=False), json.dumps(old["content"]))
    assert changed == text


@pytest.mark.parametrize("number", ["1e400", "-1E400", "NaN"])
def test_a_number_that_json_cannot_write_stays_as_the_client_wrote_it(number: str) -> None:
    """Decoding makes it infinite. Written again, it would be `Infinity`, which providers refuse."""
    rows = ", ".join(f'"The weather of region {row} brings rain and wind in most weeks."' for row in range(60))
    messages = conversation(6)
    call = {"type": "tool_use", "id": "t1", "name": "save", "input": {"rows": ["ROWS"]}}
    result = {"type": "tool_result", "tool_use_id": "t1", "content": "saved"}
    messages[1:1] = [{"role": "assistant", "content": [call]}, {"role": "user", "content": [result]}]
    body = json.dumps({"messages": messages}).replace('"ROWS"', f"{rows}, {number}").encode()
    pruned = bodies().prune(body, "messages", b"")
    assert pruned.counts["outcome"] == "pruned"
    assert f"{rows}, {number}".encode() in pruned.body


def test_of_a_name_that_is_there_twice_the_last_value_changes() -> None:
    text = '{"a": [1], "a": [{"x": 1, "x" : "old"}]}'
    assert with_values(text, {("a", 0, "x"): "new"}) == '{"a": [1], "a": [{"x": 1, "x" : "new"}]}'


def test_a_path_that_is_not_there_is_an_error() -> None:
    with pytest.raises(ValueError, match="must have a value at each of the paths"):
        with_values('{"a": 1}', {("b",): 2})
    with pytest.raises(ValueError, match="must have a value at each of the paths"):
        with_values('{"a": 1}', {("a", 0): 2})


def test_only_the_innermost_differences_are_found() -> None:
    before = {"a": [1, {"b": "x", "c": [1, 2]}], "d": 1}
    after = {"a": [1, {"b": "y", "c": [1]}], "d": 1}
    assert dict(differences(before, after)) == {("a", 1, "b"): "y", ("a", 1, "c"): [1]}
    assert dict(differences({"a": 1}, {"a": True})) == {("a",): True}


@pytest.mark.parametrize(
    ("path", "field"),
    [
        ("/v1/chat/completions", "messages"),
        ("/chat/completions", "messages"),
        ("/v1/chat/completions/", "messages"),
        ("/v1beta/models/gemini-3-pro:generateContent/", "contents"),
        ("/responses", "input"),
        ("/v1beta/models/gemini-3-pro:generateContent", "contents"),
        ("/v1beta/models/gemini-3-pro:streamGenerateContent", "contents"),
        ("/v1/projects/p/locations/l/publishers/google/models/g:generateContent", "contents"),
        ("/v2/chat", "messages"),
        ("/v1/chat", "chat_history"),
        ("/model/anthropic.claude-v2:1/converse", "messages"),
        ("/model/m/converse-stream", "messages"),
        ("/api/chat", "messages"),
        ("/v1beta/interactions", "input"),
        ("/v1/conversations", "inputs"),
        ("/v1/conversations/c_1", None),
        ("/v1/agents/completions", "messages"),
        ("/api/v1/services/aigc/text-generation/generation", "input.messages"),
        ("/api/v1/services/aigc/multimodal-generation/generation", "input.messages"),
        ("/api/v1/services/aigc/text2image/image-synthesis", None),
        ("/v1beta/interactions/v1_abc/cancel", None),
        ("/openai/deployments/gpt-5/chat/completions", "messages"),
        ("/openai/v1/responses", "input"),
        ("/openai/responses", "input"),
        ("/anthropic/v1/messages", "messages"),
        ("/v1/account/gateway/openai/chat/completions", "messages"),
        ("/v1/projects/p/locations/l/publishers/anthropic/models/claude-opus-4-5@20251101:rawPredict", "messages"),
        ("/v1/projects/p/locations/l/publishers/anthropic/models/claude:streamRawPredict", "messages"),
        ("/v1/chat/completions/chatcmpl-1", None),
        ("/v1/responses/resp_1/cancel", None),
        ("/v1/responses/input_tokens", None),
        ("/v1/responses/compact", "input"),
        ("/backend-api/codex/responses/compact", "input"),
        ("/v1beta/tunedModels/mine:generateContent", "contents"),
        ("/v1/projects/p/locations/l/endpoints/123:streamGenerateContent", "contents"),
        ("/gemini/v1beta/models/gemini-3-pro:generateContent", "contents"),
        ("/bedrock/model/m/converse", "messages"),
        ("/v1internal:streamGenerateContent", "request.contents"),
        ("/v1internal:countTokens", None),
        ("/v1/messages/count_tokens", None),
        ("/v1/messages/batches", None),
        ("/v1xchat/completions", None),
        ("/model/m/invoke", "messages"),
        ("/model/us.anthropic.claude-opus-4-5-v1:0/invoke-with-response-stream", "messages"),
        ("/model/m/invoke-async", None),
        ("/model/m/count-tokens", None),
        ("/v1beta/models/gemini:countTokens", None),
        ("/v1/embeddings", None),
    ],
)
def test_the_paths_of_other_providers_are_known(path: str, field: str | None) -> None:
    assert conversation_field(path) == field


def contents(steps: int) -> list[dict[str, Any]]:
    parts: list[dict[str, Any]] = [{"role": "user", "parts": [{"text": "What is known about tides?"}]}]
    for message in conversation(steps)[2:]:
        if message["role"] == "assistant":
            parts.append({"role": "model", "parts": [{"functionCall": {"name": "search", "args": {"query": "x"}}}]})
        else:
            response = {"name": "search", "response": {"result": message["content"]}}
            parts.append({"role": "user", "parts": [{"functionResponse": response}]})
    return parts


def test_a_request_of_gemini_is_pruned() -> None:
    body = {"systemInstruction": {"parts": [{"text": "Answer briefly."}]}, "contents": contents(6)}
    with upstream(lambda _: Reply(b"{}")) as server, proxy_client(server.url) as client:
        answer = client.post("/v1beta/models/gemini-3-pro:generateContent", json=body)
        (received,) = server.requests
    assert json.loads(answer.headers["X-Context-Pruned"])["outcome"] == "pruned"
    assert json.loads(received.body)["systemInstruction"] == body["systemInstruction"]


def test_a_request_of_code_assist_is_pruned_and_its_system_text_tells_conversations_apart() -> None:
    def body(system: str) -> bytes:
        request = {"contents": contents(6), "systemInstruction": {"parts": [{"text": system}]}}
        return json.dumps({"model": "gemini-3-pro", "project": "p", "request": request}).encode()

    pruner = bodies()
    pruned = [pruner.prune(body(system), CODE_ASSIST_CONTENTS, b"") for system in ("One.", "Two.", "One.")]
    assert [one.counts["outcome"] for one in pruned] == ["pruned", "pruned", "within budget"]
    assert [one.request.conversation for one in pruned if one.request] == [1, 2, 1]
    assert json.loads(pruned[0].body)["request"]["contents"] != contents(6)
    other = pruner.prune(b'{"request": [{"contents": []}]}', CODE_ASSIST_CONTENTS, b"")
    assert other.counts == {"outcome": "no conversation"}


@pytest.mark.parametrize(
    ("name", "value"), [("previous_response_id", "resp_1"), ("conversation", {"id": "conv_1"}), ("thread", "t")]
)
def test_one_reason_says_that_the_server_keeps_the_conversation(name: str, value: Any) -> None:
    text = "\n\n".join(f"It rained on day {number}." for number in range(99))
    results = [{"type": "function_call_output", "call_id": f"c{number}", "output": text} for number in range(5)]
    body = json.dumps({name: value, "input": results}).encode()
    keeper = bodies()
    pruned = keeper.prune(body, "input", b"")
    assert (pruned.body, pruned.counts["outcome"], len(pruned.warnings)) == (body, "passed through", 1)
    assert f"the conversation that '{name}' names" in pruned.warnings[0]
    assert json.loads(pruned.header)["warnings"] == [*pruned.warnings], "the header has the whole sentence"

    later = [
        {"type": "function_call", "call_id": "d", "name": "search", "arguments": "{}"},
        {**results[0], "call_id": "d"},
    ]
    both = keeper.prune(json.dumps({name: value, "input": [*results, *later]}).encode(), "input", b"")
    assert both.counts["outcome"] != "passed through"
    assert "names" in both.warnings[0]


def test_a_request_of_cohere_is_pruned() -> None:
    messages = conversation(6)
    for message in messages:
        if message["role"] == "tool":
            message["content"] = [{"type": "document", "document": {"id": "1", "data": {"text": message["content"]}}}]
    with upstream(lambda _: Reply(b"{}")) as server, proxy_client(server.url) as client:
        answer = client.post("/v2/chat", json={"model": "command-a", "messages": messages})
        (received,) = server.requests
    assert json.loads(answer.headers["X-Context-Pruned"])["outcome"] == "pruned"
    results = [m["content"][0]["document"] for m in json.loads(received.body)["messages"] if m["role"] == "tool"]
    assert all(list(document["data"]) == ["text"] for document in results)
    assert any("pruned" in document["data"]["text"] for document in results)


def test_a_request_to_the_first_chat_of_cohere_is_pruned() -> None:
    body: dict[str, Any] = {"model": "command-r", "message": "", "chat_history": [], "temperature": 0.30}
    for message in conversation(6)[1:]:
        if message["role"] == "user":
            body["chat_history"].append({"role": "USER", "message": message["content"]})
        elif message["role"] == "assistant":
            body["chat_history"].append({"role": "CHATBOT", "tool_calls": [{"name": "search", "parameters": {}}]})
        else:
            results = [{"call": {"name": "search", "parameters": {}}, "outputs": [{"text": message["content"]}]}]
            body["chat_history"].append({"role": "TOOL", "tool_results": results})
    body["tool_results"] = body["chat_history"].pop()["tool_results"]
    sent = json.dumps(body).encode()
    pruned = bodies().prune(sent, "chat_history", b"caller")
    assert pruned.counts["outcome"] == "pruned"
    after = json.loads(pruned.body)
    changes = dict(differences(body, after))
    assert changes
    assert all(path[0] in ("chat_history", "tool_results") for path in changes)
    assert (
        bodies().prune(json.dumps({"message": "Hello."}).encode(), "chat_history", b"").body == b'{"message": "Hello."}'
    )


@pytest.mark.parametrize("other", ["?key=another", "?alt=sse&KEY=another", "?x=1"])
def test_callers_whose_key_is_in_the_address_are_told_apart(other: str) -> None:
    path, body = "/v1beta/models/gemini-3-pro:generateContent", {"contents": contents(6)}
    asking = {"contents": [*contents(6), {"role": "model", "parts": [{"text": "restore: p1-p40"}]}]}
    restored = []
    with upstream(lambda _: Reply(b"{}")) as server, proxy_client(server.url) as client:
        client.post(f"{path}?key=one", json=body)
        for address in (f"{path}{other}", f"{path}?key=one"):
            answer = client.post(address, json=asking)
            restored.append(json.loads(answer.headers["X-Context-Pruned"])["restored"])
    assert restored[0] == 0
    assert restored[1] > 0


def test_a_signed_request_passes_untouched() -> None:
    body = json.dumps({"messages": conversation(6)}).encode()
    headers = {"Authorization": "AWS4-HMAC-SHA256 Credential=x"}
    with upstream(lambda _: Reply(b"{}")) as server, proxy_client(server.url) as client:
        answer = client.post("/model/m/converse", content=body, headers=headers)
        (received,) = server.requests
    assert received.body == body
    assert "X-Context-Pruned" not in answer.headers


def test_what_the_agent_is_looking_for_decides_what_stays_and_the_header_ends_here() -> None:
    body = {"messages": [*conversation(6), {"role": "assistant", "content": "I go on."}]}
    kept: list[str] = []
    for hint in ("an entry about comets", "an entry about violins"):
        with upstream(lambda _: Reply(b"{}")) as server, proxy_client(server.url) as client:
            client.post(CHAT, json=body, headers={"X-Context-Looking-For": hint})
            (received,) = server.requests
        assert not any("looking" in str(field).lower() for field, _ in received.headers)
        kept.append(received.body.decode())
    assert kept[0] != kept[1]
    assert kept[1].count("everyone knows about violins") > kept[0].count("everyone knows about violins")


@pytest.mark.parametrize("encoding", ["utf-8", "latin-1"])
def test_a_hint_may_have_letters_beyond_ascii(monkeypatch: pytest.MonkeyPatch, encoding: str) -> None:
    hints: list[str] = []
    prune = BodyPruner.prune

    def record(self: BodyPruner, *arguments: Any, hint: str, **options: Any) -> PrunedBody:
        hints.append(hint)
        return prune(self, *arguments, **options)

    monkeypatch.setattr(BodyPruner, "prune", record)
    header = (b"X-Context-Looking-For", "größte Brücke".encode(encoding))
    with upstream(lambda _: Reply(b"{}")) as server, proxy_client(server.url) as client:
        client.post(CHAT, json={"messages": conversation(1)}, headers=[header])
    assert hints == ["größte Brücke"]


def test_a_line_of_the_agent_says_what_it_is_looking_for() -> None:
    messages = conversation(6)
    said = [*messages, {"role": "assistant", "content": "Next step.\nLooking for: an entry about violins"}]
    prune = lambda m, **options: ContextPruner(300, strategy="bm25", prices=Prices(cached=1.0)).prune(m, **options)  # noqa: E731
    texts = [json.dumps(prune(m).messages) for m in (messages, said)]
    texts.append(json.dumps(prune(messages, hint="an entry about violins").messages))
    counts = [text.count("everyone knows about violins") for text in texts]
    assert counts[1] > counts[0]
    assert counts[2] > counts[0]
