"""Where texts of each kind are cut, what labels the parts, and what remains if all of them go."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence

import pytest

from context_agent.pruning.gaps import without
from context_agent.pruning.passages import Passage, cut

SHORT = {
    "¤": f'{{"n": "{"v" * 110}"}}',
    "§": "Ik2zwEQHfwcepYyNGfB51YbmwxAscRuzOl8G5UBBBpiA84YrNbuBhOwc8fjOWOrOwd8S7Ba16j7pGLou3SHvV5utg79bg16qMTSl"
    "4f28gZl2CePvzZaqLXj4sxrvXFcqgGxKh1ZXfuBeCTt2nllZpKKgOAxMi63jOZgW82kWd6Rqjm9uAYy20948vgzIhxjNb8De3XkjM8gaf0WaWAiinynVdmBz",
    "^": "\x1b[31m",
    "□": " " * 300,
    "№": "1" * 101,
}
"""What stands for a value, for encoded text, for an escape sequence, for white space, and for a number in a drawing."""


def text_of(drawing: str) -> str:
    """The text of a drawing, in which `b100` stands for a word of 100 letters.

    In a drawing, «label→…» is a passage, and ⟨…⟩ is what goes with the last passage in it.
    """
    text = re.sub(r"«[^»→]*→|[«»⟨⟩]", "", drawing)
    text = re.sub(r"(?:(?<![a-z\\])|(?<=\\n))([a-z])(\d{2,4})", lambda word: word[1] * int(word[2]), text)
    for mark, written in SHORT.items():
        text = text.replace(mark, written)
    return text


def shortened(text: str) -> str:
    for mark, written in SHORT.items():
        text = text.replace(written, mark)
    return re.sub(r"([a-z])\1{9,}", lambda word: f"{word[1]}{len(word[0])}", text)


def drawn(text: str, passages: Sequence[Passage]) -> str:
    spans = {(it.start, it.end, 0, f"«{it.label}→" if it.label else "«", "»") for it in passages}
    spans |= {(item.start, item.end, 1, "⟨", "⟩") for it in passages for item in it.items}
    opened = [(start, 1, -end, -depth, mark) for start, end, depth, mark, _ in spans]
    closed = [(end, 0, -start, depth, mark) for start, end, depth, _, mark in spans]
    parts, position = list[str](), 0
    for offset, *_, mark in sorted(opened + closed):
        parts += [text[position:offset], mark]
        position = offset
    return shortened("".join([*parts, text[position:]]))


def check(drawing: str, left: str, *, as_json: bool = False) -> None:
    text = text_of(drawing)
    passages = cut(text, as_json=as_json)
    assert drawn(text, passages) == drawing
    for passage in passages:
        for item in {item for it in passages for item in it.items}:
            assert (item in passage.items) == (item.start < passage.end and passage.start < item.end)
    assert shortened(without(text, passages, range(len(passages)), lambda rows: f"{len(rows)} gone")) == left


@pytest.mark.parametrize(
    ("drawing", "left"),
    [
        ("«b100»\n«b100→¤»", '1 gone\n"1 gone"'),
        ("b98\n«b98→¤»", 'b98\n"1 gone"'),
        ("«¤»\n«a100»", '"1 gone"\n1 gone'),
        ("«¤»\na99", '"1 gone"\na99'),
        ("«¤»\n«```\na100\n```»\n«a100→¤»", '"1 gone"\n1 gone\n"1 gone"'),
        ("\n\n«b100»\n\n«b100→¤»\n\n\n«a100»\n \n", '\n\n1 gone\n\n"1 gone"\n\n\n1 gone\n \n'),
        ("```\n«¤»\n```", '```\n"1 gone"\n```'),
        ("«```\nb100\n```»\n«b100→¤»", '1 gone\n"1 gone"'),
        ("x\n```\n«x→¤»\n«b100\n```»", 'x\n```\n"1 gone"\n1 gone'),
        ("```\n\n«¤»\n```\n~~~", '```\n\n"1 gone"\n```\n~~~'),
        ("«¤»\n«```\n\nb100\n\n```»\n«b100→¤»", '"1 gone"\n1 gone\n"1 gone"'),
        ("«¤»\n«x\nb100\nx»\n«x→¤»", '"1 gone"\n1 gone\n"1 gone"'),
        ("«b100\n--»\n\n«¤»", '1 gone\n\n"1 gone"'),
        ("WEBVTT\n\n«b100»\n", "WEBVTT\n\n1 gone\n"),
        ("«WEBVTTS\n\nb100»\n", "1 gone\n"),
        ("b98\n\n«b98→¤»", 'b98\n\n"1 gone"'),
        ("b98\n\n\n«b98→¤»", 'b98\n\n\n"1 gone"'),
    ],
)
def test_the_lines_around_a_value(drawing: str, left: str) -> None:
    """Long ones are passages, short ones and fences stay."""
    check(drawing, left)


@pytest.mark.parametrize(
    ("drawing", "left"),
    [
        ("«## Tarn\n\nb150»\n\n⟨## Fell\n\n«Fell→b150»\n\n«Fell→12»\n«Fell→¤»⟩", "4 gone"),
        ("Tarn\n\n12\n«¤»\n\n12\n«¤» ", 'Tarn\n\n12\n"1 gone"\n\n12\n"1 gone" '),
        ("T1\n«T1→¤»\n12\n«T1→¤»", 'T1\n"1 gone"\n12\n"1 gone"'),
        ("<?xml?>\n«¤»", '<?xml?>\n"1 gone"'),
        ("T1\n```\n«T1→¤»\n```\n«T1→¤»", 'T1\n```\n"1 gone"\n```\n"1 gone"'),
    ],
)
def test_what_precedes_a_part_labels_it(drawing: str, left: str) -> None:
    check(drawing, left)


@pytest.mark.parametrize(
    ("drawing", "left"),
    [
        ("T0\n«T0→¤»\nT1\n«T1→¤»\nT2\n«T2→¤»", 'T0\n"1 gone"\nT1\n"1 gone"\nT2\n"1 gone"'),
        ("T0\n«T0→¤»\n⟨T1\n«T1→¤»⟩\n⟨T2\n«T2→¤»⟩\n⟨T3\n«T3→¤»⟩", 'T0\n"1 gone"\n3 gone'),
        (
            "P0\n\nT0\n«T0→¤»\nP1\n\n⟨T1\n«T1→¤»⟩\nP2\n\n⟨T2\n«T2→¤»⟩\nP3\n\n⟨T3\n«T3→¤»⟩",
            'P0\n\nT0\n"1 gone"\nP1\n\n3 gone',
        ),
        ("T0\nU0\n«U0→¤»\n⟨T1\nU1\n«T1 U1→¤»⟩\n⟨T2\nU2\n«T2 U2→¤»⟩\n⟨T3\nU3\n«T3 U3→¤»⟩", 'T0\nU0\n"1 gone"\n3 gone'),
        ("T0\n«T0→¤»,  \n\n⟨T1\n«T1→¤»⟩,  \n\n⟨T2\n«T2→¤»⟩,  \n\n⟨T3\n«T3→¤»⟩,  \n", 'T0\n"1 gone",  \n\n3 gone,  \n'),
        (
            "<t>\n«<t→¤»\n</t>\n<t>\n«<t→¤»\n</t>\n<t>\n«<t→¤»\n</t>\n<t>\n«<t→¤»\n</t>",
            '<t>\n"1 gone"\n</t>\n<t>\n"1 gone"\n</t>\n<t>\n"1 gone"\n</t>\n<t>\n"1 gone"\n</t>',
        ),
        (
            "«t100 0»\n«t100 0→¤»\n«t100 1»\n«t100 1→¤»\n«t100 2»\n«t100 2→¤»\n«t100 3»\n«t100 3→¤»",
            '1 gone\n"1 gone"\n1 gone\n"1 gone"\n1 gone\n"1 gone"\n1 gone\n"1 gone"',
        ),
        ("«¤»\n\n«¤»\n\n«¤»\n\n«¤»\n\n", '"4 gone"\n\n'),
        (
            "«¤»\n\n⟨T1\n«T1→¤»⟩\n⟨T2\n«T2 Error: it sank→¤»\nError: it sank⟩\n⟨T3\n«T3 failed→¤»\nfailed⟩\n",
            '"1 gone"\n\n3 gone\n',
        ),
        ("--\n«¤»\n⟨--\n«¤»⟩\n⟨--\n«¤»⟩\n⟨--\n«¤»⟩", '--\n"1 gone"\n3 gone'),
        ("«b100\nT0»\n«T0→¤»\n⟨T1\n«T1→¤»⟩\n⟨T2\n«T2→¤»⟩\n⟨T3\n«T3→¤»⟩\n«b100»", '1 gone\n"1 gone"\n3 gone\n1 gone'),
        ("T0\n\n\n«T0→¤»\n⟨T1\n\n\n«T1→¤»⟩\n⟨T2\n\n\n«T2→¤»⟩\n⟨T3\n\n\n«T3→¤»⟩", 'T0\n\n\n"1 gone"\n3 gone'),
        ("«§»\n«§»\n«§»\n«§» x", "1 gone\n1 gone\n1 gone\n1 gone x"),
        ("«§» «§» «§» «§»", "1 gone 1 gone 1 gone 1 gone"),
        ("T0\n«T0→§»\n⟨T1\n«T1→§»⟩\n⟨T2\n«T2→§»⟩\n⟨T3\n«T3→§»⟩", "T0\n1 gone\n3 gone"),
        ("T0\n«T0→§» y\n⟨T1\n«T1→§»⟩  \n⟨T2\n«T2→§»⟩\nT3\n«T3→§» x", "T0\n1 gone y\n2 gone\nT3\n1 gone x"),
    ],
)
def test_a_title_goes_with_its_part_if_there_are_many(drawing: str, left: str) -> None:
    """The text before the first part is often about all of them."""
    check(drawing, left)


@pytest.mark.parametrize(
    ("drawing", "left"),
    [
        (
            "T0\n⟨```\n«T0→¤»\n```⟩\n⟨T1\n```\n«T1→¤»\n```⟩\n⟨T2\n```\n«T2→¤»\n```⟩\n⟨T3\n```\n«T3→¤»\n```⟩",
            "T0\n4 gone",
        ),
        ("⟨```\n«¤»\n```⟩\n⟨```\n«¤»\n```⟩\n⟨```\n«¤»\n```⟩\n⟨```\n«¤»\n```⟩", "4 gone"),
        (
            "T0\n⟨~~~\n«T0→¤»\n~~~⟩\n\n⟨T1\n~~~\n«T1→¤»\n~~~⟩\n\n⟨T2\n~~~\n«T2→¤»\n~~~⟩\n\n⟨T3\n~~~\n«T3→¤»\n~~~⟩\n",
            "T0\n4 gone\n",
        ),
        (
            "T0\n```\n«T0→¤»\n\nT1\n```\n«T1→¤»\n\nT2\n```\n«T2→¤»\n\nT3\n```\n«T3→¤»\n",
            'T0\n```\n"1 gone"\n\nT1\n```\n"1 gone"\n\nT2\n```\n"1 gone"\n\nT3\n```\n"1 gone"\n',
        ),
        (
            "T0\n«T0→¤»\n```\nT1\n«T1→¤»\n```\nT2\n«T2→¤»\n```\nT3\n«T3→¤»\n```",
            'T0\n"1 gone"\n```\nT1\n"1 gone"\n```\nT2\n"1 gone"\n```\nT3\n"1 gone"\n```',
        ),
        (
            "T0\n```\n\n«T0→¤»\n```\nT1\n```\n\n«T1→¤»\n```\nT2\n```\n\n«T2→¤»\n```\nT3\n```\n\n«T3→¤»\n```",
            'T0\n```\n\n"1 gone"\n```\nT1\n```\n\n"1 gone"\n```\nT2\n```\n\n"1 gone"\n```\nT3\n```\n\n"1 gone"\n```',
        ),
        (
            "T0\n```\n«T0→¤»\n```\nT1\n```\n«T1→¤»\n```\nT2\n```\n«T2→¤»\n```",
            'T0\n```\n"1 gone"\n```\nT1\n```\n"1 gone"\n```\nT2\n```\n"1 gone"\n```',
        ),
        (
            (
                "«t100 0»\n⟨```\n«t100 0→¤»\n```⟩\n«t100 1»\n⟨```\n«t100 1→¤»\n```⟩\n«t100 2»\n⟨```\n«t100 2→¤»"
                "\n```⟩\n«t100 3»\n⟨```\n«t100 3→¤»\n```⟩"
            ),
            "1 gone\n1 gone\n1 gone\n1 gone\n1 gone\n1 gone\n1 gone\n1 gone",
        ),
    ],
)
def test_a_fence_goes_with_what_is_in_it(drawing: str, left: str) -> None:
    check(drawing, left)


@pytest.mark.parametrize(
    ("drawing", "left"),
    [
        ("[1]\n[2]", "[1]\n[2]"),
        ("{'a': 'v130'}", "{'a': 'v130'}"),
        ("It rained.", "It rained."),
        ('{"note": "It rained."}', '{"note": "It rained."}'),
        ('{"k": "«k→v130»", "l": "«l→w130»"}', '{"k": "1 gone", "l": "1 gone"}'),
        ('{"output": "«output→v130»\\n\\n«output→w130»"}', '{"output": "2 gone"}'),
        ('{"a": {"output": «a→"v650\\n\\nw130"», "b": [1]}}', '{"a": {"output": "1 gone", "b": [1]}}'),
        ('[«"v600"», «"w130"»]', '["2 gone"]'),
        ('{"a": "b20", "c": [«c→"v600"», «c→"w610"»]}', '{"a": "b20", "c": ["2 gone"]}'),
        (
            '{"ka": «ka→{"x": "v300"}», "kb": «kb→{"x": "v300"}», "kc": «kc→{"x": "v300"}», "kd": «kd→{"x": "v300"}»}',
            '{"ka": "1 gone", "kb": "1 gone", "kc": "1 gone", "kd": "1 gone"}',
        ),
        (
            (
                '{"ka": ⟨{"e": "f90", "g": "f90", "x": "«ka→v600»«ka→v601»"}⟩, "kb": ⟨{"e": "f90", "g": "f90", '
                '"x": "«kb→v600»«kb→v601»"}⟩, "kc": ⟨{"e": "f90", "g": "f90", "x": "«kc→v600»«kc→v601»"}⟩, '
                '"kd": ⟨{"e": "f90", "g": "f90", "x": "«kd→v600»«kd→v601»"}⟩}'
            ),
            '{"ka": "2 gone", "kb": "2 gone", "kc": "2 gone", "kd": "2 gone"}',
        ),
        (
            '{"a": "b98", "b": "b98", "c": "b98", "d": "b98", "e": "b98", "f": "b98", "g": "b98"}',
            '{"a": "b98", "b": "b98", "c": "b98", "d": "b98", "e": "b98", "f": "b98", "g": "b98"}',
        ),
    ],
)
def test_json_that_must_stay_json(drawing: str, left: str) -> None:
    check(drawing, left, as_json=True)


@pytest.mark.parametrize(
    ("drawing", "left"),
    [
        ('«{"note": "It rained."}»', '"1 gone"'),
        ('«{"n": "v130"}»\n«{"n": "w130"}»', '"2 gone"'),
        ('«{"n": "v130"}»\n«{"n": "w130"}»\n«{"n": "w30"}»', '"3 gone"'),
        ('"«v130»"', '"1 gone"'),
        ('[«"v40", "w40"»]', '["1 gone"]'),
        ('[«"v110"», «"w40"»]', '["2 gone"]'),
        ('{"k": «k→"v599"»}', '{"k": "1 gone"}'),
        ('«{"k": "v598"}»', '"1 gone"'),
        (
            '{"k": «k→"v300"», "l": «l→"v300"», "m": «m→"v300"», "n": «n→"v268"»}',
            '{"k": "1 gone", "l": "1 gone", "m": "1 gone", "n": "1 gone"}',
        ),
        ('«{"k": "v295", "l": "v295", "m": "v295", "n": "v273"}»', '"1 gone"'),
        ('{"k": [[1], [2]], "l": «l→"v100"»}', '{"k": [[1], [2]], "l": "1 gone"}'),
        ('«{"k": [[1], 2], "l": "v100"}»', '"1 gone"'),
        ('«{"k": {"l": [1], "m": [2]}}»', '"1 gone"'),
        ('{"k": "10:00:01 at\\n10:00:02 by\\n10:00:03 co"}', '{"k": "10:00:01 at\\n10:00:02 by\\n10:00:03 co"}'),
        (
            '{"k": "10:00:01 at\\n10:00:02 by\\n10:00:03 co", "l": «l→"v130"»}',
            '{"k": "10:00:01 at\\n10:00:02 by\\n10:00:03 co", "l": "1 gone"}',
        ),
        ('[«{"a": "b60"}», «{"a": "c60"}»]', '["2 gone"]'),
        ('«{"a": 1, "b": 2}»', '"1 gone"'),
        ('{"a": [«a→"v610"»], "b": 2}', '{"a": ["1 gone"], "b": 2}'),
        ("«12»", "1 gone"),
        ('{"k": [1, 2, 3], "s": {"t": «s→"v599"»}}', '{"k": [1, 2, 3], "s": {"t": "1 gone"}}'),
        ('{"k606": «k606→"v610"»}', '{"k606": "1 gone"}'),
        ('«{"k607": "v610"}»', '"1 gone"'),
        ('«b100»\n{"k606": «b100→"v610"»}', '1 gone\n{"k606": "1 gone"}'),
        (
            '\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n{"k": [[1], [2]], "l": "v60"}',
            '\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n{"k": [[1], [2]], "l": "v60"}',
        ),
        ('{"k": [[1], [2]], "l": "v73"}', '{"k": [[1], [2]], "l": "v73"}'),
        ('«{"k": [[1], [2]], "l": "v74"}»', '"1 gone"'),
        ('«{"k": "v295", "l": "v295", "m": "v295", "n": "v279"}»', '"1 gone"'),
        (
            '{"k": «k→"v295"», "l": «l→"v295"», "m": «m→"v295"», "n": «n→"v280"»}',
            '{"k": "1 gone", "l": "1 gone", "m": "1 gone", "n": "1 gone"}',
        ),
        ('{"c": «c→"v610"», "a": {"b": 1}}', '{"c": "1 gone", "a": {"b": 1}}'),
        ('[[[[[[["«v600»«v50 b650»"]]]]]]]', '[[[[[[["2 gone"]]]]]]]'),
        ('[[[[[[[«["v650 b650"]»]]]]]]]', '[[[[[[["1 gone"]]]]]]]'),
        ('[[[[[["«v600»«v50 b650»"]]]]]]\n[[[[[[«["v650 b650"]»]]]]]]', '[[[[[["2 gone"]]]]]]\n[[[[[["1 gone"]]]]]]'),
        (
            '{"a": {"a": {"a": {"a": {"a": {"a": {"a": «a→"v700"»}}}}}}}',
            '{"a": {"a": {"a": {"a": {"a": {"a": {"a": "1 gone"}}}}}}}',
        ),
        (
            '{"a": {"a": {"a": {"a": {"a": {"a": {"a": «a→{"a": "v700"}»}}}}}}}',
            '{"a": {"a": {"a": {"a": {"a": {"a": {"a": "1 gone"}}}}}}}',
        ),
    ],
)
def test_a_record_is_a_passage_and_other_values_are_opened(drawing: str, left: str) -> None:
    check(drawing, left)


@pytest.mark.parametrize(
    ("drawing", "left"),
    [
        ('{"a": "b98", "c": «c→"d601"»}', '{"a": "b98", "c": "1 gone"}'),
        ('{"a": «a→"b99"», "c": «c→"d601"»}', '{"a": "1 gone", "c": "1 gone"}'),
        (
            '{"a": "b93", "e": "b93", "f": «f→"b99"», "c": «c→"d601"»}',
            '{"a": "b93", "e": "b93", "f": "1 gone", "c": "1 gone"}',
        ),
        ('{«"a": "b94"», «"e": "b94"», «"f": "b94"», "c": «c→"d601"»}', '{"3 gone": "", "c": "1 gone"}'),
        ('{«"a": "b95"», «"e": "b95"», «"f": "b95"», "c": «c→"d601"»}', '{"3 gone": "", "c": "1 gone"}'),
        ('{"name": "Tarn", "c": «Tarn→"d601"»}', '{"name": "Tarn", "c": "1 gone"}'),
        (
            '{"name": "Tarn", "c": {"x": «Tarn c→"d601"»}, "e": {"x": «Tarn e→"f601"»}}',
            '{"name": "Tarn", "c": {"x": "1 gone"}, "e": {"x": "1 gone"}}',
        ),
        (
            '{"metadata": {"name": "Tarn"}, "c": {"x": "«Tarn→d600»«Tarn→d601»"}}',
            '{"metadata": {"name": "Tarn"}, "c": {"x": "2 gone"}}',
        ),
        (
            (
                '{"ka": {"x": "«ka→v600»«ka→v601 w20»"}, "kb": {"x": "«kb→v600»«kb→v601 w20»"}, '
                '"kc": {"x": "«kc→v600»«kc→v601 w20»"}, "kd": {"x": "«kd→v600»«kd→v601 w20»"}}'
            ),
            '{"ka": {"x": "2 gone"}, "kb": {"x": "2 gone"}, "kc": {"x": "2 gone"}, "kd": {"x": "2 gone"}}',
        ),
        (
            (
                '{⟨"ka": {"e": "f90", "g": "f90", "x": "«ka→v600»«ka→v601»"}⟩, ⟨"kb": {"e": "f90", "g": "f90", '
                '"x": "«kb→v600»«kb→v601»"}⟩, ⟨"kc": {"e": "f90", "g": "f90", "x": "«kc→v600»«kc→v601»"}⟩, '
                '⟨"kd": {"e": "f90", "g": "f90", "x": "«kd→v600»«kd→v601»"}⟩}'
            ),
            '{"8 gone": ""}',
        ),
        (
            (
                '{"ka": {"e": "f90", "g": "f90", "x": "«ka→v600»«ka→v601»"}, "kb": {"e": "f90", "g": "f90", '
                '"x": "«kb→v600»«kb→v601»"}}'
            ),
            '{"ka": {"e": "f90", "g": "f90", "x": "2 gone"}, "kb": {"e": "f90", "g": "f90", "x": "2 gone"}}',
        ),
        (
            (
                '{«"ka": {"x": "v300"}», «"kb": {"x": "v300"}», «"kc": {"x": "v300"}», «"kd": {"x": "v300"}», '
                '«"ke": {"x": "v300"}»}'
            ),
            '{"5 gone": ""}',
        ),
        ('«{"ka": {"x": "v300"}, "kb": {"x": "v300"}, "kc": {"x": "v300"}}»', '"1 gone"'),
        ('{«"ka": {"x": "v300"}», «"kb": {"x": "v300"}», «"kc": {"x": "v300"}», «"s": "w400"»}', '{"4 gone": ""}'),
        (
            '{"ka": «ka→{"x": "v300"}», "kb": «kb→{"x": "v300"}», "s": «s→"w400"», "t": «t→"w400"»}',
            '{"ka": "1 gone", "kb": "1 gone", "s": "1 gone", "t": "1 gone"}',
        ),
        (
            (
                '{«"ka": {"x": "v10"}, "kb": {"x": "v10"}, "kc": {"x": "v10"}, "kd": {"x": "v10"}, '
                '"ke": {"x": "v10"}», "z": "«z→w600»«z→w700»"}'
            ),
            '{"1 gone": "", "z": "2 gone"}',
        ),
        (
            '{«"s": "v50"», "c": «c→"d601"», «"t": "v50"», "e": «e→"d601"», «"ua": "v80", "ub": "v80", "uc": "v80"»}',
            '{"1 gone": "", "c": "1 gone", "1 gone": "", "e": "1 gone", "1 gone": ""}',
        ),
        ('{"c": [«c→"d601"», «c→"e601"»], "a": "b20"}', '{"c": ["2 gone"], "a": "b20"}'),
        (
            '{"c": {"a": "b50", "e": "b50", "f": "b50", "g": «c→"d601"»}, "h": «h→"b700"»}',
            '{"c": {"a": "b50", "e": "b50", "f": "b50", "g": "1 gone"}, "h": "1 gone"}',
        ),
        (
            '{"c": «c→{"a": "b90", "e": "b90", "f": "b90", "g": "h90", "i": ["d101"]}», "h": «h→"b700"»}',
            '{"c": "1 gone", "h": "1 gone"}',
        ),
        (
            '{"k": "«k→10:00:01 at\\n10:00:02 by»\\n«k→10:00:03 c80»", "l": «l→"d700"»}',
            '{"k": "2 gone", "l": "1 gone"}',
        ),
        ('{"k": «k→"a500\\n\\nb500"», "l": «l→"d700"»}', '{"k": "1 gone", "l": "1 gone"}'),
        ('{"k": "«k→a700»\\n\\n«k→b700»"}', '{"k": "2 gone"}'),
        ('{"k": «k→"§"», "l": «l→"d700"»}', '{"k": "1 gone", "l": "1 gone"}'),
        ('{"k": «k→"[\\"§\\", \\"a100\\"]"», "l": «l→"d700"»}', '{"k": "1 gone", "l": "1 gone"}'),
        ('{"k": «k→"a100\\n§\\nb100"», "l": «l→"d700"»}', '{"k": "1 gone", "l": "1 gone"}'),
        (
            '{"k": "[«k→{\\"a\\": \\"b130\\"}», «k→{\\"a\\": \\"c130\\"}»]", "l": «l→"d700"»}',
            '{"k": "[\\"2 gone\\"]", "l": "1 gone"}',
        ),
        (
            '{"name": "Tarn", "c": {"name": "Tarn", "x": "«Tarn→d600»«Tarn→d601»"}}',
            '{"name": "Tarn", "c": {"name": "Tarn", "x": "2 gone"}}',
        ),
        ('{"k": «k→№», "l": «l→"d700"»}', '{"k": "1 gone", "l": "1 gone"}'),
        ("«f(a='b110', c='d700')»", "1 gone"),
        ('{"k": «k→"v1198"», "l": "«l→v1199»"}', '{"k": "1 gone", "l": "1 gone"}'),
        ('«{"a": "b90", "b": "b90", "c": "b90", "d": "b90", "e": "b90", "f": "b90", "g": "b13"}»', '"1 gone"'),
        ('«{"a": "b90", "b": "b90", "c": "b90", "d": "b90", "e": "b90", "f": "b90", "g": "b90"}»', '"1 gone"'),
        ('{«"a": "b98"», «"e": "b98"», «"f": "b98"», "c": «c→"d601"»}', '{"3 gone": "", "c": "1 gone"}'),
        (
            '{"a": "b93", "e": "b93", "f": "b93", "c": «c→"d601"»}',
            '{"a": "b93", "e": "b93", "f": "b93", "c": "1 gone"}',
        ),
        (
            '{"name": "Tarn", "a": {"y": 1}, "c": {"x": «Tarn→"d601"»}}',
            '{"name": "Tarn", "a": {"y": 1}, "c": {"x": "1 gone"}}',
        ),
        (
            '{"name": "Tarn", "a": {"y": "v91"}, "c": {"x": «Tarn→"d601"»}}',
            '{"name": "Tarn", "a": {"y": "v91"}, "c": {"x": "1 gone"}}',
        ),
        (
            '{"name": "Tarn", "a": «Tarn a→{"y": "v92"}», "c": {"x": «Tarn c→"d601"»}}',
            '{"name": "Tarn", "a": "1 gone", "c": {"x": "1 gone"}}',
        ),
        (
            (
                '{"ka": «ka→{"x": "v300"}», "kb": «kb→{"x": "v300"}», "kc": «kc→{"x": "v300"}», "s": «s→"w400"»'
                ', "t": «t→"w400"»}'
            ),
            '{"ka": "1 gone", "kb": "1 gone", "kc": "1 gone", "s": "1 gone", "t": "1 gone"}',
        ),
        ('«{"a": "b90", "b": "b90", "c": "b90", "d": "b90", "e": "b90", "g": "b93", "k": [[1], [2]]}»', '"1 gone"'),
        (
            '{«"a": "b90", "b": "b90", "c": "b90", "d": "b90", "e": "b90"», «"g": "b94"», «"k": [[1], [2]]»}',
            '{"3 gone": ""}',
        ),
        (
            (
                '{«"ka": {"x": "v50"}», «"kb": {"x": "v50"}», «"kc": {"x": "v50"}», «"kd": {"x": "v50"}», '
                '«"ke": {"x": "v50"}», «"kf": {"x": "v50"}», "z": "«z→w600»«z→w700»"}'
            ),
            '{"6 gone": "", "z": "2 gone"}',
        ),
        ("[User(«'b110'», note='«d600»«d601»')]", "[User(\"1 gone\", note='2 gone')]"),
        ("[User(note='«note→d600»«note→d601»', «'b110'»)]", "[User(note='2 gone', \"1 gone\")]"),
        (
            '{«"ka": {"x": "v1191"}», «"kb": {"x": "v1191"}», «"kc": {"x": "v1191"}», «"kd": {"x": "v1191"}»}',
            '{"4 gone": ""}',
        ),
        ('{"c": {"k606": «c→"v610"»}, "h": «h→"b700"»}', '{"c": {"k606": "1 gone"}, "h": "1 gone"}'),
        ('{"c": «c→{"k607": "v610"}», "h": «h→"b700"»}', '{"c": "1 gone", "h": "1 gone"}'),
        (
            "a:\n a:\n  a:\n   a:\n    a:\n     a:\n      «a→a:\n      - v500\n      - w500\n      - s500»\n",
            'a:\n a:\n  a:\n   a:\n    a:\n     a:\n      "1 gone": ""\n',
        ),
        (
            "a:\n a:\n  a:\n   a:\n    a:\n     a:\n      a:\n       «a→v: v500\n       w: w500\n       s: s500»\n",
            'a:\n a:\n  a:\n   a:\n    a:\n     a:\n      a:\n       "1 gone"\n',
        ),
    ],
)
def test_the_members_of_an_object(drawing: str, left: str) -> None:
    check(drawing, left)


@pytest.mark.parametrize(
    ("drawing", "left"),
    [
        (
            (
                '[{"name": "A", "t": "«A→v600»«A→v601»"}, {"name": "B", "t": "«B→w600»«B→w601»"}, '
                '«{"name": "C"}, {"name": "D"}»]'
            ),
            '[{"name": "A", "t": "2 gone"}, {"name": "B", "t": "2 gone"}, "1 gone"]',
        ),
        (
            (
                '[⟨{"name": "A", "s": "u90", "w": "u90", "t": "«A→v600»«A→v601»"}⟩, «{"name": "C"}», '
                '⟨{"name": "B", "s": "u90", "w": "u90", "t": "«B→w600»«B→w601»"}⟩]'
            ),
            '["5 gone"]',
        ),
        ('[«{"t": "v1191"}», {"t": «t→"v1192"»}, {"t": «t→"v1193"»}]', '["1 gone", {"t": "1 gone"}, {"t": "1 gone"}]'),
        ('[«"a10", "b10"», «"c101"», «"d10"»]', '["3 gone"]'),
        ('[«1, {"a": "b30"}, {"a": "b30"}», «"v50"», «"v50"»]', '["3 gone"]'),
        ('[«1, 2, 3, 4, {"a": "b30"}, "v50", "v50"»]', '["1 gone"]'),
        ('[«1, 2, 3, {"a": "b30"}», «"v50"», «"v50"»]', '["3 gone"]'),
        ('[⟨{"s": "u50", "w": "u50", "x": {"y": «x→"z601"»}, "t": "«t→v600»«t→v601»"}⟩, «"a10"»]', '["4 gone"]'),
        ("[«1, 2, 3»]", '["1 gone"]'),
        ('["«a700»\\n\\n«b700 it»\\n\\n«c20»"]', '["3 gone"]'),
        (
            '[{«"a": "b94"», «"e": "b94"», «"f": "b94"», «"h": "b94"», "c": "«c→d600»«c→d601 e20»"}]',
            '[{"4 gone": "", "c": "2 gone"}]',
        ),
        ('[⟨{"k606": «k606→"v610"»}⟩, «"a10"»]', '["2 gone"]'),
        ('[«{"k607": "v610"}», «"a10"»]', '["2 gone"]'),
        ('[{"s": "u82", "t": "«t→v600»«t→v601 w20»"}]', '[{"s": "u82", "t": "2 gone"}]'),
        ('[⟨{"s": "u83", "t": "«t→v600»«t→v601 w20»"}⟩]', '["2 gone"]'),
        ('[«"v98"», «"a10"»]', '["2 gone"]'),
        ('[«"v97", "a10"»]', '["1 gone"]'),
        ('[«"v97", "v97", "v97", "v97", "v97", "v93"», «"a10"»]', '["2 gone"]'),
        ('[«"v97", "v97", "v97", "v97", "v97"», «"v94", "a10"»]', '["2 gone"]'),
        (
            (
                '[{"name": "Ana", "city": "Tarn", "t": "«Ana→v600»«Ana→v601»"}, {"name": "Bo", "city": "Tarn", '
                '"t": "«Bo→w600»«Bo→w601»"}, «{"name": "Cy", "city": "Fell"}»]'
            ),
            '[{"name": "Ana", "city": "Tarn", "t": "2 gone"}, {"name": "Bo", "city": "Tarn", "t": "2 gone"}, "1 gone"]',
        ),
        (
            (
                '[{"name": "Ana", "city": "Tarn", "t": "«Ana→v600»«Ana→v601»"}, «{"name": "Bo", '
                '"city": "Fell", "t": "w1161"}»]'
            ),
            '[{"name": "Ana", "city": "Tarn", "t": "2 gone"}, "1 gone"]',
        ),
        (
            (
                '[{"name": "Ana", "city": "Tarn", "t": "«Ana Tarn→v600»«Ana Tarn→v601»"}, {"name": "Bo", '
                '"city": "Fell", "t": «Bo Fell→"w1162"»}]'
            ),
            '[{"name": "Ana", "city": "Tarn", "t": "2 gone"}, {"name": "Bo", "city": "Fell", "t": "1 gone"}]',
        ),
    ],
)
def test_the_items_of_a_list(drawing: str, left: str) -> None:
    check(drawing, left)


@pytest.mark.parametrize(
    ("drawing", "left"),
    [
        ('"[«[1, 2]», «[\\"v300\\"]», «[\\"w300\\"]»]"', '"[\\"3 gone\\"]"'),
        (
            '{"o": "«o→b100»\\n[«b100→{\\"n\\": \\"v110\\"}», «b100→{\\"n\\": \\"w110\\"}»]\\n", "l": "«l→d1200»"}',
            '{"o": "1 gone\\n[\\"2 gone\\"]\\n", "l": "1 gone"}',
        ),
        (
            (
                '{"o": "T0\\n«T0→{\\"n\\": \\"v110\\"}»\\n⟨T1\\n«T1→{\\"n\\": \\"v110\\"}»'
                '⟩\\n⟨T2\\n«T2→{\\"n\\": \\"v110\\"}»⟩\\n⟨T3\\n«T3→{\\"n\\": \\"v110\\"}»⟩\\n«o→x700»"}'
            ),
            '{"o": "T0\\n\\"1 gone\\"\\n3 gone\\n1 gone"}',
        ),
        ('[«"§"», «"w130"»]', '["2 gone"]'),
        (
            '["⟨# A\\n\\n⟨## B\\n\\n«A B→b700»\\n\\n«A B→c700»⟩\\n\\n⟨## C\\n\\n«A C→b700»\\n\\n«A C→c700»⟩⟩"]',
            '["4 gone"]',
        ),
        ('«"§"»', '"1 gone"'),
        ('"«It rained.»"', '"1 gone"'),
        ('["«a700»\\n\\n«b700 it»", "«a700»\\n\\n«b700 it»"]', '["2 gone", "2 gone"]'),
    ],
)
def test_texts_and_values_in_strings(drawing: str, left: str) -> None:
    check(drawing, left)


@pytest.mark.parametrize(
    ("drawing", "left"),
    [
        ("<r>«<a>b101</a>»«<a>c100</a>»</r>", "<r><!-- 2 gone --></r>"),
        ("«<!-- c92 -->\n<!-- d93 --><r><a>b101</a></r>»", "1 gone"),
        (
            "<?xml version='1.0'?>«<!-- c92 -->»«<!-- d93 -->»<r>«<a>b101</a>»</r>",
            "<?xml version='1.0'?><!-- 2 gone --><r><!-- 1 gone --></r>",
        ),
        (
            (
                "<r><p><name>N0</name><t>«N0→v600»«N0→v600 w20»</t></p><p><name>N1</name><t>«N1→v600»"
                "«N1→v600 w20»</t></p></r>"
            ),
            "<r><p><name>N0</name><t>2 gone</t></p><p><name>N1</name><t>2 gone</t></p></r>",
        ),
        (
            "<r>«<p><t>v600</t><t>w579</t></p>»<p>«<t>v600</t>»«<t>w580</t>»</p></r>",
            "<r><!-- 1 gone --><p><!-- 2 gone --></p></r>",
        ),
        ("<r><q>«<i><x>v100</x></i>»«<i><x>v100</x></i>»«<i><x>v100</x></i>»</q></r>", "<r><q><!-- 3 gone --></q></r>"),
        ("<r>«<q><i><x>v190</x></i></q>»</r>", "<r><!-- 1 gone --></r>"),
        ("<r>«<q><i><x>v190</x></i><s>t20</s></q>»</r>", "<r><!-- 1 gone --></r>"),
        ("<r>«<q><i><x>v100</x></i><s>t20</s></q>»</r>", "<r><!-- 1 gone --></r>"),
        (
            (
                "<r>«<q><i><x>v5</x></i><i><x>v5</x></i><i><x>v5</x></i><i><x>v5</x></i><i><x>v5</x></i></q>»"
                "«<i>b30</i>»</r>"
            ),
            "<r><!-- 2 gone --></r>",
        ),
        ("<r>«<q><i><x>v55</x></i><i><x>v55</x></i></q>»«<i>b30</i>»</r>", "<r><!-- 2 gone --></r>"),
        (
            "<r><w>«w→<x>v600</x>»«w→<y>w610</y>»</w><u>«u→<x>v600</x>»«u→<y>w610</y>»</u></r>",
            "<r><w><!-- 2 gone --></w><u><!-- 2 gone --></u></r>",
        ),
        (
            "<r><w>«<x>v600</x>»«<y>w610</y>»</w><w>«<x>v600</x>»«<y>w610</y>»</w></r>",
            "<r><w><!-- 2 gone --></w><w><!-- 2 gone --></w></r>",
        ),
        ("<r><w>«<x>v600</x>»«<y>w610</y>»</w>«<i>a10</i>»</r>", "<r><w><!-- 2 gone --></w><!-- 1 gone --></r>"),
        (
            "<r><w>«w→<x>v600</x>»«w→<y>w610</y>»</w>«<u><x>v60</x></u>»«<u><x>v60</x></u>»</r>",
            "<r><w><!-- 2 gone --></w><!-- 2 gone --></r>",
        ),
        (
            "<r><w>«<x>v600</x>»«<y>w610</y>»</w><w>«<x>v600</x>»«<y>w610</y>»</w>«<u><x>v60</x></u>»</r>",
            "<r><w><!-- 2 gone --></w><w><!-- 2 gone --></w><!-- 1 gone --></r>",
        ),
        ("<r><w>«<x>v600</x>»«<y>w610</y>»<z>s50</z></w></r>", "<r><w><!-- 2 gone --><z>s50</z></w></r>"),
        ("<r>⟨<w>«<x>v600</x>»«<y>w610</y>»<z>s93</z></w>⟩</r>", "<r><!-- 2 gone --></r>"),
        ("<r><w>«<x>v600</x>»«<y>w610</y>»«<z>s94</z>»</w></r>", "<r><w><!-- 3 gone --></w></r>"),
        ("<r><w>«<x>v600</x>»«<y>w610</y>»«<z>s50</z>»«<a>s50</a>»</w></r>", "<r><w><!-- 4 gone --></w></r>"),
        ("<r>⟨<w>«m101»«<x>v600</x>»«<y>w610</y>»n100</w>⟩</r>", "<r><!-- 3 gone --></r>"),
        ("<r>⟨<w>m100«<x>v600</x>»«<y>w610</y>»«n101»</w>⟩</r>", "<r><!-- 3 gone --></r>"),
        ("<r>⟨<w>&amp;m101«<x>v600</x>»«<y>w610</y>»«n101»</w>⟩</r>", "<r><!-- 3 gone --></r>"),
        ("<r>⟨<w>«<x>v600</x>»<!-- c100 -->«<y>w610</y>»</w>⟩</r>", "<r><!-- 2 gone --></r>"),
        (
            (
                "<dict><key>k0</key><d>«k0→<a>v600</a>»«k0→<a>w610</a>»</d><key>k1</key><d>«k1→<a>v600</a>»"
                "«k1→<a>w610</a>»</d></dict>"
            ),
            "<dict><key>k0</key><d><!-- 2 gone --></d><key>k1</key><d><!-- 2 gone --></d></dict>",
        ),
        (
            (
                "<r><TABLE>«TABLE→<tr><th>name</th><th>age</th></tr>»«TABLE name age→<tr><td>n0</td><td>"
                "v600</td></tr>»«TABLE name age→<tr><td>n1</td><td>v600</td></tr>»«TABLE name age→<tr><td>"
                "n2</td><td>v600</td></tr>»</TABLE><table>«table→<tr><th>size</th></tr>»«table size→<tr><td>"
                "w600</td></tr>»«table size→<tr><td>w600</td></tr>»«table size→<tr><td>w600</td></tr>»</table>"
                "</r>"
            ),
            "<r><TABLE><!-- 4 gone --></TABLE><table><!-- 4 gone --></table></r>",
        ),
        ("<r>«<i>a10</i><i>a10</i><i>a10</i>»«<i>b50</i>»«<i>a10</i>»</r>", "<r><!-- 3 gone --></r>"),
        ("<r><a>«v600»«v701 w90»</a></r>", "<r><a>2 gone</a></r>"),
        ("«a100»\n<r>«a100→<a>v101</a>»</r>\n«b100»", "1 gone\n<r><!-- 1 gone --></r>\n1 gone"),
        ("<r><a>«§»«<b>d600</b>»«<b>d600</b>»</a></r>", "<r><a>1 gone<!-- 2 gone --></a></r>"),
        ("<r>«<r→§»</r>", "<r>1 gone</r>"),
        (
            '<r name="Tarn"><p name="Tarn">«Tarn→<a>v600</a>»«Tarn→<a>v610</a>»</p></r>',
            '<r name="Tarn"><p name="Tarn"><!-- 2 gone --></p></r>',
        ),
        (
            "<r>«<i>a50</i>»<p>«<t>v600</t>»«<t>w610</t>»</p>«<i>a50</i>»«<i>b50</i>»</r>",
            "<r><!-- 1 gone --><p><!-- 2 gone --></p><!-- 2 gone --></r>",
        ),
        (
            (
                "<r><p>«<x>v100</x>»&amp;w20«<y/>&amp;w20<y/>&amp;w20<y/>&amp;w20<y/>&amp;w20<y/>&amp;w20<y/>"
                "&amp;w20<y/>&amp;w20<y/>&amp;w20<y/>&amp;w20<y/>&amp;w20<y/>&amp;w20<y/>&amp;w20<y/>"
                "&amp;w20<y/>&amp;w20<y/>&amp;w20<y/>&amp;w20<y/>&amp;w20<y/>&amp;w20<y/>&amp;w20<y/>"
                "&amp;w20<y/>»&amp;w20«<y/>&amp;w20<y/>&amp;w20<y/>&amp;w20<y/>&amp;w20<y/>&amp;w20<y/>"
                "&amp;w20<y/>&amp;w20<y/>&amp;w20<y/>&amp;w20<y/>&amp;w20<y/>&amp;w20<y/>&amp;w20<y/>"
                "&amp;w20<y/>&amp;w20<y/>&amp;w20<y/>&amp;w20<y/>&amp;w20<y/>&amp;w20<y/>»</p>«<i>a50</i>»</r>"
            ),
            "<r><p><!-- 3 gone --></p><!-- 1 gone --></r>",
        ),
        (
            (
                "<r>«<p><x>v700</x><y>u80</y><y>u80</y><y>u80</y></p>»<p>«<x>v700</x>»«<y>u80</y>»«<y>u80</y>»"
                "«<y>u80</y>»«<y>u80</y>»«<y>u80</y>»«<y>u80</y>»«<y>u80</y>»«<y>u80</y>»</p></r>"
            ),
            "<r><!-- 1 gone --><p><!-- 9 gone --></p></r>",
        ),
        (
            "<a name='Tarn'>«Tarn→<b>c130</b>»<d name='Fell'>«Tarn Fell→<e>f601</e>»«Tarn Fell→<e>f601</e>»</d></a>",
            "<a name='Tarn'><!-- 1 gone --><d name='Fell'><!-- 2 gone --></d></a>",
        ),
        (
            "<r>«<i>a10</i>»<q>«<i><x>v100</x></i>»«<i><x>v100</x></i>»</q>«<i>a10</i>»</r>",
            "<r><!-- 1 gone --><q><!-- 2 gone --></q><!-- 1 gone --></r>",
        ),
        (
            "<?xml version='1.0'?>«<!-- c92 -->»<!-- c50 --><r>«<a>b101</a>»</r>",
            "<?xml version='1.0'?><!-- 1 gone --><!-- c50 --><r><!-- 1 gone --></r>",
        ),
        (
            "<?xml version='1.0'?><!-- c91 --><r>«<a>b101</a>»</r>",
            "<?xml version='1.0'?><!-- c91 --><r><!-- 1 gone --></r>",
        ),
        ("<table>«<tr><th>name</th></tr>»«name→<tr><td>v110</td></tr>»</table>", "<table><!-- 2 gone --></table>"),
        (
            (
                "<table>«<tr><th>name</th></tr>»<tr><td><table><tr><th>size</th></tr>«size→<tr><td>v600</td>"
                "</tr>»«size→<tr><td>w610</td></tr>»</table></td></tr>«name→<tr><td>w110</td></tr>»</table>"
            ),
            (
                "<table><!-- 1 gone --><tr><td><table><tr><th>size</th></tr><!-- 2 gone --></table></td></tr>"
                "<!-- 1 gone --></table>"
            ),
        ),
        (
            "<r>«<q><i><x>yyyyyyyyy</x></i><i><x>yyyyyyyyy</x></i><i><x>yyyyyyyyy</x></i><i><x>y10</x></i></q>»</r>",
            "<r><!-- 1 gone --></r>",
        ),
        (
            "<r><q>«<i><x>yyyyyyyyy</x></i><i><x>yyyyyyyyy</x></i><i><x>y10</x></i><i><x>y10</x></i>»</q></r>",
            "<r><q><!-- 1 gone --></q></r>",
        ),
        ("<r><q>«<i><x>v150</x></i>»«<i><x>v150</x></i>»</q></r>", "<r><q><!-- 2 gone --></q></r>"),
        (
            "<a><a><a><a><a><a><a>«v600»«v50 w650»</a></a></a></a></a></a></a>",
            "<a><a><a><a><a><a><a>2 gone</a></a></a></a></a></a></a>",
        ),
        (
            "<a><a><a><a><a><a><a>«<a>v650 w650</a>»</a></a></a></a></a></a></a>",
            "<a><a><a><a><a><a><a><!-- 1 gone --></a></a></a></a></a></a></a>",
        ),
        (
            "<r>«<i>a10</i>»<p>«<t>v600</t>»«<t>w610</t>»</p>«<i>a10</i>»</r>",
            "<r><!-- 1 gone --><p><!-- 2 gone --></p><!-- 1 gone --></r>",
        ),
        ("<r>⟨<w>«<x>v600</x>»&amp;m595</w>⟩«<i>a50</i>»</r>", "<r><!-- 2 gone --></r>"),
        ("<r>«<w><x>v600</x>&amp;m596</w>»«<i>a50</i>»</r>", "<r><!-- 2 gone --></r>"),
        ("<r>⟨<q><w>&amp;m110«<x>v600</x>»«<y>w610</y>»</w><u>s20</u></q>⟩</r>", "<r><!-- 2 gone --></r>"),
    ],
)
def test_the_elements_of_a_document(drawing: str, left: str) -> None:
    check(drawing, left)


@pytest.mark.parametrize(
    ("drawing", "left"),
    [
        ("id,name\n«id name→a10,b50»\n«id name→a11,b50»\n«id name→a12,b50»", 'id,name\n"3 gone",'),
        (
            "Ports\nid,name\n«Ports id name→a10,b50»\n«Ports id name→a11,b50»\n«Ports id name→a12,b50»",
            'Ports\nid,name\n"3 gone",',
        ),
        (
            (
                "⟨id,name\n«id name→a10,b50»\n«id name→a11,b50»\n«id name→a12,b50»⟩\n\n⟨id,city\n"
                "«id city→a10,b50»\n«id city→a11,b50»\n«id city→a12,b50»\n(3 rows)⟩\n\n⟨id,size\n"
                "«id size→a10,b50»\n«id size→a11,b50»\n«id size→a12,b50»⟩\n```\n"
            ),
            "3 gone\n\n3 gone\n\n3 gone\n```\n",
        ),
        (
            "| id | n |\n|---|---|\n«id n→| x0 | b50 |»\n«id n→| x1 | b50 |»\n«id n→| x2 | b50 |»",
            "| id | n |\n|---|---|\n| 3 gone ||",
        ),
        (
            "«b100»\n\nid,name\n«b100 id name→a10,b50»\n«b100 id name→a11,b50»\n«b100 id name→a12,b50»\n\n«a100»",
            '1 gone\n\nid,name\n"3 gone",\n\n1 gone',
        ),
        (
            (
                "⟨id,name\n«id name→a10,b50»\n«id name→a11,b50»\n«id name→a12,b50»⟩\n«c100»\n\n⟨id,city\n"
                "«c100 id city→a10,b50»\n«c100 id city→a11,b50»\n«c100 id city→a12,b50»⟩\n«c90\nd20»"
            ),
            "3 gone\n1 gone\n\n3 gone\n1 gone",
        ),
        (
            (
                "⟨```\nid,name\n«id name→a10,b50»\n«id name→a11,b50»\n«id name→a12,b50»⟩\n```\n\n⟨~~~\n"
                "id,city\n«id city→a10,b50»\n«id city→a11,b50»\n«id city→a12,b50»⟩\n~~~\n"
            ),
            "3 gone\n```\n\n3 gone\n~~~\n",
        ),
        (
            (
                "⟨id,name\n«id name→a10,b50»\n«id name→a11,b50»\n«id name→a12,b50»\nfoot⟩\n«¤»\n⟨id,city\n"
                "«id city→a10,b50»\n«id city→a11,b50»\n«id city→a12,b50»⟩\n"
            ),
            '3 gone\n"1 gone"\n3 gone\n',
        ),
        ("town,port\n«town port→Tarn,b50»\n«town port Tarn→,b51»\n«town port Tarn→,b52»", 'town,port\n"3 gone",'),
        ("id,name\n«id name→x0,y\nx1,y\nx2,y\nx3,y»", 'id,name\n"1 gone",'),
        (
            "id,name\n«id name→x0,y10\nx1,y10\nx2,y10\nx3,y10\nx4,y10\nx5,y10»",
            'id,name\n"1 gone",',
        ),
        (
            "id,name,age\n«id name age→x0,y10,7\nx1,y10,7»\n«id name age→x2,y10,7\nx3,y10,7»",
            'id,name,age\n"2 gone",,',
        ),
        (
            "id,name,age\n«id name age→x0,b50,7»\n«id name age→x1,b50,7»\n«id name age→x2,b50,7»",
            'id,name,age\n"3 gone",,',
        ),
        (
            (
                "Ports:\n\n| id | n |\n|---|---|\n«Ports id n→| x0 | b50 |»\n«Ports id n→| x1 | b50 |»\n"
                "«Ports id n→| x2 | b50 |»\n\n«Cities:\n\n| id | n |\n|---|---|\n| y0 | b50 |\n| y1 | b50 |»\n"
            ),
            "Ports:\n\n| id | n |\n|---|---|\n| 3 gone ||\n\n1 gone\n",
        ),
        (
            (
                "«¤»\n\nid,name\n«id name→a10,b50»\n«id name→a11,b50»\n«id name→a12,b50»\n\n«x.py→--- a/x.py\n"
                "+++ b/x.py\n@@ -1 +1 @@\n-a60\n+b60»\n"
            ),
            '"1 gone"\n\nid,name\n"3 gone",\n\n1 gone\n',
        ),
        ("«id,name;x\na10,b50\na11,b50\na12,b50»", "1 gone"),
        (
            (
                "⟨id,name\n«id name→a10,b50»\n«id name→a11,b50»\n«id name→a12,b50»\nfoot⟩\n\n«b100 c100»\n\n"
                "⟨id,city\n«b100 c19→a10,b50»\n«b100 c19→a11,b50»\n«b100 c19→a12,b50»⟩"
            ),
            "3 gone\n\n1 gone\n\n3 gone",
        ),
        (
            (
                "⟨id,name\n«id name→a10,b50»\n«id name→a11,b50»\n«id name→a12,b50»\nfoot⟩\n\nc20\n\n⟨id,city\n"
                "«c20 id city→a10,b50»\n«c20 id city→a11,b50»\n«c20 id city→a12,b50»⟩"
            ),
            "3 gone\n\nc20\n\n3 gone",
        ),
    ],
)
def test_the_rows_of_tables(drawing: str, left: str) -> None:
    """Of several tables, each goes with its header and the short text below it."""
    check(drawing, left)


@pytest.mark.parametrize(
    ("drawing", "left"),
    [
        (
            (
                "«x.py→--- a/x.py\n+++ b/x.py\n@@ -1 +1 @@\n-a60\n+b60»\n«y.py→--- a/y.py\n+++ b/y.py\n"
                "@@ -1 +1 @@\n-a60\n+b60»\n"
            ),
            "2 gone\n",
        ),
        (
            (
                "⟨--- a/x.py\n+++ b/x.py\n«x.py→@@ -1 +1 @@\n-a500\n+b500»\n⟨@@ -1 +1 @@\n«x.py→-a600»\n"
                "«x.py→+b600»⟩⟩\n«y.py→--- a/y.py\n+++ b/y.py\n@@ -1 +1 @@\n-a60\n+b60»\n⟨--- a/z.py\n"
                "+++ b/z.py\n«z.py→@@ -1 +1 @@\n-a500\n+b500»⟩\n"
            ),
            "5 gone\n",
        ),
        (
            "⟨--- a/x.py\n+++ b/x.py\n⟨@@ -1 +1 @@\n«x.py→-a700»\n«x.py→+b700»⟩\n«x.py→@@ -1 +1 @@\n-a100\n+b100»⟩\n",
            "3 gone\n",
        ),
        (
            (
                "«c100»\n\n«x.py→--- a/x.py\n+++ b/x.py\n@@ -1 +1 @@\n-a60\n+b60»\n«y.py→--- a/y.py\n"
                "+++ b/y.py\n@@ -1 +1 @@\n-a60\n+b60»\n«d100»"
            ),
            "1 gone\n\n2 gone\n1 gone",
        ),
        ("«x.py→--- a/x.py\n+++ b/x.py\n@@ -1 +1 @@\n-a60\n+b60»\n\n«d100»\n«d100→¤»", '1 gone\n\n1 gone\n"1 gone"'),
        (
            (
                "«x.py→--- a/x.py\n+++ b/x.py\n@@ -1 +1 @@\n-a60\n+b60»\n⟨--- a/x.py\n+++ b/x.py\n"
                "«x.py→@@ -1 +1 @@\n-a282\n+b282»⟩\n"
            ),
            "2 gone\n",
        ),
        (
            (
                "«x.py→--- a/x.py\n+++ b/x.py\n@@ -1 +1 @@\n-a60\n+b60»\n⟨--- a/x.py\n+++ b/x.py\n"
                "«x.py→@@ -1 +1 @@\n-a283\n+b283»⟩\n"
            ),
            "2 gone\n",
        ),
        (
            (
                "«x.py→--- a/x.py\n+++ b/x.py\n@@ -1 +1 @@\n-a60\n+b60»\n«x.py→--- a/x.py\n+++ b/x.py\n"
                "@@ -1 +1 @@\n-a281\n+b281»\n"
            ),
            "2 gone\n",
        ),
        ("⟨--- a/x.py\n+++ b/x.py\n«x.py→@@ -1 +1 @@\n-a592\n+b592»⟩\n", "1 gone\n"),
        ("⟨--- a/x.py\n+++ b/x.py\n⟨@@ -1 +1 @@\n«x.py→-a593»\n«x.py→+b593»⟩⟩\n", "2 gone\n"),
        (
            (
                "«x.py→--- a/x.py\n+++ b/x.py\n@@ -1 +1 @@\n-a60\n+b60»\n\n«d100»\n\n«y.py→--- a/y.py\n"
                "+++ b/y.py\n@@ -1 +1 @@\n-a60\n+b60»\n"
            ),
            "1 gone\n\n1 gone\n\n1 gone\n",
        ),
        (
            (
                "«w.py→--- a/w.py\n+++ b/w.py\n@@ -1 +1 @@\n-a60\n+b60»\n\n«d100»\n\n⟨--- a/x.py\n+++ b/x.py\n"
                "⟨@@ -1 +1 @@\n«x.py→-a593»\n«x.py→+b593»⟩⟩\n"
            ),
            "1 gone\n\n1 gone\n\n2 gone\n",
        ),
        (
            (
                "«e100»\n\n⟨commit 1abcdef0\nAuthor: Ana\nDate: now\n\n    Subject 1\n\n«Subject 1→    m100»\n"
                "\n«Subject 1 x.py→--- a/x.py\n+++ b/x.py\n@@ -1 +1 @@\n-a60\n+b60»⟩\n⟨commit 2abcdef0\n"
                "Author: Ana\nDate: now\n\n    Subject 2\n\n    m90\n\n«Subject 2 x.py→--- a/x.py\n+++ b/x.py\n"
                "@@ -1 +1 @@\n-a60\n+b60»⟩\n"
            ),
            "1 gone\n\n3 gone\n",
        ),
        (
            (
                "e50\n\n⟨commit 1abcdef0\nAuthor: Ana\nDate: now\n\n    Subject 1\n\n    m90\n\n"
                "«Subject 1 x.py→--- a/x.py\n+++ b/x.py\n@@ -1 +1 @@\n-a60\n+b60»⟩\n"
            ),
            "e50\n\n1 gone\n",
        ),
        ("«commit 1abcdef0\nAuthor: Ana\nDate: now\n\n    Subject 1\n\nx110»\n", "1 gone\n"),
        (
            (
                "⟨commit 1abcdef0\nAuthor: Ana\nDate: now\n\n    Subject 1\n\n«Author: Ana Subject 1→    m100»\n\n"
                "«Author: Ana Subject 1 m98→¤»⟩"
            ),
            "2 gone",
        ),
        ("«x.py→--- a/x.py\n+++ b/x.py\n@@ -1,2 +1,2 @@\n-x\n+y\n ¤»\n", "1 gone\n"),
        (
            (
                "«commit 1abcdef0\nAuthor: Ana\nDate: now\n\n    Subject 1\n\n    m100»\n\n⟨commit 2abcdef0\n"
                "Author: Ana\nDate: now\n\n    Subject 2\n\n«Subject 2→    n100»\n\n"
                "«Subject 2 x.py→--- a/x.py\n+++ b/x.py\n@@ -1 +1 @@\n-a60\n+b60»⟩\n"
            ),
            "1 gone\n\n2 gone\n",
        ),
        (
            (
                "«x.py→--- a/x.py\n+++ b/x.py\n@@ -1 +1 @@\n-a60\n+b60»\n«x.py→--- a/x.py\n+++ b/x.py\n"
                "@@ -1 +1 @@\n-a281\n+b282»\n"
            ),
            "2 gone\n",
        ),
        ("⟨--- a/x.py\n+++ b/x.py\n«x.py→@@ -1 +1 @@\n-a592\n+b593»⟩\n", "1 gone\n"),
    ],
)
def test_the_files_and_hunks_of_a_diff(drawing: str, left: str) -> None:
    check(drawing, left)


@pytest.mark.parametrize(
    ("drawing", "left"),
    [
        ("«^b100^»\n«b100→¤^»", '1 gone\n"1 gone"'),
        ("«^^»", "1 gone"),
        ("«^b20»", "1 gone"),
        ("«a100\n»«s99 0%\rs99 1%\rs99 2%\rs99 3%\rs99 4%\rs99 5%\rs99 6%\rs99 7%\r»«s99 8%\rt100»\n", "3 gone\n"),
        ("^T0^\n«T0→^¤»\n⟨^T1^\n«T1→^¤»⟩\n⟨^T2^\n«T2→^¤»⟩\n⟨^T3^\n«T3→^¤»⟩", '^T0^\n"1 gone"\n3 gone'),
        ('^{"k": «k→"a\\nb599"»}', '^{"k": "1 gone"}'),
        ("«b100^»\n□\n«^c100»", "2 gone"),
        ("^[«¤», «¤»]", '^["2 gone"]'),
    ],
)
def test_what_a_terminal_does_not_show(drawing: str, left: str) -> None:
    check(drawing, left)


@pytest.mark.parametrize(
    ("drawing", "left"),
    [
        ("«a100»\n«a100→§»\n«b100»", "1 gone\n1 gone\n1 gone"),
        ("«§»", "1 gone"),
        ("«¤»\nT\n«T→§»", '"1 gone"\nT\n1 gone'),
        ("«§»\n«§»", "1 gone\n1 gone"),
        ("«a100»\n«a100→§»\n«b100»\n«b100→¤»\n«b100→§»\n", '1 gone\n1 gone\n1 gone\n"1 gone"\n1 gone\n'),
    ],
)
def test_encoded_text(drawing: str, left: str) -> None:
    check(drawing, left)


@pytest.mark.parametrize(
    ("drawing", "left"),
    [
        ("⟨# A\n\n⟨## B\n\n«A B→b700»\n\n«A B→c700»⟩\n\n⟨## C\n\n«A C→b700»\n\n«A C→c700»⟩⟩\n\n", "4 gone\n\n"),
        (
            "⟨# A\n\n⟨## B\n\n«A B→b700»\n\n«A B→c700»⟩\n\n⟨## C\n\n«A C→b700»\n\n«A C→c700»\n\n«C c118→¤»⟩⟩",
            "5 gone",
        ),
        (
            "«¤»\n⟨# A\n\n⟨## B\n\n«A B→b700»\n\n«A B→c700»⟩\n\n⟨## C\n\n«A C→b700»\n\n«A C→c700»⟩⟩\n\n",
            '"1 gone"\n4 gone\n\n',
        ),
        ("⟨# A\n\n⟨## B\n\n«A B→b700»\n\n«A B→c700»⟩⟩\n\n«# C\n\nb150»", "3 gone"),
    ],
)
def test_sections_and_their_headings(drawing: str, left: str) -> None:
    check(drawing, left)


@pytest.mark.parametrize(
    ("drawing", "texts", "encoded"),
    [
        ('^{"k": "a\\n b599"}', ["a\n b599"], []),  # the content, although it is not written like that
        ("^b100^\n¤", ["b100", "¤"], []),
        ("a100\ns99 0%\rs99 1%\rs99 2%\rs99 3%\rt99", ["a100\n", "s99 0%\rs99 1%\rs99 2%\r", "s99 3%\rt99"], [1]),
        ('{"k": "§", "l": "d700"}', ["§", "d700"], [0]),
        ('"§"', ["§"], [0]),
        ("<r><a>§</a></r>", ["<a>§</a>"], []),
        ("<r>§</r>", ["§"], [0]),
        ("a100\n§", ["a100", "§"], [1]),
        ("^^", ["^^"], [0]),
    ],
)
def test_the_text_of_a_passage(drawing: str, texts: Sequence[str], encoded: Sequence[int]) -> None:
    passages = cut(text_of(drawing))
    assert [shortened(it.text) for it in passages] == texts
    assert [row for row, it in enumerate(passages) if it.binary] == encoded


@pytest.mark.parametrize(("depth", "strings"), [(5, [5, 5]), (6, [6, 6]), (7, [6])])
def test_six_strings_in_strings_are_opened(depth: int, strings: Sequence[int]) -> None:
    text = text_of("a650 b650")
    for _ in range(depth):
        text = json.dumps([text])
    assert [it.strings for it in cut(text)] == strings


def test_a_section_in_a_string_is_nested_like_its_passages() -> None:
    passages = cut(text_of(json.dumps(["# A\n\n## B\n\nb700\n\nc700\n\n## C\n\nb700\n\nc700"])))
    assert {(it.strings, item.strings) for it in passages for item in it.items[:-1]} == {(1, 1)}


@pytest.mark.parametrize(("length", "form"), [(600, "text"), (601, "value")])
def test_an_outline_of_the_target_size_is_a_text(length: int, form: str) -> None:
    text = "".join(f"k{row}:\n  l: {'v' * 70}\n" for row in range(6))
    assert {it.form for it in cut(f"{text}k6: ".ljust(length - 1, "x") + "\n")} == {form}
