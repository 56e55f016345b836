"""What a person sees of a passage."""

from context_agent.cli.output import PASSAGE, excerpt, printable


def test_a_short_passage_is_shown_whole_on_one_line():
    assert excerpt("One line.\nAnother.", "whatever") == "One line. Another."


def test_a_long_one_is_shown_where_the_question_s_words_are():
    text = "Nothing of note here. " * 40 + "The Lume flows past Brasko. " + "Nor is there here. " * 40
    shown = excerpt(text, "Which river flows past Brasko?")
    assert "The Lume flows past Brasko." in shown
    assert shown.startswith("… ")
    assert shown.endswith(" …")
    assert len(shown) <= PASSAGE + 4


def test_a_passage_without_any_break_is_cut():
    assert len(excerpt("x" * 5_000, "x")) <= PASSAGE + 4


def test_control_characters_are_left_out():
    assert printable("a\x1b[2Jb\u202ec\x07\n\td") == "a[2Jbc\n\td"
