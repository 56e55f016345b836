"""The metadata that a question names, such as the status of a ticket."""

from __future__ import annotations

import pytest

from context_agent import Document, MemoryCorpus, SearchAgent
from context_agent.policies.bridge.candidates import AnalyzedPassage, Notes, WordWeights
from context_agent.policies.bridge.named_fields import named_fields
from context_agent.testing import HashEmbedder
from context_agent.types import Chunk

SUBJECTS = {
    "pump does not start": "The pump hums but no water comes.",
    "heating cold": "The radiator in the hall stays cold.",
    "card lost": "The card for the gate is lost.",
    "printer jams": "The printer jams with thick paper.",
}
DETAILS = (
    "morning evening monday friday yard cellar roof door rain frost noise smell key oil rust dust leak spark wire bolt"
).split()


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


@pytest.mark.parametrize(
    ("question", "lines"),
    [
        ("open tickets of Marek", ["status: open", "owner login: marek"]),
        ("the red pump", []),
        ("what does PMP-17 say about the yard?", ["id: PMP-17"]),
        ("what is FAN-17 about?", []),
        ("LAB-3, open", ["status: open"]),
        ("the opening", []),
        ("the seventh, upper attic", ["7: seventh", "tags name: attic", "zone name: upper"]),
    ],
)
def test_the_fields_that_a_question_names_and_the_text_lacks_are_read(question, lines):
    notes = Notes.of(question, WordWeights(MemoryCorpus([Document("a", "text")], embedder=HashEmbedder())))
    metadata = {"status": "open", "owner": '{"login": "marek"}', "colour": "red", "file": "open/yard.txt", "n": 17}
    metadata |= {7: "seventh", "_node": "yard", "tags": [{"name": "attic"}], "zone": {"name": "upper"}}
    chunk = Chunk("PMP-17_0", "PMP-17", 0, "The red pump LAB-3 hums.", 0, 24, 8, "", metadata)
    passage = AnalyzedPassage(chunk.title, chunk.text)
    assert list(named_fields(notes.question, chunk, passage)) == lines


def test_an_id_that_the_question_names_is_found_and_certain():
    documents = [Document(f"PMP-{n}", f"The pump hums, {word}.", "Pump") for n, word in enumerate(DETAILS)]
    with SearchAgent(MemoryCorpus(documents, embedder=HashEmbedder()), effort="fast") as agent:
        found = agent.search("what is PMP-17 about?")
    assert found.documents[0].id == "PMP-17"
    assert found.confidence > 0.9


def test_a_field_that_the_question_names_is_evidence():
    with SearchAgent(MemoryCorpus(list(tickets())), effort="fast") as agent:
        right, wrong = (agent.search(f"tickets of {name}").confidence for name in ("Lindiwe", "Rosalind"))
    assert wrong < 0.1
    assert right > 0.2
