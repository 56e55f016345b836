"""`ctx1 prune`: a diff of a saved conversation, the pruned one as a file or as JSON, and broken input."""

import json

import pytest

from context_agent.cli.app import cli
from context_agent.pruning.bundles import CONVERSATION_PATHS
from context_agent.pruning.pruner import STRATEGIES
from tests.support.conversations import rendered
from tests.support.framework_conversations import FRAMEWORKS
from tests.support.long_conversation import LONG, TASK


@pytest.fixture
def conversation(tmp_path):
    path = tmp_path / "conversation.json"
    path.write_text(json.dumps(rendered("openai", LONG)), encoding="utf-8")
    return path


def test_the_diff_shows_what_goes_under_which_id_and_what_it_costs(inside, conversation):
    process = inside("prune", conversation, "--budget", 300, "--effort", "fast")
    assert process.returncode == 0
    lines = process.stdout.splitlines()
    assert lines[0].startswith("message 4: ")
    assert lines[1].startswith("  - p1 ")
    assert "Item" in lines[1]
    assert lines[-3].endswith(" tokens of tool results remain; 300 may remain")
    assert "cached tokens read afresh" in lines[-2]
    assert lines[-1] == "passages that stay in any case: 1 last turn"


def test_a_share_may_be_written_as_a_number(inside, tmp_path, conversation):
    def after(*options):
        process = inside("prune", conversation, "--effort", "fast", "--json", *options)
        assert process.returncode == 0, process.stderr
        return json.loads(process.stdout)["report"]["tokens_after"]

    (tmp_path / "share.toml").write_text("[prune]\nbudget = 0.5\n", encoding="utf-8")
    assert after("--budget", "0.5") == after("--budget", "50%") == after("--config", tmp_path / "share.toml")
    assert after("--budget", "0.9") > after("--budget", "0.5")


def test_a_name_that_no_file_can_have_is_wrong_usage(inside):
    process = inside("prune", "x" * 300)
    assert process.returncode == 2
    assert "cannot be used (File name too long)" in process.stderr


def test_a_request_body_keeps_its_shape(inside, tmp_path, conversation):
    body = {"model": "m", "messages": rendered("anthropic", LONG)}
    (tmp_path / "body.json").write_text(json.dumps(body), encoding="utf-8")
    process = inside("prune", "body.json", "--budget", 300, "--effort", "fast", "--out", "new.json", "--json")
    output = json.loads(process.stdout)
    new_body = json.loads((tmp_path / "new.json").read_text(encoding="utf-8"))
    assert new_body == {"model": "m", "messages": output["messages"]}
    assert output["report"]["kind"] == "anthropic"
    assert output["report"]["removed"][0]["id"] == "p1"


def test_several_conversations_are_named(inside, tmp_path):
    runs = [{"inputs": {"messages": rendered("openai", LONG)[start:]}} for start in range(3)]
    (tmp_path / "runs.jsonl").write_text("".join(f"{json.dumps(run)}\n" for run in runs), encoding="utf-8")
    error = inside("prune", "runs.jsonl").stderr
    assert "runs.jsonl has 3 conversations" in error
    assert '[0]["inputs"]["messages"] and [1]["inputs"]["messages"]' in error


def test_the_only_conversation_in_lines_is_pruned(inside, tmp_path):
    lines = [{"id": 1}, {"inputs": {"messages": rendered("openai", LONG)}}]
    (tmp_path / "runs.jsonl").write_text("".join(f"{json.dumps(line)}\n" for line in lines), encoding="utf-8")
    process = inside("prune", "runs.jsonl", "--budget", 300, "--effort", "fast", "--out", "new.jsonl", "--json")
    first, second = (tmp_path / "new.jsonl").read_text(encoding="utf-8").splitlines()
    assert json.loads(first) == lines[0]
    assert json.loads(second)["inputs"]["messages"] == json.loads(process.stdout)["messages"]


@pytest.mark.parametrize("path", [*CONVERSATION_PATHS, ("inputs", "messages", 0)])
def test_an_object_around_a_conversation_keeps_its_shape(inside, tmp_path, path):
    def around(messages):
        value = messages
        for key in reversed(path):
            value = [value] if key == 0 else {"id": "x", key: value}
        return value

    (tmp_path / "saved.json").write_text(json.dumps(around(rendered("openai", LONG))), encoding="utf-8")
    process = inside("prune", "saved.json", "--budget", 300, "--effort", "fast", "--out", "new.json", "--json")
    output = json.loads(process.stdout)
    assert output["report"]["outcome"] == "pruned"
    assert json.loads((tmp_path / "new.json").read_text(encoding="utf-8")) == around(output["messages"])


def test_a_trace_keeps_its_messages_as_text(inside, tmp_path):
    messages = FRAMEWORKS["opentelemetry"](LONG)
    span = {"name": "chat", "attributes": {"gen_ai.input.messages": json.dumps(messages)}}
    (tmp_path / "span.json").write_text(json.dumps(span), encoding="utf-8")
    inside("prune", "span.json", "--budget", 300, "--effort", "fast", "--out", "new.json")
    written = json.loads((tmp_path / "new.json").read_text(encoding="utf-8"))
    pruned = json.loads(written["attributes"]["gen_ai.input.messages"])
    assert written["name"] == "chat"
    assert [message["role"] for message in pruned] == [message["role"] for message in messages]
    assert len(str(pruned)) < len(str(messages))


def test_a_session_with_a_message_per_line_stays_one(inside, tmp_path):
    records = [{"type": message["role"], "message": message} for message in rendered("anthropic", LONG)]
    lines = [{"type": "summary", "summary": "films"}, *records]
    text = "".join(f"{json.dumps(line)}\n" for line in lines)
    (tmp_path / "session.jsonl").write_text(text, encoding="utf-8")
    process = inside("prune", "session.jsonl", "--budget", 300, "--effort", "fast", "--out", "new.jsonl")
    assert process.returncode == 0
    written = (tmp_path / "new.jsonl").read_text(encoding="utf-8").splitlines()
    assert [json.loads(line)["type"] for line in written] == [line["type"] for line in lines]
    assert len("".join(written)) < len(text)


def test_a_session_may_have_a_single_line(inside, tmp_path):
    message = {"role": "tool", "tool_call_id": "a", "content": "The weir has three gates."}
    trajectory = {"thought_0": "I look.", "tool_name_0": "look", "tool_args_0": {}, "observation_0": "Three gates."}
    for line in (message, {"type": "user", "message": {"role": "user", "content": "Why?"}, "uuid": "u"}, trajectory):
        (tmp_path / "session.jsonl").write_text(f"{json.dumps(line)}\n", encoding="utf-8")
        process = inside("prune", "session.jsonl", "--out", "new.jsonl")
        assert process.returncode == 0, process.stderr
        assert (tmp_path / "new.jsonl").read_text(encoding="utf-8") == f"{json.dumps(line)}\n"
    (tmp_path / "object.json").write_text('{"kind": "weir"}', encoding="utf-8")
    assert "contains no conversation" in inside("prune", "object.json").stderr


@pytest.mark.parametrize("torn", ['{"type": "assist', '{"type": "user", "message": {"role": "us', "\0\0\0"])
def test_the_last_line_of_a_session_may_be_incomplete(inside, tmp_path, torn):
    text = "".join(f"{json.dumps(message)}\n" for message in rendered("openai", LONG))
    (tmp_path / "whole.jsonl").write_text(text, encoding="utf-8")
    (tmp_path / "session.jsonl").write_text(text + torn, encoding="utf-8")
    written = {}
    for name in ("whole", "session"):
        process = inside("prune", f"{name}.jsonl", "--budget", 300, "--effort", "fast", "--out", f"new-{name}")
        assert process.returncode == 0, process.stderr
        written[name] = (tmp_path / f"new-{name}").read_text(encoding="utf-8")
    assert "the last line of session.jsonl is incomplete, so it is left as it is" in process.stderr
    assert written["session"] == written["whole"] + torn
    (tmp_path / "damaged.jsonl").write_text(f"{text}{{\n{text}", encoding="utf-8")
    line = len(text.splitlines()) + 1
    assert f"damaged.jsonl, line {line} is not valid JSON" in inside("prune", "damaged.jsonl").stderr


@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16", "utf-32"])
def test_a_file_of_another_program_may_have_another_encoding(inside, tmp_path, encoding):
    (tmp_path / "body.json").write_bytes(json.dumps(rendered("openai", LONG)).encode(encoding))
    process = inside("prune", "body.json", "--budget", 300, "--effort", "fast", "--json")
    assert json.loads(process.stdout)["report"]["outcome"] == "pruned"


def test_a_lone_surrogate_is_written_as_its_escape(inside, tmp_path):
    messages = [{"role": "user", "content": "What \ud83d is this? é \U0001f600"}, *rendered("openai", LONG)[1:]]
    text = json.dumps(messages, ensure_ascii=False)
    (tmp_path / "body.json").write_bytes(text.encode("utf-16-le", "surrogatepass"))
    process = inside("prune", "body.json", "--budget", 300, "--effort", "fast", "--out", "new.json")
    assert process.returncode == 0, process.stderr
    written = (tmp_path / "new.json").read_text(encoding="utf-8")
    assert "What \\ud83d is this? é \U0001f600" in written
    assert json.loads(written)[0] == messages[0]


def test_what_does_not_change_is_written_as_it_was(inside, tmp_path):
    records = [{"type": message["role"], "cost": "COST", "message": message} for message in rendered("anthropic", LONG)]
    lines = [json.dumps(record).replace('"COST"', "1e400") for record in records]
    body = f'{{\n"id": 1.0E+2,\n"messages": [{", ".join(lines)}]}}'
    for name, text in {"lines": "\n".join(lines), "body": body}.items():
        (tmp_path / name).write_text(f"{text}\n", encoding="utf-8")
        process = inside("prune", name, "--budget", 300, "--effort", "fast", "--out", "new", "--json")
        output = json.loads(process.stdout, parse_constant=pytest.fail)
        assert output["report"]["outcome"] == "pruned"
        assert output["messages"][0]["cost"] is None
        written = (tmp_path / "new").read_text(encoding="utf-8")
        assert written.count('"cost": 1e400') == len(records)
        assert lines[0] in written
        assert len(written) < len(text)
        assert written.startswith(text[: text.index("type")])


def test_a_file_beyond_the_limit_is_not_read(inside, tmp_path, monkeypatch):
    monkeypatch.setattr("context_agent.cli.saved_conversation.MAX_CONVERSATION_BYTES", 1_000)
    text = json.dumps([{"role": "user", "content": "x" * 1_000}])
    (tmp_path / "long.json").write_text(text, encoding="utf-8")
    for process in (inside("prune", "long.json"), inside("prune", "-", stdin=text), inside("view", "long.json")):
        assert process.returncode == 1
        assert "has more than 1,000 bytes" in process.stderr


def test_an_object_on_one_line_is_no_list_of_lines(inside, tmp_path):
    (tmp_path / "body.json").write_text(json.dumps({"messages": rendered("openai", LONG)}) + "\n", encoding="utf-8")
    output = json.loads(inside("prune", "body.json", "--budget", 300, "--effort", "fast", "--json").stdout)
    assert output["report"]["outcome"] == "pruned"


def test_the_task_and_the_prices_count(inside, conversation):
    arguments = ("prune", conversation, "--budget", 300, "--effort", "fast", "--json")
    weather = json.loads(inside(*arguments, "--task", "What is the weather of region 33?").stdout)
    assert "weather of region 33 " in str(weather["messages"])
    assert json.loads(inside(*arguments, "--turns", 0).stdout)["report"]["outcome"] == "does not pay"
    assert json.loads(inside(*arguments, "--task", TASK).stdout) == json.loads(inside(*arguments).stdout)


@pytest.mark.parametrize(
    ("content", "message", "code"),
    [
        ("{", "broken.json is not valid JSON", 1),
        ("[" * 100_000, "broken.json is not valid JSON", 1),
        ("User: hi", "is not valid JSON (Expecting value: line 1 column 1 (char 0)). Pass JSON with a list of", 1),
        ('{\n"role": "user"}\n{\n"role": "tool"}', "Join them into a list with `jq -s .`", 1),
        ("\n# aider chat started at 2026-01-01 10:00:00\n\n#### hi", "run Aider with `ctx1 wrap aider`", 1),
        ('{"a": []}', "contains no conversation. Pass JSON with a list of messages", 1),
        ('"text"', "contains no conversation", 1),
        ('{"messages": 3}', "contains no conversation", 1),
        ('{"method": "session/update", "params": {"update": {"sessionUpdate": "plan"}}}', "Agent Client Protocol", 1),
        ('{"messages": [{"isCreatedByUser": true, "text": "hi"}]}', "broken.json is a chat of LibreChat", 1),
        ('{"messages": [{"versions": [], "currentlySelected": 0}]}', "broken.json is a chat of LM Studio", 1),
        ('{"log": {"version": "1.2", "entries": []}}', "is a HAR file, which has the requests as texts", 1),
        ('[{"mapping": {}, "current_node": "n"}]', "broken.json is an export of ChatGPT, whose messages are a tree", 1),
        ('{"conversations": [{"mapping": {}, "current_node": "n"}]}', "broken.json is an export of ChatGPT", 1),
        ('{"candidates": [{"content": {"role": "model", "parts": []}}]}', "is the answer of a model without", 1),
        ('{"choices": [{"message": {"role": "assistant", "content": "a"}}]}', "Pass the messages of the request", 1),
        (
            '{"kind": 0, "v": {"requests": []}}\n{"kind": 2, "v": [{"requestId": "a", "message": {"text": "hi"}}]}',
            "Pass the file that the command `Chat: Export Chat` writes",
            1,
        ),
        (
            '[{"ts": 1, "type": "say", "say": "text", "text": "hi"}, {"ts": 2, "type": "ask", "ask": "tool"}]',
            "Pass `api_conversation_history.json` from the same folder",
            1,
        ),
    ],
)
def test_broken_input_is_an_error(inside, tmp_path, content, message, code):
    (tmp_path / "broken.json").write_text(content, encoding="utf-8")
    process = inside("prune", "broken.json")
    assert (process.returncode, process.stdout) == (code, "")
    assert message in process.stderr


def test_a_conversation_without_tool_results_is_named(inside, tmp_path):
    (tmp_path / "chat.json").write_text('[{"role": "user", "content": "Hello."}]', encoding="utf-8")
    process = inside("prune", "chat.json")
    assert process.returncode == 0
    assert "within budget: the conversation has no tool results that can be pruned" in process.stdout


def test_another_encoding_is_an_error_that_says_how_to_convert_the_file(inside, tmp_path):
    (tmp_path / "old.jsonl").write_bytes(
        json.dumps({"role": "user", "content": "港"}, ensure_ascii=False).encode("cp932")
    )
    process = inside("prune", "old.jsonl")
    assert process.returncode == 1
    assert "old.jsonl is not UTF-8, UTF-16 or UTF-32" in process.stderr
    assert "iconv -f SHIFT_JIS -t UTF-8" in process.stderr


def test_a_list_of_something_else_is_passed_through_with_exit_code_1(inside, tmp_path):
    messages = [{"role": "tool", "tool_call_id": "x", "content": "y"}, 3]
    (tmp_path / "broken.json").write_text(json.dumps(messages), encoding="utf-8")
    process = inside("prune", "broken.json")
    assert process.returncode == 1
    assert "warning: message 0 has a result without a call: 'x'" in process.stdout
    assert inside("prune", "broken.json", "--json").stdout.startswith('{"messages": [{"role": "tool"')


def test_every_strategy_can_be_named():
    assert set(cli["prune"].assemble_argument_collection()["--strategy"].get_choices()) == set(STRATEGIES)
