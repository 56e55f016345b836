"""The working notes have the documents that their questions name; attacks plant documents beside the gold ones."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from context_agent.types import Chunk, Question

PROGRAMS = Path(__file__).parents[2] / "benchmarks"
if not (PROGRAMS / "planted.py").is_file():
    pytest.skip("benchmarks live in the repository alone", allow_module_level=True)

sys.path.insert(0, str(PROGRAMS))
import notes_corpus  # noqa: E402
import planted  # noqa: E402

sys.path.remove(str(PROGRAMS))


def test_every_question_on_the_notes_has_its_documents():
    ids = [document.id for document in notes_corpus.documents()]
    halves = {split: notes_corpus.questions(split) for split in ("train", "dev")}
    assert 60 <= len(ids) == len(set(ids)) <= 150
    assert {gold for rows in halves.values() for row in rows for gold in row.gold} <= set(ids)
    assert not {row.question for row in halves["train"]} & {row.question for row in halves["dev"]}
    assert all("{" not in document.text for document in notes_corpus.documents())


@pytest.mark.parametrize("attack", planted.ATTACKS)
def test_an_attack_plants_five_new_documents_for_each_question(attack):
    texts = {"film": "The Marsh is a film of 1951 by Jo Vance.", "person": "Jo Vance was born in Tarn in 1911."}
    chunks = [Chunk(f"{name}_0", name, 0, text, 0, len(text), 9, name.title()) for name, text in texts.items()]
    rows = [Question("q", "Who is the director of The Marsh?", gold=("film", "person"))]
    plants = planted.plants(attack, rows, chunks)
    assert len({plant.document_id for plant in plants} - texts.keys()) == planted.COPIES
    assert all(plant.text.strip() for plant in plants)
    assert plants == planted.plants(attack, rows, chunks)
