"""Features of the candidates: clauses of the question, and names that are common in the corpus."""

from __future__ import annotations

import numpy as np

from context_agent import Document, MemoryCorpus
from context_agent._support.shipped_models import shipped_reader
from context_agent.policies.bridge.candidates import AnalyzedPassage, ChunkCandidate, Notes, WordWeights
from context_agent.policies.bridge.features import DIRECT
from context_agent.policies.bridge.links import Expansion
from context_agent.policies.bridge.networks import INPUTS
from context_agent.policies.bridge.relevance import RelevanceJudgment
from context_agent.testing.embedders import HashEmbedder


def notes_on(question, documents):
    """The corpus of the documents, and notes that have seen all of them in order."""
    corpus = MemoryCorpus(documents, embedder=HashEmbedder())
    notes = Notes.of(question, WordWeights(corpus))
    for document in documents:
        passage = AnalyzedPassage(document.title, document.text)
        notes.add(ChunkCandidate(f"{document.id}_0", document.id, passage, 10, 0))
    return corpus, notes


def test_the_best_passage_of_each_clause_has_no_gap():
    texts = ("The mill closed in spring.", "The harbour was bought by the firm.", "Rain fell on the hills.")
    documents = [Document(str(number), text) for number, text in enumerate(texts)]
    question = "Which firm bought the quiet harbour, and which old paper mill closed last spring?"
    corpus, notes = notes_on(question, documents)
    gaps = RelevanceJudgment(notes, corpus, None, shipped_reader()).first_inputs()[:, DIRECT.index("clause_gap")]
    assert gaps[0] == gaps[1] == 0 > gaps[2]


def test_a_question_without_words_has_finite_features():
    corpus, notes = notes_on("?", [Document("a", "The mill."), Document("b", "The harbour.")])
    rows = RelevanceJudgment(notes, corpus, None, shipped_reader()).first_inputs()
    assert not np.isinf(rows).any()


def test_a_title_that_all_chunks_share_is_neither_linked_nor_looked_up():
    documents = [Document(str(number), f"See Timeline of gate {number}.", "Timeline") for number in range(6)]
    documents.append(Document("main", "Details are under Timeline and Gate Marlow.", "Gate Marlow"))
    corpus, notes = notes_on("When did Gate Marlow close?", documents)
    assert notes.weights.names_nothing(["timeline"])
    assert not notes.weights.names_nothing(["timeline", "marlow"])
    lookups, _ = Expansion(notes).lookups(np.linspace(0.1, 0.9, 7, dtype=np.float32), set())
    assert "timeline" not in {lookup.name for lookup in lookups}
    judgment = RelevanceJudgment(notes, corpus, None, shipped_reader())
    rows = judgment.second_inputs(judgment.first_inputs(), np.linspace(0.1, 0.9, 7, dtype=np.float32))
    assert not rows[:6, INPUTS["second"].index("linked")].any()
