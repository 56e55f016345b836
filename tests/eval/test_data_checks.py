"""The checks of questions before an evaluation: gold that the index lacks, and splits that share something."""

from __future__ import annotations

import pytest

from context_agent import Chunk, Document, MemoryCorpus
from context_agent.eval.data_checks import leaks, missing_gold, with_similar_ids
from context_agent.types import Question


def corpus() -> MemoryCorpus:
    return MemoryCorpus(
        [Document("a", "alpha text"), Document("b", "beta text"), Chunk("c_0", "c", 0, "gamma", 0, 5, 1)]
    )


def test_all_gold_in_the_index_is_no_finding() -> None:
    missing = missing_gold(corpus(), [Question("1", "?", gold=("a", "b")), Question("2", "?", facts=(("c_0", "zzz"),))])
    assert not missing
    assert missing.total == 3


def test_missing_gold_lists_ids_by_question_and_counts_them() -> None:
    questions = [
        Question("1", "?", gold=("a", "x")),
        Question("2", "?", gold=("x", "y")),
        Question("3", "?", gold=("b",)),
    ]
    missing = missing_gold(corpus(), questions)
    assert missing.questions == {"1": ("x",), "2": ("x", "y")}
    assert missing.ids == ("x", "y")
    assert str(missing) == "3 of 5 gold ids are not in the index: x, y"


def test_a_fact_is_missing_when_none_of_its_chunks_is_there() -> None:
    missing = missing_gold(corpus(), [Question("1", "?", facts=(("c_0", "q_1"), ("q_1", "q_2")))])
    assert missing.questions == {"1": ("q_1",)}


def test_many_ids_are_named_in_part_and_counted() -> None:
    missing = missing_gold(corpus(), [Question("1", "?", gold=tuple(f"m{number}" for number in range(14)))])
    assert "m9 and 4 more" in str(missing)


@pytest.mark.parametrize(
    ("meant", "told"),
    [
        ("Notes/Tide.md", "for Notes/Tide.md, the index has notes/tide.md"),
        ("tide", "for tide, the index has notes/tide.md"),
        ("other/tide.md", "for other/tide.md, the index has notes/tide.md"),
        ("cafe\u0301.md", "caf\u00e9.md in another Unicode form"),
    ],
)
def test_an_id_that_was_probably_meant_is_named(meant: str, told: str) -> None:
    """The Unicode forms of an id look the same. macOS names files in the decomposed form."""
    held = MemoryCorpus([Document("notes/tide.md", "High tide."), Document("caf\u00e9.md", "A lamp.")])
    missing = missing_gold(held, [Question("1", "?", gold=(meant, "unknown.md"))])
    assert told in str(with_similar_ids(missing, held))
    assert with_similar_ids(missing, held).similar.keys() == {meant}


def test_splits_that_share_nothing_do_not_leak() -> None:
    assert not leaks([Question("1", "Who was it?")], [Question("2", "Where was it?")])


def test_the_same_question_is_found_under_other_case_spacing_and_punctuation() -> None:
    leak = leaks([Question("t1", "Who  was Émile?")], [Question("e1", "who was émile"), Question("e2", "who is émile")])
    assert leak.questions == (("t1", "e1"),)
    assert leak.ids == ()
    assert "1 question (e1)" in str(leak)


def test_questions_without_words_are_the_same_only_if_their_characters_are() -> None:
    assert not leaks([Question("t1", "???")], [Question("e1", "!!!"), Question("e2", "🙂")])
    assert leaks([Question("t1", "🙂")], [Question("e1", " 🙂 ")]).questions == (("t1", "e1"),)


def test_a_shared_id_is_a_leak_though_the_questions_differ() -> None:
    leak = leaks([Question("7", "Who?")], [Question("7", "Where?"), Question("8", "When?")])
    assert leak.ids == ("7",)
    assert "1 id (7)" in str(leak)
