"""The chunker's promises: exact offsets, nothing lost, nothing above the size, natural cuts, linear time."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from context_agent.errors import ConfigError
from context_agent.retrieval.chunker import Span, chunk_at, chunk_document
from context_agent.tokens import CharCounter, HarmonyCounter, TokenCounter
from context_agent.types import Caption, Chunk, Document, Section
from tests.support.growth import MOST_GROWTH, growth

CHARS = CharCounter()
FAMILY = "\U0001f469\u200d\U0001f469\u200d\U0001f467\u200d\U0001f466"

PIECES = st.sampled_from(
    [
        "One plain sentence. ",
        "Dr. Smith met J. Doe in the U.S. in Jan. 1990! ",
        '"Really?" she said. ',
        "word ",
        "\n",
        "\r\n",
        "\n\n",
        " \t ",
        "# Heading\n",
        "日本語の文章です。",
        "「はい。」と言った。",
        "नमस्ते दुनिया। ",
        "e\u0301" * 7,
        FAMILY,
        "🇩🇪🇫🇷",
        "\ud83d",
        "\udc00",
        "\u3000",
        "a" * 90,
        "." * 40,
        " " * 1200,
        "x, y; z: ",
    ]
)
TEXTS = st.lists(PIECES | st.text(max_size=30), max_size=60).map("".join)


class WordCounter:
    """A token a word: nothing for white space, and any number of characters a token."""

    name = "words"

    def count(self, text: str) -> int:
        return len(text.split())


def cut(text: str, *, size: int = 16, counter: TokenCounter = CHARS, overlap: int = 0) -> list[Chunk]:
    return chunk_document(
        Document("d", text, title="T", metadata={"k": 1}), size=size, counter=counter, overlap=overlap
    )


def assert_sound(text: str, chunks: list[Chunk], size: int, counter: TokenCounter) -> None:
    covered = bytearray(len(text))
    for index, piece in enumerate(chunks):
        assert text[piece.start : piece.end] == piece.text
        assert piece.text
        assert piece.text == piece.text.strip()
        assert piece.tokens == counter.count(piece.text)
        assert piece.tokens <= size
        assert (piece.id, piece.index, piece.document_id) == (f"d_{index}", index, "d")
        covered[piece.start : piece.end] = b"\x01" * len(piece.text)
    assert [i for i, letter in enumerate(text) if not covered[i] and not letter.isspace()] == []
    starts = [(piece.start, piece.end) for piece in chunks]
    assert starts == sorted(set(starts))


@settings(max_examples=300, deadline=None)
@given(TEXTS, st.sampled_from([16, 20, 33, 64]), st.sampled_from([0, 5, 15]))
def test_offsets_are_exact_and_no_letter_is_lost(text: str, size: int, overlap: int) -> None:
    assert_sound(text, cut(text, size=size, overlap=overlap), size, CHARS)


@settings(max_examples=150, deadline=None)
@given(TEXTS, st.sampled_from([16, 40]), st.sampled_from([0, 12]))
def test_the_same_with_the_real_vocabulary(text: str, size: int, overlap: int) -> None:
    counter = HarmonyCounter()
    assert_sound(text, cut(text, size=size, counter=counter, overlap=overlap), size, counter)


@settings(max_examples=100, deadline=None)
@given(TEXTS)
def test_the_same_with_a_counter_of_words(text: str) -> None:
    assert_sound(text, cut(text, counter=WordCounter()), 16, WordCounter())


@settings(max_examples=100, deadline=None)
@given(TEXTS)
def test_without_overlap_chunks_do_not_overlap(text: str) -> None:
    chunks = cut(text)
    assert all(chunk.end <= following.start for chunk, following in pairwise(chunks))


@given(TEXTS)
@settings(max_examples=50, deadline=None)
def test_the_same_text_is_cut_the_same_way(text: str) -> None:
    assert cut(text, size=20) == cut(text, size=20)


def test_a_short_document_is_one_chunk_without_its_outer_white_space() -> None:
    (chunk,) = cut("  \n Short text. \n")
    assert (chunk.text, chunk.start, chunk.end, chunk.title, chunk.metadata) == ("Short text.", 4, 15, "T", {"k": 1})


@pytest.mark.parametrize("text", ["", " ", "\n" * 100_000, "\u3000\t\r\n"])
def test_white_space_alone_gives_no_chunk(text: str) -> None:
    assert cut(text) == []


def test_a_chunk_ends_at_a_blank_line_rather_than_later() -> None:
    text = "A first sentence here. And a second one.\n\nNew thought. It goes on for a while, and on."
    assert [c.text for c in cut(text)] == [
        "A first sentence here. And a second one.",
        "New thought. It goes on for a while, and on.",
    ]


def test_a_chunk_ends_after_a_sentence_rather_than_inside_one() -> None:
    text = "The quick brown fox jumps over it. " * 8
    assert all(c.text.endswith("over it.") for c in cut(text, size=30))


def test_abbreviations_initials_and_decimals_end_no_sentence() -> None:
    text = "It was Dr. J. R. Smith of St. Mary who paid 3.50 for it. Then the U.S. Army came, e.g. the whole of it."
    assert [c.text for c in cut(text, size=19)] == [
        "It was Dr. J. R. Smith of St. Mary who paid 3.50 for it.",
        "Then the U.S. Army came, e.g. the whole of it.",
    ]


def test_japanese_is_cut_after_full_stops_and_closing_quotes() -> None:
    text = "彼は「行きます。」と言った。彼女は何も言わずに部屋を出て行きました。" * 4
    assert all(c.text.endswith("。") for c in cut(text, size=16))


def test_a_heading_stays_with_the_text_below_it() -> None:
    text = "\n\n".join(f"# Part {n}\n\nThis is what part {n} says at length." for n in range(6))
    chunks = cut(text, size=24)
    assert len(chunks) > 1
    assert all(c.text.startswith("# Part") for c in chunks)


def test_lines_of_a_list_are_kept_whole() -> None:
    text = "\n".join(f"- item number {n} of the list" for n in range(40))
    assert all(c.text.startswith("- ") and c.text.endswith("list") for c in cut(text, size=40))


def test_long_words_are_cut_between_whole_characters() -> None:
    chunks = cut(FAMILY * 40 + "e\u0301" * 200 + "🇩🇪" * 80, size=16)
    assert len(chunks) > 5
    for piece in chunks:
        assert piece.text[0] not in "\u0301\u200d"
        assert piece.text[-1] != "\u200d"
        assert sum("\U0001f1e6" <= letter <= "\U0001f1ff" for letter in piece.text) % 2 == 0


def test_overlap_repeats_whole_sentences() -> None:
    text = " ".join(f"Sentence number {n} is here." for n in range(30))
    chunks = cut(text, size=32, overlap=8)
    assert len(chunks) > 4
    for chunk, following in pairwise(chunks):
        assert following.start < chunk.end
        assert following.text.startswith("Sentence number")
        assert chunk.text.endswith(text[following.start : chunk.end])


def sentences(*words: int, start: int = 0) -> str:
    """Return sentences with so many words. Those of the first one begin with a, and so on."""
    return " ".join(
        f"{chr(97 + at)} ".upper() + f"{chr(97 + at)} " * (count - 2) + "end." for at, count in enumerate(words, start)
    )


def in_words(text: str, *, overlap: int = 0) -> list[str]:
    """Return the chunks of 64 words."""
    return [chunk.text for chunk in cut(text, size=64, counter=WordCounter(), overlap=overlap)]


def test_a_chunk_may_be_full_to_the_last_token() -> None:
    assert in_words(sentences(16, 16, 16, 16, 16)) == [sentences(16, 16, 16, 16), sentences(16, start=4)]
    assert in_words(sentences(16, 16, 16, 17)) == [sentences(16, 16, 16), sentences(17, start=3)]


def test_a_blank_line_inside_a_chunk_counts_as_a_token() -> None:
    first, rest = sentences(52), sentences(12, 20, start=1)
    assert in_words(f"{first}\n\n{rest}") == [first, rest]


def test_a_chunk_ends_at_a_blank_line_that_leaves_it_more_than_half_full() -> None:
    first, rest = sentences(12, 12, 12), sentences(12, 12, 12, start=3)
    assert in_words(f"{first}\n\n{rest}") == [first, rest]
    first, rest = sentences(12, 12), sentences(12, 12, 12, 12, start=2)
    assert in_words(f"{first}\n\n{rest}") == [f"{first}\n\n{sentences(12, 12, 12, start=2)}", sentences(12, start=5)]


def test_no_chunk_only_repeats_the_end_of_the_one_before_it() -> None:
    text = sentences(40, 20, 50, 8)
    assert in_words(text, overlap=20) == [sentences(40, 20), sentences(50, 8, start=2)]


def test_the_overlap_has_the_last_sentences_that_fit_in_it() -> None:
    text = sentences(24, 20, 12, 8, 24)
    repeated = {overlap: in_words(text, overlap=overlap)[1] for overlap in (7, 8, 19, 20, 40)}
    assert repeated[7] == sentences(24, start=4)
    assert repeated[8] == repeated[19] == sentences(8, 24, start=3)
    assert repeated[20] == sentences(12, 8, 24, start=2)
    assert repeated[40] == sentences(20, 12, 8, 24, start=1)
    assert in_words(sentences(16, 16, 16, 16, 16), overlap=63)[1] == sentences(16, 16, 16, 16, start=1)


def test_the_chunk_at_a_span_has_the_title_of_its_document() -> None:
    document = Document("d", "One. Two.", title="T", metadata={"k": 1})
    chunk = chunk_at(document, 3, Span(5, 9, 1))
    assert (chunk.id, chunk.text, chunk.title, chunk.metadata) == ("d_3", "Two.", "T", {"k": 1})


PARAGRAPHS = "\n\n".join([f"{name} {'word ' * 9}end" for name in ("north", "south", "outer")])
"""Three chunks of 54 characters."""


@pytest.mark.parametrize(
    ("pages", "title"),
    [
        ((0,), "T (p. 1)"),
        ((0, 56), "T (p. 2)"),
        ((0, 56, 56), "T (p. 3)"),
        ((0, 57), "T (pp. 1-2)"),
        ((0, 57, 109), "T (pp. 1-3)"),
        ((0, 110), "T (p. 1)"),
        ((60,), "T"),
    ],
)
def test_one_of_several_chunks_names_its_pages(pages: tuple[int, ...], title: str) -> None:
    document = Document("d", PARAGRAPHS, "T", pages=pages)
    _, second, _ = chunk_document(document, size=16, counter=CHARS)
    assert (second.start, second.end, second.title) == (56, 110, title)
    (only,) = chunk_document(document, size=64, counter=CHARS)
    assert only.title == "T"


def test_each_of_two_chunks_has_its_captions_and_pages() -> None:
    captions = (Caption(0, 54, "North"), Caption(56, 110, "South"))
    document = Document("d", PARAGRAPHS[:110], "T", captions=captions, pages=(0, 56))
    titles = [chunk.title for chunk in chunk_document(document, size=16, counter=CHARS)]
    assert titles == ["T: North (p. 1)", "T: South (p. 2)"]


@pytest.mark.parametrize(
    ("start", "end", "title"),
    [
        (0, 54, "T"),
        (0, 56, "T"),
        (0, 57, "T: Caption"),
        (56, 70, "T"),
        (56, 110, "T: Caption"),
        (57, 84, "T"),
        (57, 85, "T: Caption"),
        (82, 120, "T: Caption"),
        (83, 120, "T"),
        (84, 84, "T"),
        (110, 164, "T"),
    ],
)
def test_a_chunk_has_the_caption_of_a_part_around_it_or_of_most_of_it(start: int, end: int, title: str) -> None:
    document = Document("d", PARAGRAPHS, "T", captions=(Caption(start, end, "Caption"),))
    _, second, _ = chunk_document(document, size=16, counter=CHARS)
    assert second.title == title


@pytest.mark.parametrize(
    ("lengths", "kept"),
    [
        ([300], [(0, 240)]),
        ([150, 150], [(0, 150), (1, 87)]),
        ([100, 100, 100], [(0, 100), (2, 100)]),
        ([70, 70, 70, 70], [(0, 70), (1, 70), (3, 70)]),
        ([80, 80, 80], [(0, 80), (1, 80), (2, 74)]),
    ],
)
def test_long_captions_lose_those_in_the_middle_and_then_their_end(
    lengths: list[int], kept: list[tuple[int, int]]
) -> None:
    captions = tuple(Caption(0, len(PARAGRAPHS), str(at) * length) for at, length in enumerate(lengths))
    document = Document("d", PARAGRAPHS, captions=captions)
    for chunk in chunk_document(document, size=16, counter=CHARS):
        assert [(int(name[0]), len(name)) for name in chunk.title.split(" > ")] == kept


@pytest.mark.parametrize(
    ("title", "name", "is_said"),
    [
        ("upper gate", "upper", True),
        ("upper gate", "gate", True),
        ("upper gate", "uppe", False),
        ("upper gate", "pper", False),
        ("gates of a gate", "gate", True),
        ("gate of a floodgate", "gate", True),
        ("gates of a gate in gates", "gate", True),
        ("gates", "gate", False),
    ],
)
def test_a_caption_is_left_out_if_the_title_says_it(title: str, name: str, is_said: bool) -> None:
    document = Document("d", PARAGRAPHS, title, captions=(Caption(0, len(PARAGRAPHS), name),))
    titles = {chunk.title for chunk in chunk_document(document, size=16, counter=CHARS)}
    assert titles == {title if is_said else f"{title}: {name}"}


def test_chunks_are_divided_at_sections_that_nest() -> None:
    """A section that fits in a chunk is whole. The text around the inner sections of a larger one is that of it."""
    text = "\n\n".join([f"{at} {'word ' * 9}end.." for at in range(7)] + [f"7 {'word ' * 10}and the end."])
    starts = [text.index(f"{at} word") for at in range(8)]
    ends = [*(start - 2 for start in starts[1:]), len(text)]
    assert ends[7] - starts[7] == 64
    sections = (
        Section(starts[1], ends[5], "outer"),
        Section(starts[1], ends[3], "inner"),
        Section(starts[1], ends[1], "first"),
        Section(starts[1] + 10, starts[1] + 20, "inside of first"),
        Section(starts[2], ends[2], "second"),
        Section(starts[5], ends[5], "third"),
        Section(starts[7], ends[7], "last"),
        Section(starts[7] + 7, starts[7] + 32, "inside of last"),
    )
    chunks = chunk_document(Document("d", text, "T", sections=sections), size=16, counter=CHARS)
    titles = ["T", "first", "second", "inner", "outer", "third", "T", "last"]
    assert [(chunk.start, chunk.end, chunk.title) for chunk in chunks] == list(zip(starts, ends, titles, strict=True))


def test_the_title_of_a_chunk_without_a_name_is_its_pages() -> None:
    first, *_ = chunk_document(Document("d", PARAGRAPHS, pages=(0,)), size=16, counter=CHARS)
    assert first.title == "(p. 1)"


def test_impossible_sizes_are_refused() -> None:
    with pytest.raises(ConfigError, match=r"chunk size must be at least .*; got 15"):
        cut("text", size=15)
    for overlap in (-1, 16, 17):
        with pytest.raises(ConfigError, match=f"chunk overlap must be .*; got {overlap}$"):
            cut("text", overlap=overlap)


PATHOLOGICAL = {
    "prose": "The quick brown fox jumps over the lazy dog near the river bank. ",
    "one word": "a",
    "lines": "a\n",
    "blank lines": "a\n\n\n",
    "no sentence": "word and ",
    "full stops": ".",
    "initials": "A. ",
    "Japanese": "日本語の文章はとても長い",
    "open brackets": '("',
    "marks": "\u0301",
    "family": FAMILY,
}


@pytest.mark.parametrize("piece", PATHOLOGICAL.values(), ids=PATHOLOGICAL)
def test_time_is_linear(piece: str) -> None:
    def chunked(text: str) -> None:
        assert chunk_document(Document("d", text), counter=CHARS)

    assert growth(chunked, lambda length: piece * (length // len(piece)), 100_000) < MOST_GROWTH


@pytest.mark.slow
@pytest.mark.parametrize("text", ["a" * 10_000_000, "word " * 2_000_000, "a" + "\n" * 10_000_000 + "b"])
def test_ten_megabytes_pass(text: str) -> None:
    chunks = chunk_document(Document("d", text), counter=CHARS)
    assert sum(len(c.text.replace(" ", "")) for c in chunks) == len("".join(text.split()))
