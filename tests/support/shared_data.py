"""Real questions and documents, where they lie beside the checkout."""

import gzip
import json
import os
from pathlib import Path

from context_agent.types import Document


def real_documents(name: str) -> list[Document]:
    """Return a set of the shared data. If the data are not beside the checkout, return nothing."""
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
