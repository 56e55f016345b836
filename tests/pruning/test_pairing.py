"""Which call a tool result answers, and which results stay as they are because they answer none."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest

from context_agent.pruning.contents import OWN_RESULT, Call, MessageContent, ResultText
from context_agent.pruning.pairing import paired

USER = MessageContent("user")


def calling(*calls: Call, marks: Sequence[str] = ()) -> MessageContent:
    """A message of the agent with these calls, or with calls that it wrote between marks."""
    return MessageContent("assistant", calls=calls, written_calls=frozenset(marks))


def answering(*answers: Call) -> MessageContent:
    """A message with one result for each of these references to a call."""
    results = tuple(ResultText(0, (number,), answer.id, f"result {number}") for number, answer in enumerate(answers))
    return MessageContent("tool", answers=answers, results=results, result_owner=tuple(range(len(answers))))


def questions(*contents: MessageContent) -> list[str]:
    """What was asked for by the calls of the results that were paired, in the order of the results."""
    pairing = paired(contents, len(contents), range(len(contents)))
    return [result.asked for content in pairing.contents for result in content.results]


def faults(*contents: MessageContent, last_turn: int | None = None) -> tuple[str, ...]:
    """The faults of a conversation whose content number n is in message 10 n."""
    last_turn = len(contents) if last_turn is None else last_turn
    return paired(contents, last_turn, range(0, 10 * len(contents), 10)).faults


def ids(*texts: str) -> list[Call]:
    return [Call(id=text, asked=f"what {text} asks") for text in texts]


def names(*texts: str) -> list[Call]:
    return [Call(name=text, asked=f"what {text} asks") for text in texts]


def test_the_id_decides_whatever_the_order() -> None:
    assert questions(calling(*ids("a", "b")), answering(Call("b"), Call("a"))) == ["what b asks", "what a asks"]


def test_a_result_may_come_turns_later() -> None:
    contents = calling(*ids("a")), USER, calling(*ids("b")), answering(Call("a"), Call("b"))
    assert questions(*contents) == ["what a asks", "what b asks"]
    assert faults(*contents) == ()


def test_ids_that_start_anew_each_turn_mean_the_latest_turn_first() -> None:
    early, late = Call("0", asked="early"), Call("0", asked="late")
    assert questions(calling(early), USER, calling(late), answering(*3 * [Call("0")])) == ["late", "early"]
    assert questions(calling(early), answering(Call("0")), calling(late), answering(Call("0"))) == ["early", "late"]
    assert faults(calling(early), USER, calling(late), answering(*3 * [Call("0")])) == (
        "message 30 has a second result of the call '0'; it stays as it is",
    )


def test_calls_of_a_turn_with_one_id_are_answered_in_order() -> None:
    calls = [Call("0", asked="first"), Call("0", asked="second")]
    assert questions(calling(*calls), answering(Call("0"), Call("0"))) == ["first", "second"]
    assert questions(calling(calls[0]), calling(calls[1]), answering(Call("0"), Call("0"))) == ["first", "second"]


def test_without_ids_the_name_decides_and_then_the_position() -> None:
    calls = names("search", "read", "search")
    assert questions(calling(*calls), answering(*names("read"))) == ["what read asks"]
    assert questions(calling(*calls), answering(*3 * [Call()])) == [call.asked for call in calls]
    numbered = [Call(name="read", asked=str(number)) for number in range(3)]
    assert questions(calling(*numbered), answering(*names(*3 * ["read"]))) == ["0", "1", "2"]


def test_a_result_of_another_tool_answers_a_call_without_a_name_or_none() -> None:
    assert questions(calling(Call(asked="unnamed")), answering(*names("read"))) == ["unnamed"]
    assert questions(calling(*names("search")), answering(*names("read"))) == []
    assert questions(calling(*names("search"), Call(asked="unnamed")), answering(*names("search"), Call())) == [
        "what search asks",
        "unnamed",
    ]


def test_the_name_of_the_tool_may_be_the_id_of_the_result() -> None:
    calls = names("search", "read")
    assert questions(calling(*calls), answering(Call("read"), Call("search"))) == ["what read asks", "what search asks"]
    # If the name and the id are those of two calls, the first call is answered first.
    assert questions(calling(*calls), answering(*2 * [Call("search", "read")])) == [call.asked for call in calls]


def test_an_unknown_id_answers_only_a_call_without_an_id() -> None:
    named = Call("a", "search", asked="with an id")
    assert questions(calling(named), answering(Call("x", "search"))) == []
    without = Call(name="search", asked="without an id")
    assert questions(calling(named, without), answering(Call("x", "search"), Call("y", "search"))) == ["without an id"]
    assert questions(calling(named), answering(Call(name="search"))) == ["with an id"]


def test_a_result_without_an_id_answers_the_latest_turn() -> None:
    early, late = names("search"), [Call(name="search", asked="late")]
    assert questions(calling(*early), USER, calling(*late), answering(*2 * names("search"))) == ["late"]
    assert questions(calling(*early), USER, calling(), USER, answering(*names("search"))) == ["what search asks"]


def test_messages_of_the_agent_in_a_row_are_one_turn() -> None:
    calls = names("search", "read")
    assert questions(*(calling(call) for call in calls), answering(Call(), Call())) == [call.asked for call in calls]


def test_a_result_before_its_call_says_that_the_messages_are_in_the_wrong_order() -> None:
    assert faults(answering(Call("b")), answering(Call("a"), Call("x")), calling(*ids("a", "b")), last_turn=0) == (
        "message 0 has a result before its call: 'b'; it stays as it is. Pass the messages with the oldest first.",
        "message 10 has a result before its call: 'a'; it stays as it is. Pass the messages with the oldest first.",
        "message 10 has a result without a call: 'x'; it stays as it is",
    )


def test_a_call_is_answered_once() -> None:
    assert faults(calling(*ids("a")), answering(Call("a")), answering(Call("a"))) == (
        "message 20 has a second result of the call 'a'; it stays as it is",
    )
    assert faults(calling(*names("read")), answering(*names("read", "read"))) == (
        "message 10 has a result without a call: 'read'; it stays as it is",
    )


@pytest.mark.parametrize("call", [Call("a", "search"), Call(name="a")])
def test_a_call_without_a_result_is_named_unless_it_is_of_the_last_turn(call: Call) -> None:
    contents = [USER, calling(call), USER, calling(Call("b"))]
    assert faults(*contents, last_turn=3) == ("message 10 has a call without a result: 'a'",)
    assert len(faults(*contents, last_turn=4)) == 2


def test_results_that_answer_no_call_are_left() -> None:
    content = answering(Call("x"), Call("a"))
    own = ResultText(0, ("own",), "", "own", asked="what its own call asks")
    content = MessageContent("tool", answers=content.answers, results=(own, *content.results), result_owner=(-1, 0, 1))
    assert content.result_owner[0] == OWN_RESULT
    (_, found) = paired([calling(*ids("a")), content], 2, [0, 1]).contents
    assert found.results == (own, content.results[2])
    assert [result.asked for result in found.results] == ["what its own call asks", "what a asks"]
    assert found.result_owner == (OWN_RESULT, 1)
    assert found.left == (content.results[1],)


def test_a_result_of_a_programs_call_goes_to_the_program() -> None:
    contents = [calling(Call("a", is_of_program=True, asked="rows")), answering(Call("a"))]
    (_, found) = paired(contents, 2, [0, 1]).contents
    assert (found.results, found.left) == ((), contents[1].results)
    assert faults(*contents) == ()


def test_a_result_answers_a_call_that_the_agent_wrote_into_its_text() -> None:
    written = calling(marks=["<tool_call>"])
    assert questions(written, answering(Call())) == [""]
    assert questions(written, calling(), answering(Call())) == [""]
    assert questions(written, answering(Call("x"))) == []
    assert questions(written, USER, calling(), answering(Call())) == []
    assert questions(calling(marks=["no mark of a call"]), answering(Call())) == []
    # The calls of an earlier turn do not wait for it. Those of the same turn do.
    assert questions(calling(*names("read")), USER, written, answering(*2 * [Call()])) == ["", ""]
    both = calling(*names("read"), marks=["<tool_call>"])
    assert questions(both, answering(Call(), Call())) == ["what read asks"]


# Calls that the agent wrote into its text, and results in texts


def writing(*paths: str, calls: Sequence[Call] = ()) -> MessageContent:
    """A message of the agent whose text has a call for each path."""
    text = "\n".join(f'<tool_call>{{"name": "read", "arguments": {{"path": "{path}"}}}}</tool_call>' for path in paths)
    return MessageContent("assistant", text=text, calls=tuple(calls), written_calls=frozenset(["<tool_call>"]))


def said(*asked: str, role: str = "user") -> MessageContent:
    """A text with a result for each of these, which the marks around the results may name."""
    results = tuple(ResultText(0, (number,), "", f"result {number}", asked=it) for number, it in enumerate(asked))
    return MessageContent(role, results=results, result_owner=(OWN_RESULT,) * len(results))


@pytest.mark.parametrize(
    ("contents", "asked"),
    [
        ([writing("a", "b"), said("", "")], ["a", "b"]),
        ([writing("a", "b"), said(""), USER, said("")], ["a", "b"]),
        ([writing("a", "b"), answering(Call()), said("")], ["a", "b"]),
        ([writing("a", "b"), answering(Call(), Call())], ["a", "b"]),
        # If there are more or fewer results than calls, they are those of the last call.
        ([writing("a", "b", "c"), said("")], ["c"]),
        ([writing("a", "b"), said("", "", "")], ["b", "b", "b"]),
        ([writing("a", "b"), answering(Call("x")), said("")], ["b"]),
        ([writing("a"), said(""), writing("b"), said("")], ["a", "b"]),
        ([said(""), writing("b"), said("")], ["", "b"]),
        # Of several blocks of code, none is the call.
        ([replace(writing(), text="```\na\n```\n```\nb\n```"), answering(Call())], [""]),
        # What the marks name counts more than the call.
        ([writing("a", "b"), said("named", "")], ["named", "b"]),
        # A result of the agent's own message is not that of an earlier call.
        ([writing("a", calls=names("read")), answering(Call()), said("", role="assistant")], ["what read asks", ""]),
    ],
)
def test_results_in_texts_answer_the_calls_in_the_text_before_them(
    contents: Sequence[MessageContent], asked: Sequence[str]
) -> None:
    assert questions(*contents) == asked


@pytest.mark.parametrize(("last_turn", "left"), [(0, ["c"]), (1, ["c"]), (2, ["a", "b", "c"])])
def test_the_arguments_of_calls_that_wait_for_results_stay_whole(last_turn: int, left: Sequence[str]) -> None:
    arguments = tuple(ResultText(1, (name,), name, "{}") for name in "abc")
    agent = MessageContent("assistant", calls=(Call("a"), Call(name="b"), Call("c")), arguments=arguments)
    contents = paired([USER, agent, answering(Call("c")), USER], last_turn, range(4)).contents
    assert [it.call_id for it in contents[1].arguments] == left
    assert contents[3] is USER
