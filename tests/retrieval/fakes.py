"""An embedder without a model, real text, and small helpers shared by the retrieval tests."""

import gzip
import json
import os
import re
import zlib
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from context_agent.types import Document


class HashEmbedder:
    """Counts words into hashed buckets: texts that share words are close, and nothing is learned or downloaded."""

    def __init__(self, dimension: int = 64) -> None:
        self.dimension = dimension
        self.name = f"test-hash-{dimension}"
        self.embedded = 0

    def embed_documents(self, texts: Sequence[str]) -> NDArray[np.float32]:
        self.embedded += len(texts)
        return np.stack([self._embed(text) for text in texts]) if texts else np.zeros((0, self.dimension), np.float32)

    def embed_query(self, text: str) -> NDArray[np.float32]:
        return self._embed(text)

    def _embed(self, text: str) -> NDArray[np.float32]:
        vector = np.zeros(self.dimension, dtype=np.float32)
        for word in re.findall(r"\w+", text.lower()):
            bucket = zlib.crc32(word.encode(errors="replace"))
            vector[bucket % self.dimension] += 1.0 if bucket & 0x10000 else -1.0
        norm = float(np.linalg.norm(vector))
        return vector / norm if norm else vector


PLACES = ("Lisbon", "Ghent", "Turku", "Quito", "Osaka", "Leeds", "Graz", "Sfax", "Perth", "Bergen")
TRADES = ("printer", "glazier", "botanist", "engraver", "cartographer", "organist", "chemist", "weaver")


def people(count: int, start: int = 0) -> list[Document]:
    """Short invented biographies, each with facts of its own."""
    return [
        Document(
            id=f"person-{number}",
            title=f"Person {number}",
            text=f"Person {number} was a {TRADES[number % 8]} from {PLACES[number % 10]}, "
            f"born in {1500 + number % 400}. "
            f"The guild of the {TRADES[number % 8]}s kept the ledger number K{number * 7919 % 100_003} of this life.",
            metadata={"century": 16 + number % 400 // 100, "trade": TRADES[number % 8]},
        )
        for number in range(start, start + count)
    ]


def real_documents(name: str) -> list[Document]:
    """A set of the shared data, or nothing when it is not beside the checkout."""
    path = data_folder() / name / "corpus.jsonl.gz"
    if not path.exists():
        return []
    with gzip.open(path, "rt", encoding="utf-8") as lines:
        return [Document(**json.loads(line)) for line in lines]


def train_queries(name: str) -> list[dict[str, object]]:
    with (data_folder() / name / "queries.train.jsonl").open(encoding="utf-8") as lines:
        return [json.loads(line) for line in lines]


def data_folder() -> Path:
    return Path(os.environ.get("CTX1_DATA", Path(__file__).parents[3] / "shared" / "data"))
