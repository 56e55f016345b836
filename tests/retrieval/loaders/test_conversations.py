"""JSON files, exports of conversations, and transcripts: a conversation is a document, a turn is a section."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from context_agent.retrieval.loaders import LoadOptions, LoadReport, load
from context_agent.retrieval.loaders.sniffing import GENERATED_REASON
from context_agent.retrieval.loaders.turns import JOINED_CHARACTERS
from context_agent.types import Document


def read(path: Path) -> tuple[list[Document], list[str]]:
    report = LoadReport()
    documents = list(load(path, report=report))
    return documents, [notice.reason for notice in report.notices]


def turns(document: Document) -> list[tuple[str, str]]:
    return [(section.title, document.text[section.start : section.end]) for section in document.sections]


def said(document: Document) -> list[str]:
    """Return the text of each turn. The texts of chats hold no empty lines."""
    return [part for part in re.split(r"(?<=\n\n)", document.text) if part]


def write(folder: Path, name: str, value: Any) -> Path:
    file = folder / name
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(value if isinstance(value, str) else json.dumps(value), "utf-8")
    return file


def chatgpt_node(name: str, parent: str | None, role: str, text: str, time: Any = None) -> dict[str, Any]:
    message = {"author": {"role": role}, "create_time": time, "content": {"content_type": "text", "parts": [text]}}
    return {name: {"id": name, "parent": parent, "message": message}}


CLAUDE = {
    "uuid": "c-1",
    "name": "A weir",
    "created_at": "2026-01-02T03:04:05Z",
    "chat_messages": [
        {"sender": "human", "created_at": "2026-01-02T03:04:05Z", "text": "How high\r\nis it?"},
        {"sender": "assistant", "created_at": "2026-01-02T03:04:09Z", "content": [{"type": "text", "text": "Two."}]},
        {"sender": "assistant", "created_at": {"a": 1}, "text": ""},
    ],
}
CHATGPT = {
    "conversation_id": "g-1",
    "title": "A dam",
    "current_node": "d",
    "mapping": {
        "a": {"id": "a", "parent": None, "message": None},
        **chatgpt_node("b", "a", "system", "secret"),
        **chatgpt_node("c", "b", "user", "How wide?", 1_767_323_045.5),
        **chatgpt_node("old", "c", "assistant", "First answer."),
        **chatgpt_node("d", "c", "assistant", "Three.", 1e400),
    },
}


def test_an_export_of_claude_is_a_document_for_each_conversation(tmp_path: Path) -> None:
    documents, reasons = read(write(tmp_path, "conversations.json", [CLAUDE, {**CLAUDE, "uuid": "c-2"}]))
    assert ([document.id for document in documents], reasons) == (
        ["conversations.json#c-1", "conversations.json#c-2"],
        [],
    )
    assert (documents[0].title, documents[0].metadata["date"]) == ("A weir", "2026-01-02T03:04:05Z")
    assert documents[0].metadata["day"] == 20260102
    assert turns(documents[0]) == [
        ("A weir: human, 2026-01-02T03:04:05Z", "human (2026-01-02T03:04:05Z):\nHow high\nis it?\n\n"),
        ("A weir: assistant, 2026-01-02T03:04:09Z", "assistant (2026-01-02T03:04:09Z):\nTwo.\n\n"),
    ]


def test_an_export_of_chatgpt_has_the_turns_of_the_last_branch(tmp_path: Path) -> None:
    (document,), reasons = read(write(tmp_path, "conversations.json", [CHATGPT]))
    assert (document.id, document.title, reasons) == ("conversations.json#g-1", "A dam", [])
    assert turns(document) == [
        ("A dam: user, 2026-01-02T03:04:05Z", "user (2026-01-02T03:04:05Z):\nHow wide?\n\n"),
        ("A dam: assistant", "assistant:\nThree.\n\n"),
    ]


def test_a_tree_in_a_circle_comes_to_an_end(tmp_path: Path) -> None:
    mapping = {**chatgpt_node("a", "b", "user", "one"), **chatgpt_node("b", "a", "assistant", "two")}
    (document,), _ = read(write(tmp_path, "c.json", {"mapping": mapping, "current_node": "b"}))
    assert len(document.sections) == 2


def test_a_day_of_a_slack_channel_is_a_document(tmp_path: Path) -> None:
    messages = [
        {
            "type": "message",
            "user": "U1",
            "user_profile": {"real_name": "Ann"},
            "ts": "1767323045.000100",
            "text": "Hi",
        },
        {"type": "message", "user": "U2", "ts": "1767323046.0", "text": "Hello"},
    ]
    write(tmp_path, "export/general/2026-01-02.json", messages)
    (document,), reasons = read(tmp_path / "export")
    assert (document.id, document.title, reasons) == ("general/2026-01-02.json", "#general 2026-01-02", [])
    assert [title for title, _ in turns(document)] == ["#general 2026-01-02: Ann, U2, 2026-01-02T03:04:05Z"]
    assert said(document) == ["Ann (2026-01-02T03:04:05Z):\nHi\n\n", "U2 (2026-01-02T03:04:06Z):\nHello\n\n"]


def test_the_text_of_a_slack_message_has_no_escapes(tmp_path: Path) -> None:
    message = {"ts": "1700000000.1", "user": "U1", "text": "if a &lt; b &amp;&amp; c -&gt; d: &amp;lt; <@U1>"}
    write(tmp_path, "general/2026-01-02.json", [message])
    (document,), _ = read(tmp_path)
    assert document.text.strip().endswith(":\nif a < b && c -> d: &lt; <@U1>")


@pytest.mark.parametrize(
    ("written", "shown"),
    [
        ("<https://ci.org/7|the log>", "the log (https://ci.org/7)"),
        ("<http://ci.org?a=1&amp;b=2|ci.org>", "http://ci.org?a=1&b=2"),
        ("<mailto:ann@ci.org|ann@ci.org>", "ann@ci.org"),
        ("<#C1|gates> <#C2>", "#gates #C2"),
        ("<!here> <!subteam^S1|@crew>", "@here @crew"),
    ],
)
def test_a_link_of_a_slack_message_has_its_words(tmp_path: Path, written: str, shown: str) -> None:
    write(tmp_path, "general/2026-01-02.json", [{"ts": "1700000000.1", "user": "U1", "text": f"See {written}."}])
    (document,), _ = read(tmp_path)
    assert document.text.strip().endswith(f":\nSee {shown}.")


def test_users_of_a_slack_channel_have_the_names_that_any_message_of_the_day_tells(tmp_path: Path) -> None:
    def message(user: str, text: str, **profile: str) -> dict[str, object]:
        told = {"user_profile": {"display_name": "", **profile}} if profile else {}
        return {"type": "message", "user": user, "ts": "1767323045.0", "text": text, **told}

    messages = [
        message("U1", "<@U2> and <@U3|tim> and <@U4>: the saw is blunt."),
        message("U2", "I saw.", real_name="Nora Pell"),
        message("U1", "Thanks", display_name="ann"),
        {"type": "message", "username": "builder", "ts": "1767323045.0", "text": "It is built."},
        {"type": "message", "ts": "1767323045.0", "text": "Nobody said this."},
    ]
    write(tmp_path, "general/2026-01-02.json", messages)
    (document,), _ = read(tmp_path)
    speakers = [turn.partition("2026-01-02T")[0].rstrip(" (") for turn in said(document)]
    assert speakers == ["ann", "Nora Pell", "ann", "builder", ""]
    assert [title for title, _ in turns(document)] == [
        "#general 2026-01-02: ann, Nora Pell, builder, 2026-01-02T03:04:05Z"
    ]
    assert "@Nora Pell and @tim and <@U4>: the saw is blunt." in document.text


def test_the_users_of_a_slack_export_have_names_instead_of_ids(tmp_path: Path) -> None:
    users = [
        {"id": "U024BE7LH", "name": "npell", "profile": {"display_name": "", "real_name": "Nora Pell"}},
        {"id": "U2", "name": "tim", "real_name": "Tim Ost", "profile": {"display_name": "timo"}},
        {"id": "U3", "name": "carla"},
        {"id": ["U4"], "profile": "none"},
    ]
    messages = [
        {"type": "message", "user": "U024BE7LH", "ts": "1767323045.0", "text": "<@U2>, <@U3> and <@U4>: it is blunt."},
        {"type": "message", "user": "U2", "ts": "1767323046.0", "text": "Sharp <@U024BE7LH>!"},
        {
            "type": "message",
            "user": "U3",
            "ts": "1767323047.0",
            "text": "Yes",
            "user_profile": {"real_name": "Carla D"},
        },
        {"type": "message", "user": "U4", "ts": "1767323048.0", "text": "No"},
        {"type": "message", "subtype": "channel_name", "ts": "1767323049.0", "name": "saws", "text": "renamed"},
    ]
    write(tmp_path, "work/users.json", users)
    write(tmp_path, "work/general/2026-01-02.json", messages)
    write(tmp_path, "other/general/2026-01-02.json", messages)
    documents, reasons = read(tmp_path)
    assert reasons == []
    texts = {document.id: document for document in documents}
    day = texts["work/general/2026-01-02.json"]
    speakers = [turn.partition("2026-01-02T")[0].rstrip(" (") for turn in said(day)]
    assert speakers == ["Nora Pell", "timo", "Carla D", "U4", ""]
    assert "@timo, @Carla D and <@U4>: it is blunt." in day.text
    assert "Sharp @Nora Pell!" in day.text
    assert "<@U024BE7LH>" in texts["other/general/2026-01-02.json"].text, "another workspace's names"


def test_messages_with_roles_are_a_conversation(tmp_path: Path) -> None:
    messages = [{"role": "user", "content": "One?"}, {"role": "assistant", "content": [{"type": "text", "text": "1"}]}]
    for value in (messages, {"messages": messages}):
        (document,), _ = read(write(tmp_path, "chat.json", value))
        assert [title for title, _ in turns(document)] == ["chat: user", "chat: assistant"]


def test_other_json_is_read_by_record_or_whole(tmp_path: Path) -> None:
    write(tmp_path, "in/rows.json", [{"id": "r1", "text": "One."}, {"id": "r2", "text": "Two."}])
    write(tmp_path, "in/records.json", [{"name": "Ann", "age": 5}, {"name": "Bob", "tags": ["x"]}])
    write(tmp_path, "in/object.json", '{"name": "x"}')
    write(tmp_path, "in/long.json", {str(number): number for number in range(200)})
    write(tmp_path, "in/comments.json", '// A comment\n{"a": 1}')
    write(tmp_path, "in/lines.json", '{"id": "l1", "text": "a"}\n{"id": "l2", "text": "b"}\n')
    write(tmp_path, "in/package-lock.json", {"name": "x"})
    documents, reasons = read(tmp_path / "in")
    texts = {document.id: document.text for document in documents}
    assert list(texts) == [
        "comments.json",
        "l1",
        "l2",
        "long.json",
        "object.json",
        "records.json#1",
        "records.json#2",
        "r1",
        "r2",
    ]
    assert texts["records.json#1"] == "name: Ann\nage: 5"
    assert texts["object.json"] == '{"name": "x"}'
    assert texts["long.json"].count("\n") > 200
    assert reasons == [GENERATED_REASON]


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("[" * 100_000, None),
        ('{"chat_messages": ' + "[" * 900 + "]" * 900 + "}", "its conversations contain no text"),
        ('{"chat_messages": [{"sender": ' + '{"a":' * 900 + "1" + "}" * 900 + ', "text": "x"}]}', None),
        ('[{"ts": "1", "type": "message"}]', "its conversations contain no text"),
        ('[{"uuid": "\\ud800", "chat_messages": [{"sender": "\\udc00", "text": "\\ud800"}]}]', None),
        ('{"n": ' + "1" * 10_000 + "}", None),
        ("[" + "{}," * 2_000_000 + "{}]", "the number of JSON values in the file is larger"),
    ],
)
def test_hostile_json_is_read_or_reported(tmp_path: Path, text: str, reason: str | None) -> None:
    documents, reasons = read(write(tmp_path, "x.json", text))
    assert (len(documents) == 1) is (reason is None)
    assert (reason or "") in "".join(reasons)


def test_a_transcript_has_speakers_and_times(tmp_path: Path) -> None:
    write(
        tmp_path,
        "in/a.vtt",
        "WEBVTT\n\nNOTE not said\n\n1\n00:01.000 --> 00:02.000\n<v Ann Lee>Hello <i>there</i>\n\n"
        "00:02.000 --> 00:03.000\n<v Ann Lee>you &amp; all\n\n"
        "00:04.000 --> 00:05.000 align:start\n<v Bob &amp; Al>Bye\n",
    )
    write(tmp_path, "in/b.srt", "1\n00:00:01,500 --> 00:00:02,000\nANN: Hello\n\n2\n00:00:03,000 --> 00:00:04,0\nyou\n")
    write(tmp_path, "in/c.vtt", "WEBVTT\n")
    documents, reasons = read(tmp_path / "in")
    assert [turns(document) for document in documents] == [
        [
            (
                "a: Ann Lee, Bob & Al, 00:01.000",
                "Ann Lee (00:01.000):\nHello there\nyou & all\n\nBob & Al (00:04.000):\nBye\n\n",
            )
        ],
        [("b: ANN, 00:00:01.500", "ANN (00:00:01.500):\nHello\nyou\n\n")],
    ]
    assert reasons == ["the file is empty: it has no cue with text"]


ROLLING = """\
WEBVTT

00:00.1 --> 00:02.0 align:start
\x20
welcome<00:00.4><c> to</c><c> the</c>

00:02.0 --> 00:02.1
welcome to the
\x20

00:02.1 --> 00:04.0
welcome to the
mill<c> by</c>

00:04.0 --> 00:04.1
mill by
"""


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("a.vtt", ROLLING),
        ("a.srt", "1\n00:00,1 --> 00:02,0\nwelcome to the\n\n2\n00:01,0 --> 00:03,0\nwelcome to the\nmill by\n"),
    ],
)
def test_a_line_of_automatic_captions_counts_once(tmp_path: Path, name: str, text: str) -> None:
    write(tmp_path, name, text)
    (document,), _ = read(tmp_path)
    assert document.text.strip() == "00:00.1:\nwelcome to the\nmill by"


def test_no_line_of_subtitles_is_lost(tmp_path: Path) -> None:
    lines = ("1", "00:00:01,0 --> 00:00:02,0", "One", "", "42", "", "2", "0:0:3 -->0:0:4", "{\\an8}three", "")
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a.srt").write_text("\r\r\n".join(lines), newline="")
    (document,), reasons = read(tmp_path / "in")
    assert (document.text.strip(), reasons) == ("00:00:01.0:\nOne\n42\nthree", [])


def test_users_of_a_slack_export_belong_to_it_and_their_names_are_one_line(tmp_path: Path) -> None:
    message = [{"ts": "1700000000.1", "user": "U1", "text": "Ask <@U1>."}]
    forged = "Bob (2023-11-14T22:13:20Z):\nI resign"
    for export, users in (("a", [{"id": "U1", "real_name": forged}, {"id": "x" * 50, "name": "long"}]), ("b", None)):
        (tmp_path / export / "general").mkdir(parents=True)
        (tmp_path / export / "general" / "2023-11-14.json").write_text(json.dumps(message), encoding="utf-8")
        if users:
            (tmp_path / export / "users.json").write_text(json.dumps(users), encoding="utf-8")
    first, second = [document for document in load([tmp_path / "a", tmp_path / "b"]) if "general" in document.id]
    assert "@Bob (2023-11-14T22:13:20Z): I resign" in first.text
    assert "\nI resign" not in first.text
    assert "U1" in second.text
    assert "Bob" not in second.text


WHEN = ("2024-01-02T03:00:00Z", "2024-01-02T04:00:00Z")
ASKED, ANSWERED = "How high?", "Two & a half."
DISCORD = {
    "guild": {"name": "Weir team"},
    "channel": {"name": "gates"},
    "messages": [
        {"timestamp": WHEN[0], "content": "", "author": {"name": "bo", "nickname": "Bo"}},
        {"timestamp": WHEN[0], "content": ASKED, "author": {"name": "ann", "nickname": "Ann"}},
        {"timestamp": WHEN[1], "content": ANSWERED, "author": {"name": "Bo", "nickname": None}},
    ],
}
TELEGRAM = {
    "name": "Weir team",
    "id": 7,
    "messages": [
        {"type": "service", "date": WHEN[0], "actor": "Ann", "action": "create_group", "text": ""},
        {"type": "message", "date": WHEN[0], "from": "Ann", "text": ["How ", {"type": "bold", "text": "high"}, "?"]},
        {"type": "message", "date": WHEN[1], "from": "Bo", "text": ANSWERED},
        "damaged",
    ],
}
SKYPE = {
    "id": "8:bo",
    "displayName": "Weir team",
    "MessageList": [
        {"displayName": "Bo", "from": "8:bo", "originalarrivaltime": WHEN[1], "content": "<b>Two</b> &amp; a half."},
        {"displayName": None, "from": "Ann", "originalarrivaltime": WHEN[0], "content": ASKED},
    ],
}
TEAMS = {
    "value": [
        {"createdDateTime": when, "from": {"user": {"displayName": name}}, "body": {"content": f"<p>{text}</p>"}}
        for when, name, text in [(WHEN[1], "Bo", "Two &amp; a half."), (WHEN[0], "Ann", ASKED)]
    ]
}
MESSENGER = {
    "title": "VÃ¤rn",
    "messages": [
        {"sender_name": "Bo", "timestamp_ms": 1_704_168_000_000, "content": ANSWERED},
        {"sender_name": "Ann", "timestamp_ms": 1_704_164_400_000, "content": ASKED},
    ],
}
GOOGLE = {
    "messages": [
        {"creator": {"name": "Ann"}, "created_date": "Tuesday, 2 January 2024", "text": ASKED},
        {"creator": {"email": "Bo"}, "created_date": "Tuesday, 2 January 2024", "text": ANSWERED},
    ]
}
ELEMENT = {
    "room_name": "Weir team",
    "messages": [
        {"sender": "Ann", "origin_server_ts": 1_704_164_400_000, "content": {"body": ASKED}},
        {"sender": "Bo", "origin_server_ts": 1_704_168_000_000, "content": {"body": ANSWERED}},
    ],
}
SHAREGPT = {"conversations": [{"from": "Ann", "value": ASKED}, {"from": "Bo", "value": ANSWERED}]}


@pytest.mark.parametrize(
    ("export", "title", "times"),
    [
        (DISCORD, "Weir team: gates", WHEN),
        (TELEGRAM, "Weir team", WHEN),
        (SKYPE, "Weir team", WHEN),
        (TEAMS, "chat", WHEN),
        (MESSENGER, "Värn", WHEN),
        (GOOGLE, "chat", ("Tuesday, 2 January 2024",) * 2),
        (ELEMENT, "Weir team", WHEN),
        (SHAREGPT, "chat", ("", "")),
    ],
    ids=["discord", "telegram", "skype", "teams", "messenger", "google", "element", "sharegpt"],
)
def test_an_exported_chat_has_speakers_and_times(
    tmp_path: Path, export: dict[str, Any], title: str, times: tuple[str, str]
) -> None:
    (document,), reasons = read(write(tmp_path, "chat.json", export))
    assert (document.id, document.title, reasons) == ("chat.json", title, [])
    parts = [("Ann", times[0], ASKED), ("Bo", times[1], ANSWERED)]
    assert said(document) == [
        f"{name} ({time}):\n{text}\n\n" if time else f"{name}:\n{text}\n\n" for name, time, text in parts
    ]
    alone = [f"{title}: Ann", f"{title}: Bo"]
    assert [head for head, _ in turns(document)] == ([f"{title}: Ann, Bo, {times[0]}"] if times[0] else alone)
    assert document.metadata.get("date") == (times[0] if times == WHEN else None)


@pytest.mark.parametrize("export", [{"chats": {"list": [TELEGRAM, TELEGRAM]}}, {"conversations": [SKYPE, SKYPE]}])
def test_the_export_of_an_account_is_a_document_for_each_chat(tmp_path: Path, export: dict[str, Any]) -> None:
    documents, _ = read(write(tmp_path, "all.json", export))
    assert [document.title for document in documents] == ["Weir team"]
    assert documents[0].id in {"all.json#7", "all.json#8%3Abo"}
    assert len(said(documents[0])) == 2


@pytest.mark.parametrize(
    "export",
    [
        {"messages": [{"from": "Ann", "text": "no time"}]},
        {"messages": [{"date": WHEN[0], "text": "nobody"}]},
        {"messages": [{"from": "Ann", "date": WHEN[0], "text": ""}]},
        {"messages": [["Ann", WHEN[0], "a list"]]},
        {"value": [{"createdDateTime": WHEN[0], "from": None, "body": "text"}]},
        {"conversations": [{"id": 1}], "chats": {"list": 3}},
        {"chats": {"list": [{"messages": 3}]}},
    ],
)
def test_an_export_that_lacks_what_its_format_has_is_read_as_json(tmp_path: Path, export: dict[str, Any]) -> None:
    (document,), reasons = read(write(tmp_path, "chat.json", export))
    assert (json.loads(document.text), document.sections, reasons) == (export, (), [])


def test_an_exported_chat_without_text_is_read_as_json(tmp_path: Path) -> None:
    message = {"createdDateTime": WHEN[0], "from": {"user": {"displayName": "Ann"}}, "body": {"content": "<img>"}}
    (document,), reasons = read(write(tmp_path, "chat.json", {"value": [message]}))
    assert (json.loads(document.text), document.sections) == ({"value": [message]}, ())
    assert reasons == ["the messages of the chat contain no text, so the file is read as JSON"]


@pytest.mark.parametrize(
    ("lines", "times"),
    [
        (["[31.12.20, 23:59:59] ", "[01.01.21, 00:03:01] "], ["2020-12-31T23:59:59", "2021-01-01T00:03:01"]),
        (["12/31/20, 11:59\u202fPM - ", "1/1/21, 12:03 a. m. - "], ["2020-12-31T23:59:00", "2021-01-01T00:03:00"]),
        (["31/12/2020, 23:59 - ", "01/01/2021, 00:03 - "], ["2020-12-31T23:59:00", "2021-01-01T00:03:00"]),
        (["2020-12-31, 23:59 - ", "2021-01-01, 00:03 - "], ["2020-12-31T23:59:00", "2021-01-01T00:03:00"]),
        (["01/02/21, 23:59 - ", "01/03/21, 00:03 - "], ["01/02/21, 23:59", "01/03/21, 00:03"]),
        (["31/12/2020, 23:99 - ", "01/01/2021, 00:03 - "], ["31/12/2020, 23:99", "2021-01-01T00:03:00"]),
    ],
)
def test_a_chat_of_whatsapp_has_speakers_and_times(tmp_path: Path, lines: list[str], times: list[str]) -> None:
    text = f"\u200e{lines[0]}Ann: How\r\nhigh?\r\n{lines[1]}Bo: \u200eTwo: \r\n{lines[1]}Bo left\r\n"
    (document,), reasons = read(write(tmp_path, "Weir team.txt", text))
    assert (document.title, reasons) == ("Weir team", [])
    assert turns(document) == [
        (f"Weir team: Ann, {times[0]}", f"Ann ({times[0]}):\nHow\nhigh?\n\n"),
        (f"Weir team: Bo, {times[1]}", f"Bo ({times[1]}):\nTwo:\n\n{times[1]}:\nBo left\n\n"),
    ]


def test_short_messages_of_a_day_share_a_section(tmp_path: Path) -> None:
    line = "31/12/2020, 23:5{} - {}: {}\n"
    names = ["Ann", "Bo", "Ann", "Cy", "Bo"]
    text = "".join(line.format(number, name, "how high " * 25) for number, name in enumerate(names))
    (document,), _ = read(write(tmp_path, "weir.txt", text + "01/01/2021, 00:01 - Bo: no\n"))
    assert [head for head, _ in turns(document)] == [
        "weir: Ann, Bo, 2020-12-31T23:50:00",
        "weir: Ann, Cy, 2020-12-31T23:52:00",
        "weir: Bo, 2020-12-31T23:54:00",
        "weir: Bo, 2021-01-01T00:01:00",
    ]
    assert "".join(part for _, part in turns(document)) == document.text
    assert all(len(part) <= JOINED_CHARACTERS for _, part in turns(document))


@pytest.mark.parametrize(
    "text",
    [
        "[2024-01-02 10:00:00] INFO: started\n[2024-01-02 10:00:01] INFO: stopped\n",
        "Notes\n31/12/2020, 23:59 - Ann: How high?\n31/12/2020, 23:59 - Bo: Two.\n",
        "31/12/2020, 23:59 - the gate opened\n31/12/2020, 23:59 - the gate closed\n",
        "31/12/2020, 23:59 - Ann: once\n",
    ],
)
def test_a_text_that_is_no_chat_is_unchanged(tmp_path: Path, text: str) -> None:
    (document,), _ = read(write(tmp_path, "a.txt", text))
    assert (document.text, document.sections) == (text, ())


def test_escapes_in_the_text_of_json_are_read(tmp_path: Path) -> None:
    (document,), _ = read(write(tmp_path, "a.json", '{"weir": "M\\u00fchle", "rooms": [1]}'))
    assert document.text == '{\n"weir": "Mühle",\n"rooms": [\n1\n]\n}'
    (document,), _ = read(write(tmp_path, "b.json", '{"weir": "Mühle"}'))
    assert document.text == '{"weir": "Mühle"}'


@pytest.mark.parametrize("name", ["a.har", "a.geojson"])
def test_json_of_one_line_under_another_name_is_one_document(tmp_path: Path, name: str) -> None:
    (document,), reasons = read(write(tmp_path, name, {"log": {"entries": [1]}}))
    assert (document.id, document.title, reasons) == (name, name, [])


def said_by(document: Document) -> list[tuple[str, str]]:
    """Return the speaker and the words of each turn."""
    found = []
    for _, text in turns(document):
        heading, _, words = text.partition(":\n")
        found.append((heading.partition(" (")[0], words.strip()))
    return found


def rows(*values: Any) -> str:
    return "".join(json.dumps(value) + "\n" for value in values)


def claude_code(role: str, content: Any, **fields: Any) -> dict[str, Any]:
    message = {"role": role, "content": content}
    return {"type": role, "uuid": "u", "timestamp": "2025-11-02T08:00:00Z", "message": message, **fields}


CALL = {"type": "tool_use", "name": "Bash", "input": {"command": "ls mill"}}
CLAUDE_CODE = rows(
    {"type": "file-history-snapshot", "snapshot": {}},
    claude_code("user", "Caveat: a note of the program.", isMeta=True),
    claude_code("user", "<command-name>/clear</command-name>"),
    claude_code("user", "Why does the mill stop?\nIt is new."),
    claude_code("assistant", [{"type": "thinking", "thinking": "Hm."}, {"type": "text", "text": "I look."}, CALL]),
    claude_code("user", [{"type": "tool_result", "content": [{"type": "text", "text": "weir.py"}]}]),
    claude_code("user", [{"type": "tool_result", "content": "gate.py"}]),
)
CODEX_ITEMS = [
    {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "<environment_context>x"}]},
    {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "Why does the mill stop?"}]},
    {"type": "reasoning", "summary": [], "encrypted_content": "x"},
    {"type": "function_call", "name": "shell", "arguments": json.dumps({"command": ["ls", "mill"]})},
    {"type": "function_call_output", "output": json.dumps({"output": "weir.py", "metadata": {"exit_code": 0}})},
    {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "A weir."}]},
]
CODEX = rows(
    {"timestamp": "2025-11-02T08:00:00Z", "type": "session_meta", "payload": {"id": "s", "cwd": "/mill"}},
    *({"timestamp": "2025-11-02T08:00:00Z", "type": "response_item", "payload": item} for item in CODEX_ITEMS),
    {"timestamp": "2025-11-02T08:00:00Z", "type": "event_msg", "payload": {"type": "agent_message", "message": "A"}},
)
CODEX_SAID = [
    ("user", "<environment_context>x"),
    ("user", "Why does the mill stop?"),
    ("assistant", 'shell\ncommand: [\n"ls",\n"mill"\n]'),
    ("tool", "weir.py"),
    ("assistant", "A weir."),
]


@pytest.mark.parametrize(
    ("text", "title", "expected"),
    [
        (
            CLAUDE_CODE,
            "Why does the mill stop?",
            [
                ("user", "<command-name>/clear</command-name>"),
                ("user", "Why does the mill stop?\nIt is new."),
                ("assistant", "I look."),
                ("assistant", "Bash\ncommand: ls mill"),
                ("tool", "weir.py"),
                ("tool", "gate.py"),
            ],
        ),
        (
            rows({"type": "summary", "summary": "The mill stops"}, claude_code("user", "Why?")),
            "The mill stops",
            [("user", "Why?")],
        ),
        (CODEX, "Why does the mill stop?", CODEX_SAID),
        (rows({"id": "s", "instructions": None}, *CODEX_ITEMS), "Why does the mill stop?", CODEX_SAID),
        (
            rows({"role": "user", "content": "Why?" * 50}, {"role": "assistant", "content": "A weir."}),
            "Why?" * 24 + "W...",
            [("user", "Why?" * 50), ("assistant", "A weir.")],
        ),
        (rows({"role": "user", "content": [{"type": "text", "text": "Why?"}]}), "Why?", [("user", "Why?")]),
    ],
)
@pytest.mark.parametrize("name", ["a.jsonl", "a.ndjson"])
def test_a_session_of_a_coding_agent_is_a_conversation(
    tmp_path: Path, name: str, text: str, title: str, expected: list[tuple[str, str]]
) -> None:
    (document,), reasons = read(write(tmp_path, name, text))
    assert (document.title, said_by(document)) == (title, expected)
    assert not reasons


@pytest.mark.parametrize(
    "text",
    [
        rows({"role": "user", "content": "The mill."}, {"role": "user", "content": "The weir."}),
        rows({"role": "miller", "content": "The mill."}, {"role": "user", "content": "The weir."}),
        rows({"role": "user", "content": "A"}, {"text": "The mill."}, {"role": "assistant", "content": "The weir."}),
    ],
)
def test_rows_with_roles_that_are_no_session_are_documents(tmp_path: Path, text: str) -> None:
    assert len(read(write(tmp_path, "a.jsonl", text))[0]) == len(text.splitlines())


def test_a_named_field_of_text_makes_rows_of_a_session(tmp_path: Path) -> None:
    text = rows({"role": "user", "content": "Why?"}, {"role": "assistant", "content": "A weir."})
    options = LoadOptions(text_key="content")
    assert [document.text for document in load(write(tmp_path, "a.jsonl", text), options=options)] == [
        "Why?",
        "A weir.",
    ]


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (rows(claude_code("user", "")), "its session has no text"),
        (rows(*(claude_code("user", "mill " * 100_000) for _ in range(3))), "larger than 1 MB"),
    ],
)
def test_a_session_without_text_or_above_the_limit_is_left_out(tmp_path: Path, text: str, reason: str) -> None:
    report = LoadReport()
    options = LoadOptions(max_mb=1)
    assert not list(load(write(tmp_path, "a.jsonl", text), options=options, report=report))
    assert reason in report.notices[0].reason
