"""Films and their directors, with questions of two hops."""

from __future__ import annotations

import random

import numpy as np

from context_agent import Document
from context_agent.policies.bridge import BridgePolicy, Scorer
from context_agent.policies.bridge.score_calibration import ScoreCalibration

FIRST = "Ada Bel Cora Dina Ewa Fay Gus Hal Ines Jo".split()
LAST = "Marlow Vance Bray Orme Tarn Quill Sedge Rook Finch Larch".split()
NOUNS = "Marsh Harbour Lantern Orchard Mirror Glacier Comet Attic Meadow Engine".split()


def invented(draw):
    """Return a capitalized word that no other text holds."""
    return "".join(draw.choice(("ba", "co", "du", "fe", "gi", "lo", "mi", "nu", "pe", "ra")) for _ in range(4)).title()


def world(titled=True):
    """Return a hundred films, a page for the director of each, and 200 pages that no question is about."""
    draw = random.Random(5)
    documents, questions = [], []
    for number in range(100):
        director = f"{FIRST[number % 10]} {LAST[number // 10]}"
        film = f"The {invented(draw)} {NOUNS[number % 10]}"
        year, town = 1900 + number, f"{NOUNS[draw.randrange(10)]}town"
        documents.append((f"f{number}", film, f"{film} is a {year} film directed by {director} for a studio."))
        documents.append((f"d{number}", director, f"{director} was born in {town} and trained as a carpenter there."))
        questions.append((f"Where was the director of {film} born?", {f"f{number}", f"d{number}"}))
    for number in range(200):
        text = " ".join(
            draw.choice("film studio town carpenter year paper stone trade born director".split()) for _ in range(40)
        )
        documents.append((f"n{number}", f"Notes {number}", f"Notes: {text}."))
    corpus_documents = [
        Document(key, text if titled else f"{title}. {text}", title if titled else "") for key, title, text in documents
    ]
    return corpus_documents, questions


def recall(result, gold):
    return len(gold & {document.id for document in result.documents[:5]}) / len(gold)


TRUSTING = ScoreCalibration(
    np.array([[2, 1, 0, -6, 0, 0.3, *[0] * 8]] * 2, dtype=np.float32), np.array([-0.5, 0.3, 0.6], dtype=np.float32)
)


def calibrated(calibration: ScoreCalibration | None = TRUSTING) -> BridgePolicy:
    scorer = Scorer.shipped()
    return BridgePolicy(Scorer.of(scorer.networks, calibration))
