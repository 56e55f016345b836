"""The sentence of each ranked document that matters most."""

import pytest

from context_agent.text.highlights import best_sentences, with_following
from context_agent.types import RankedChunk, RankedDocument

QUESTION = "Which river flows past the birthplace of the engineer who designed Orm Skerry Light?"


def document(title: str, *texts: str) -> RankedDocument:
    chunks = tuple(RankedChunk(f"{title}_{number}", text, 0.5) for number, text in enumerate(texts))
    return RankedDocument(title.lower(), title, 0.5, chunks)


def best(*documents: RankedDocument) -> list[str | None]:
    return [sentence and sentence.text for sentence in best_sentences(QUESTION, documents)]


def shown(question: str, text: str) -> str:
    """Return the sentence of a document with this text."""
    (sentence,) = best_sentences(question, [document("", text)])
    assert sentence is not None
    return sentence.text


def test_a_sentence_that_leads_to_the_next_document_goes_before_one_that_repeats_the_title() -> None:
    light = document(
        "Orm Skerry Light",
        "# Orm Skerry Light\n\nOrm Skerry Light is a lighthouse on a rock. It was designed by Ketil Varga.",
    )
    varga = document("Ketil Varga", "He kept bees. He was born in Brasko in 1830.", "A street bears his name.")
    brasko = document("Brasko", "Brasko is a market town.", "The river Lume flows past its walls! It has a fair.")
    assert best(light, varga, brasko) == [
        "It was designed by Ketil Varga.",
        "He was born in Brasko in 1830.",
        "The river Lume flows past its walls!",
    ]


def test_a_span_is_that_of_its_passage() -> None:
    chunk = RankedChunk("c", "Nothing here.\n  The river bends.", 0.5)
    (sentence,) = best_sentences("river", [RankedDocument("d", "", 0.5, (chunk,))])
    assert sentence is not None
    assert (sentence.chunk, chunk.text[sentence.start : sentence.end]) == (chunk, "The river bends.")


def test_documents_without_words_have_the_first_sentence_or_none() -> None:
    assert best(document("A"), document("B", ""), document("C", "Nothing. At all."), document("D", "  \n ")) == [
        None,
        None,
        "Nothing.",
        None,
    ]


def test_languages_without_spaces_are_cut_at_their_own_marks() -> None:
    text = RankedChunk("c", "東京は首都です。川は隅田川です。", 0.5)
    (sentence,) = best_sentences("川はどれですか", [RankedDocument("d", "", 0.5, (text,))])
    assert sentence is not None
    assert sentence.text == "川は隅田川です。"


def test_a_heading_or_a_rule_is_shown_only_where_there_is_no_sentence() -> None:
    notes = document("notes", "# Who built Orm Skerry Light?\n\n---\n\nOtto Brandt built it.")
    assert best(notes, document("bare", "## Light")) == ["Otto Brandt built it.", "## Light"]


def test_a_heading_in_capitals_is_shown_only_where_there_is_no_sentence() -> None:
    rule, question = "(1) The fees are due in January.", "Which fees are on the schedule?"
    assert shown(question, f"SCHEDULE OF FEES\n\n{rule}") == rule
    assert shown(question, "SCHEDULE OF FEES") == "SCHEDULE OF FEES"


def test_the_number_of_a_part_that_the_question_names_is_shown() -> None:
    assert shown("§ 9 (2)", "§ 2 Name\n\n(2) It is in Orrin.\n\n§ 9 Quorum\n\n(1) It is a quarter.") == "§ 9 Quorum"


def test_the_line_that_names_a_speaker_is_not_the_best_sentence_of_a_chat() -> None:
    chunk = RankedChunk("c", "Ann (2024-05-01T10:00:00Z):\nThe gate opens at nine.", 0.9)
    (sentence,) = best_sentences("When did Ann write?", [RankedDocument("chat", "Mill club", 0.9, (chunk,))])
    assert sentence is not None
    assert sentence.text == "The gate opens at nine."


FIELDS = "Version: 2.4\nName: gate\nRequires-Key: gate>=2; north\nLicense: MIT\nAuthor: Ketil Varga\n"


@pytest.mark.parametrize(
    ("question", "answer"),
    [
        ("Which license has it?", "License: MIT"),
        ("Where is it?", "It opens a weir."),
        ("What opens the north?", "It opens a weir."),
        ("Is there a north gate key?", "Requires-Key: gate>=2; north"),
        ("What is the version of the gate key?", "Version: 2.4"),
    ],
)
def test_a_field_is_shown_only_if_it_fits_better_than_all_sentences(question: str, answer: str) -> None:
    assert shown(question, f"{FIELDS}\nIt opens a weir.") == answer


def test_a_field_with_a_sentence_is_a_sentence() -> None:
    text = "Version: 2\nSummary: Open and close the gates of a weir\nKeywords: weir,gate\n\nSee above."
    assert shown("Which library closes a weir?", text) == "Summary: Open and close the gates of a weir"


def test_lines_of_a_table_of_names_alone_show_the_best_of_them() -> None:
    assert shown("Who is the author?", "Name: gate\nAuthor: Ketil Varga") == "Author: Ketil Varga"
    assert shown("Who is Varga?", "Name: gate\nAuthor: Ketil Varga") == "Author: Ketil Varga"


@pytest.mark.parametrize(
    "line",
    ["[![The gate](https://example.com/gate.svg)](https://example.com)", "[gate]: https://example.com/gate",
     "- [The gate](gate.md)", "![The gate](gate.svg)", "|The gate| |Video|", ".. image:: gate.svg", ":alt: The gate",
     "The gate . . . . . . 12", "The gate ........ 12", "Copyright (c) 2024 The Gate Company", "© The Gate Company",
     '<img src="gate.svg">', "<https://example.com/gate>"],
)  # fmt: skip
def test_links_indexes_and_notices_are_no_sentences(line: str) -> None:
    assert shown("Who built the gate?", f"{line}\n\nKetil Varga built it in May.") == "Ketil Varga built it in May."
    assert line.startswith(shown("Who built the gate?", line))


def test_a_copyright_that_the_question_asks_for_is_shown() -> None:
    notice = "Copyright (c) 2024 Gate Company"
    assert shown("Who has the copyright of the gate?", f"{notice}\n\nIt opens on Monday.") == notice


@pytest.mark.parametrize(
    "sentence",
    ["The index is offered to every editor that speaks the [Model\nContext Protocol](mcp.md) today.",
     "The vertical lines are the soft threshold of the view and the\n[hard cutoff](hard.md) of it.",
     "The error of the confidence on the sets of the bank is .180 and\n.126 with MiniLM.",
     "The directories that are mounted (as they are in all of the\nTest Suites) are found by it."],
)  # fmt: skip
def test_a_sentence_goes_on_after_an_open_bracket_or_an_open_end(sentence: str) -> None:
    assert shown(sentence.replace("\n", " "), f"Nothing.\n\n{sentence}\nIt ends here.") == sentence


def test_a_question_is_shown_with_the_sentence_that_answers_it() -> None:
    faq = "Is there a lift? Only in the tower.\nMay I bring my dog? Dogs on a leash are welcome."
    assert shown("Can my dog come, may I bring it?", faq) == "May I bring my dog? Dogs on a leash are welcome."
    assert shown("Are dogs welcome?", "May I bring my dog?\nWhere can I park?") == "May I bring my dog?"


@pytest.mark.parametrize(
    ("question", "sentence"),
    [
        ("What does a mole eat?", "It eats earthworms."),
        ("At what temperature does lead melt?", "It melts at 327 degrees."),
        ("What did the fishwife serve?", "She served waffles."),
    ],
)
def test_short_words_are_found_in_other_inflections(question: str, sentence: str) -> None:
    assert shown(question, f"It is small. {sentence}") == sentence


def test_a_first_line_that_repeats_the_title_is_shown_only_where_there_is_nothing_else() -> None:
    phone = "Telephone: 0431 98 76 54"
    entry, bare = document("Müller, Käthe", f"Müller, Käthe\n{phone}"), document("Weiß, Anna", "Weiß, Anna")
    assert [sentence and sentence.text for sentence in best_sentences("Kathe Muller", [entry, bare])] == [
        phone,
        "Weiß, Anna",
    ]


@pytest.mark.parametrize(
    ("question", "text", "sentence"),
    [
        ("What was the default timeout?", "# Options\n\nName | Default\ntimeout | 30\nretries | 2", "timeout | 30"),
        ("What is the meaning of E7?", "Errors:\n| Code | Meaning |\n|---|---|\n| E7 | Jam |", "| E7 | Jam |"),
        ("Which table has size and default?", "Options\nSize | Default\na | 30", "Size | Default"),
        ("What is E1074?", "Error codes are new.\nE-1074 is a jam.\nE-1075 is no ink.", "E-1074 is a jam."),
        ("What was done on 3 May 2021?", "In May 2021 it was new.\nOn 2021-05-03 it broke.", "On 2021-05-03 it broke."),
        ("What is the wifi called?", "It is new.\nThe Wi-Fi is called NW.", "The Wi-Fi is called NW."),
        ("a new e-mail", "It is free.\nEach email is signed.", "Each email is signed."),
        ("the visit on 9 February", "It rained.\nOn 09/02/2024 Ann came.", "On 09/02/2024 Ann came."),
        ("What was in February?", "Jan 30: rain\nFeb 3: snow", "Feb 3: snow"),
        ("What did Jan order?", "In January we had 5 orders.\nJan ordered a lamp.", "Jan ordered a lamp."),
        ("Where is Juergen?", "Anna works in Rome.\nJürgen is in Ulm.", "Jürgen is in Ulm."),
    ],
)
def test_a_row_and_another_notation_are_shown_if_they_fit_the_question(question: str, text: str, sentence: str) -> None:
    assert shown(question, text) == sentence


@pytest.mark.parametrize(
    ("question", "text", "sentence"),
    [
        (
            "How do I cancel my plan?",
            "Keep it.\n\n## How to cancel the plan\n\nOpen Settings.",
            "Open Settings.",
        ),
        ("LH 716", "Out: LH716, Friday\nBack: NH217, Friday\n\nThe inn is booked.", "Out: LH716, Friday"),
    ],
)
def test_the_words_of_a_heading_and_a_code_in_a_field_count(question: str, text: str, sentence: str) -> None:
    assert shown(question, text) == sentence


def test_a_sentence_with_the_words_of_the_title_goes_before_one_without_any() -> None:
    party = document("Summer party", "Dear colleagues,\n\nthe party is on 21 June.")
    (sentence,) = best_sentences("When is the summer party?", [party])
    assert sentence is not None
    assert sentence.text == "the party is on 21 June."


@pytest.mark.parametrize("name", ["Ortiz", "ortiz"])
def test_a_title_of_one_word_is_named_also_if_it_is_the_name_of_a_file(name: str) -> None:
    tower = document("tower", "It was opened in 1911. Ortiz drew the plans.")
    sentence, _ = best_sentences("Where was the designer of the tower born?", [tower, document(name, "Born in Ulm.")])
    assert sentence is not None
    assert sentence.text == "Ortiz drew the plans."


def test_an_ordinary_word_is_not_the_title_of_another_document() -> None:
    faq = document("FAQ", "Changes are synchronized later. Your data is safe.")
    first, _ = best_sentences("Is my data safe?", [faq, document("Synchronization", "Every minute.")])
    assert first is not None
    assert first.text == "Your data is safe."


@pytest.mark.parametrize(
    ("text", "longest", "expected"),
    [
        ("I need a crown. It costs 780 pounds.\n\nRain.", 200, ["I need a crown.", "It costs 780 pounds."]),
        ("I need a crown. It costs 780 pounds.", 20, ["I need a crown."]),
        ("crown: 1\nprice: 780\n# Next\nMore.", 200, ["crown: 1", "price: 780"]),
        ("Dear crown,\n\nthe party is in June.\n\nAnn", 200, ["Dear crown,", "the party is in June."]),
    ],
)
def test_the_sentences_after_the_best_one_that_fit_belong_to_the_same_paragraph(
    text: str, longest: int, expected: list[str]
) -> None:
    (sentence,) = best_sentences("crown", [document("", text)])
    assert sentence is not None
    assert with_following(sentence, longest) == expected
