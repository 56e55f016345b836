from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from context_agent.tokens import HarmonyCounter, RepeatCounter

PARTS = st.sampled_from(
    [
        "\n",
        "\n\n",
        "\r\n",
        " ",
        "  ",
        "\t",
        "/",
        "//",
        ",",
        '",',
        "],",
        "},",
        "'s",
        "word",
        "Word",
        "12345",
        "-",
        "é",
        "漢",
        "\u2028",
    ]
)


@given(st.lists(st.lists(PARTS | st.text(max_size=5), max_size=30).map("".join), max_size=6))
def test_lines_that_repeat_count_as_often_as_they_occur(texts: list[str]) -> None:
    counter = RepeatCounter()
    assert [counter.count(text) for text in texts] == [HarmonyCounter().count(text) for text in texts]


def test_a_line_is_encoded_once_until_it_is_forgotten(monkeypatch) -> None:
    counter, encoded = RepeatCounter(), []
    tokens = counter._tokens
    monkeypatch.setattr(counter, "_tokens", lambda text: encoded.append(text) or tokens(text))
    text = 'first line\n{"a": "b", "c": "d"}\nlast line'
    assert counter.count(text) == counter.count(text) == HarmonyCounter().count(text)
    assert encoded == ["first line\n", '{"a": "b",', ' "c": "d"}\n', "last line"]
    counter.forget()
    counter.count("last line")
    assert encoded[4:] == ["last line"]


def test_a_long_text_counts_as_without_memory() -> None:
    text = "".join(f"line {number} of a text, with words\n" for number in range(500))
    assert RepeatCounter().count(text) == HarmonyCounter().count(text)
