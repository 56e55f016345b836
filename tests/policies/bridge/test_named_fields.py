"""The metadata that a question names, such as the status of a ticket."""

from __future__ import annotations

import numpy as np
import pytest

from context_agent import Document, MemoryCorpus, SearchAgent
from context_agent.policies.bridge.candidates import AnalyzedPassage, ChunkCandidate, Notes, WordWeights
from context_agent.policies.bridge.named_fields import NamedFields
from context_agent.testing import HashEmbedder

SUBJECTS = {
    "pump does not start": "The pump hums but no water comes.",
    "heating cold": "The radiator in the hall stays cold.",
    "card lost": "The card for the gate is lost.",
    "printer jams": "The printer jams with thick paper.",
}


def tickets():
    """Tickets of four subjects. Four of each subject say the same, and differ in their metadata."""
    for number, status in enumerate(("open", "closed", "waiting", "closed")):
        for subject, text in SUBJECTS.items():
            owner = ("marek", "lindiwe", "joao", "tess")[number]
            metadata = {"status": status, "owner": f'{{"login": "{owner}"}}', "path": f"export/{subject}", "n": number}
            yield Document(f"{subject.split()[0]} {owner}", text, subject, metadata=metadata)


def first(question, count=1):
    with SearchAgent(MemoryCorpus(list(tickets())), effort="fast") as agent:
        return [one.id for one in agent.search(question).documents[:count]]


@pytest.mark.parametrize(
    ("question", "ticket"),
    [
        ("open tickets about the printer", "printer marek"),
        ("heating tickets of Joao", "heating joao"),
        ("pump, waiting", "pump joao"),
        ("card ticket of Tess", "card tess"),
    ],
)
def test_a_text_with_a_field_that_the_question_names_comes_first(question, ticket):
    assert first(question) == [ticket]


def test_texts_that_repeat_a_better_one_come_first_if_the_question_names_their_field():
    assert set(first("closed tickets about the pump", 2)) == {"pump lindiwe", "pump tess"}


def test_a_named_field_does_not_lift_texts_about_something_else():
    documents = [*tickets(), Document("gate", "The gate of the yard squeaks.", "gate", metadata={"status": "new"})]
    with SearchAgent(MemoryCorpus(documents), effort="fast") as agent:
        assert agent.search("open tickets: gate of the yard squeaks").documents[0].id == "gate"


@pytest.mark.parametrize("value", ["export/open", "open " * 20, 7, "7", '{"n": 7}'])
def test_paths_numbers_and_long_values_name_nothing(value):
    documents = [Document(str(n), "The pump hums.", "pump", metadata={"field": value if n else ""}) for n in range(4)]
    with SearchAgent(MemoryCorpus(documents), effort="fast") as agent:
        found = [one.id for one in agent.search("open pump 7").documents]
        assert found == [one.id for one in agent.search("green pump 8").documents]


def test_a_text_with_the_word_keeps_its_place_before_texts_whose_metadata_have_it():
    inspection = "inspection of a passenger elevator in a hospital building checks the brakes and the emergency lights"
    documents = [
        Document("last", f"The final {inspection}.", "Elevators", metadata={"status": "draft"}),
        *(Document(n, f"The {n} {inspection}, {n}.", "Elevators", metadata={"status": "final"}) for n in SUBJECTS),
        *(Document(str(n), f"The final payment of {n} euros.", "Payments") for n in range(8)),
    ]
    question = "What does the final inspection of a passenger elevator in a hospital building check, brakes or lights?"
    with SearchAgent(MemoryCorpus(documents), effort="fast") as agent:
        assert agent.search(question).documents[0].id == "last"


@pytest.mark.parametrize(
    ("subject", "others"),
    [
        ("part 10230", "part 1023{}"),
        ("part 10234560", "part 1023456{}"),
        ("part V2.4.0", "part V2.4.{}"),
        ("part V2.4.1020", "part V2.4.102{}"),
        ("part INV-10234560", "part INV1023456{}"),
        ("cars of the 1980s", "cars of the 1980{}"),
        ("car", "cabin {}"),
    ],
)
def test_a_text_about_another_number_or_word_does_not_come_first(subject, others):
    texts = [subject.replace("-", ""), *(others.format(n) for n in range(1, 5))]
    documents = [
        Document(str(n), f"The {text} is worn.", "part", metadata={"status": "open" if n else "closed"})
        for n, text in enumerate(texts)
    ]
    with SearchAgent(MemoryCorpus(documents), effort="fast") as agent:
        assert agent.search(f"open tickets: {subject} of the lathe").documents[0].id == "0"


def reordered(question, scores, metadata, text="The red pump hums."):
    """The new scores of texts that say the same, given the metadata of each. The last one may have another text."""
    notes = Notes.of(question, WordWeights(MemoryCorpus([Document("a", "text")], embedder=HashEmbedder())))
    fields = NamedFields(notes)
    texts = [*["The red pump hums."] * (len(metadata) - 1), text]
    for number, one in enumerate(texts):
        notes.add(ChunkCandidate(f"{number}_0", str(number), AnalyzedPassage("", one), 10, 0))
        fields.read(metadata[number])
    return fields.reordered(np.array(scores))


def test_up_to_four_named_texts_get_nearly_the_best_score():
    new = reordered("open: red pump", [0.9, 0.5, *[0.0] * 5], [{"status": "closed"}] * 2 + [{"status": "open"}] * 5)
    assert np.argsort(-new, kind="stable").tolist() == [2, 3, 4, 5, 6, 0, 1]
    np.testing.assert_allclose(new, [0, 0, 0.9, 0.9, 0.9, 0.9, 0], atol=1e-9)


@pytest.mark.parametrize("status", ["open", "closed"])
def test_texts_that_are_all_named_or_none_keep_their_scores(status):
    scores = [0.9, 0.5, 0.0]
    np.testing.assert_array_equal(reordered("open: red pump", scores, [{"status": status}] * 3), scores)


def test_a_text_that_has_the_word_of_its_own_metadata_keeps_its_score():
    scores, metadata = [0.9, 0.5, 0.2], [{"status": "closed"}, {"status": "closed"}, {"status": "open"}]
    new = reordered("The open red pump hums", scores, metadata, "The open red pump hums.")
    np.testing.assert_array_equal(new, scores)


def test_a_text_that_has_the_word_itself_neither_rises_nor_falls():
    scores, metadata = [0.9, 0.5, 0.2], [{"status": "closed"}, {"status": "open"}, {"status": "closed"}]
    new = reordered("The open red pump hums", scores, metadata, "The open red pump hums.")
    np.testing.assert_allclose(new, [0.5, 0.9, 0.2])
