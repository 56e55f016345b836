"""The reader: its input, when a candidate is read again, and how its score is combined with others."""

from __future__ import annotations

import numpy as np
import pytest

from context_agent import Document, MemoryCorpus, SearchAgent
from context_agent._support.shipped_models import shipped_reader
from context_agent.errors import ConfigError
from context_agent.policies.bridge import BridgePolicy, Effort
from context_agent.policies.bridge.candidates import AnalyzedPassage, ChunkCandidate, Notes, WordWeights
from context_agent.policies.bridge.reader import (
    EVIDENCE,
    READ,
    READINGS,
    ReaderInput,
    Readings,
    read_odds,
    reading_features,
)
from context_agent.pruning.reading import EXCERPT_WORDS

QUESTION = "Where was the director of Polar Light born?"
FILM = ("Polar Light", "It was shown in 1990. Ana Berg was its director. It won a prize.")
PERSON = ("Ana Berg", "Ana Berg is a director. She was born in Tromsø.")


class CountingModel:
    """Gives each pair the number of words of its passage, and keeps the pairs."""

    width = 3

    def __init__(self):
        self.pairs = []

    def encode_pairs(self, pairs):
        self.pairs += pairs
        return np.array([[len(passage.split()), 1, 0] for _, passage in pairs], dtype=np.float32).reshape(-1, 3)


def notes_of(passages, question=QUESTION):
    corpus = MemoryCorpus([Document(str(row), text, title) for row, (title, text) in enumerate(passages)])
    notes = Notes.of(question, WordWeights(corpus))
    for row, (title, text) in enumerate(passages):
        notes.add(ChunkCandidate(f"{row}_0", str(row), AnalyzedPassage(title, text), 20, 0))
    return notes


def test_the_reader_sees_the_fitting_sentences_of_what_was_found():
    notes = notes_of([FILM, PERSON])
    first, second = (candidate.passage for candidate in notes.candidates)
    reader_input, other = ReaderInput(notes.question), AnalyzedPassage("Oslo", "Oslo is a city.")
    assert reader_input.premise([first, second], other) == (
        f"{QUESTION} | Polar Light: Ana Berg was its director. | Ana Berg: She was born in Tromsø."
    )
    assert reader_input.premise([], first) == QUESTION
    assert reader_input.premise([other] * 9, first).count(" | ") == EVIDENCE
    assert reader_input.excerpt(second) == "Ana Berg. Ana Berg is a director. She was born in Tromsø."


def test_a_sentence_that_names_the_candidate_is_shown_as_evidence():
    text = "It was shown in many towns. Its music is by Ivo Dahl. It won a prize."
    notes = notes_of([("Polar Light", text), ("Ivo Dahl", "A composer."), ("Oslo", "A city.")])
    film, composer, other = (candidate.passage for candidate in notes.candidates)
    reader_input = ReaderInput(notes.question)
    assert "Ivo Dahl" in reader_input.premise([film], composer)
    assert "Ivo Dahl" not in reader_input.premise([film], other)


def test_of_a_long_passage_the_reader_sees_the_start_and_what_fits():
    filler = [f"Sentence {number} is about weather and ships." for number in range(60)]
    text = " ".join([*filler[:40], "The director was born in Bergen.", *filler[40:]])
    notes = notes_of([("Long", text)])
    excerpt = ReaderInput(notes.question).excerpt(notes.candidates[0].passage)
    assert excerpt.startswith("Long. Sentence 0 is")
    assert "born in Bergen" in excerpt
    assert len(excerpt.split()) <= EXCERPT_WORDS + 1


def test_of_a_long_passage_the_reader_sees_what_says_the_same_in_other_words():
    filler = [f"Paragraph {number} lists tax forms and bank accounts." for number in range(60)]
    text = " ".join([*filler[:40], "The physician treats patients in a clinic.", *filler[40:]])
    notes = notes_of([("Long", text)], question="Who is the doctor at our hospital?")
    assert "physician" in ReaderInput(notes.question).excerpt(notes.candidates[0].passage)


@pytest.mark.parametrize("text", ["", "x" * 3_000_000, "\n\n", "한국어 日本語 ไทย", "a\ud800b"])
def test_any_text_can_be_shown(text):
    notes = notes_of([FILM, ("", "ok")])
    reader_input, passage = ReaderInput(notes.question), AnalyzedPassage("", text)
    assert len(reader_input.excerpt(passage).split()) <= EXCERPT_WORDS
    assert reader_input.premise([passage], passage).startswith(QUESTION)


def test_a_candidate_is_read_with_the_best_others_as_evidence_and_again_if_these_change():
    model, notes = CountingModel(), notes_of([FILM, PERSON, ("Third", "Third text."), ("Fourth", "Fourth text.")])
    readings = Readings(notes, model)
    assert not readings
    readings.update(np.array([0.9, 0.5, 0.2, 0.1], dtype=np.float32))
    assert readings
    assert len(model.pairs) == 4
    assert "Polar Light:" not in model.pairs[0][0]
    assert all(pair[0].count(" | ") == EVIDENCE for pair in model.pairs)
    readings.update(np.array([0.8, 0.5, 0.2, 0.1], dtype=np.float32))
    assert len(model.pairs) == 4
    readings.update(np.array([0.1, 0.5, 0.2, 0.9], dtype=np.float32))
    assert len(model.pairs) > 4
    assert readings.rows().shape == (4, 3)


def test_only_the_best_are_read():
    passages = [(f"Title {number}", f"Text {number}.") for number in range(READ + 5)]
    notes = notes_of(passages)
    readings = Readings(notes, CountingModel())
    readings.update(np.linspace(1, 0, len(passages), dtype=np.float32))
    rows = readings.rows()
    assert np.isfinite(rows[:READ]).all()
    assert np.isnan(rows[READ:]).all()
    features = reading_features(notes, np.linspace(3, -3, len(passages), dtype=np.float32), read_odds(rows))
    assert features.shape == (len(passages), len(READINGS))
    assert np.isnan(features[READ:, READINGS.index("read")]).all()
    assert np.isfinite(
        np.delete(features, [READINGS.index(n) for n in ("read", "read_gap", "read_z", "read_rank")], 1)
    ).all()


def test_a_head_corrects_the_reader():
    rows = np.array([[1.0, 2.0, 3.0], [np.nan] * 3], dtype=np.float32)
    assert read_odds(rows)[0] == 1.0
    corrected = read_odds(rows, np.array([0.0, 1.0, -1.0, 0.5], dtype=np.float32))
    assert corrected[0] == pytest.approx(0.5)
    assert np.isnan(corrected[1])


def test_the_shipped_reader_prefers_the_passage_that_answers():
    rows = shipped_reader().encode_pairs(
        [
            (f"{QUESTION} | Polar Light: Ana Berg was its director.", f"{t}. {x}")
            for t, x in (PERSON, ("Polar bear", "The polar bear is white."))
        ]
    )
    assert rows[0, 0] > rows[1, 0]


def test_efforts_have_names():
    assert BridgePolicy(effort="fast").effort == Effort(readings=0, compared=10)
    assert BridgePolicy(effort="careful").effort == Effort()
    with pytest.raises(ConfigError, match="effort must be careful or fast; got 'slow'"):
        BridgePolicy(effort="slow")
    corpus = MemoryCorpus([Document("a", "Ada wrote it.", "Ada")])
    with pytest.raises(ConfigError, match=r"Pass policy=BridgePolicy\(effort=.fast.\)"):
        SearchAgent(corpus, BridgePolicy(), effort="fast")
    with SearchAgent(corpus, effort="fast") as agent:
        assert agent.search("Who wrote it?").documents
