"""Search only some documents: filters on metadata, for one search or for everything that an agent may see.

    python examples/filter_by_metadata.py

The operators are $eq $ne $gt $gte $lt $lte $in $nin, joined by $and and $or. Metadata comes from the front matter of
Markdown, the columns of CSV and parquet, and the fields of JSON.
"""

from __future__ import annotations

from typing import Any

from context_agent import Document, MemoryCorpus, SearchAgent

QUESTION = "What did the engineers decide about the sluice gate?"
DOCUMENTS = [
    Document("m1", "The engineers decided to repair the sluice gate.", "Minutes 1990", {"year": 1990, "team": "weir"}),
    Document("m2", "The engineers decided to replace the sluice gate.", "Minutes 1994", {"year": 1994, "team": "weir"}),
    Document("m3", "The engineers decided to paint the sluice gate.", "Letter 1995", {"year": 1995, "team": "port"}),
]
FILTERS: dict[str, dict[str, Any]] = {
    "one year": {"year": 1990},
    "since 1994": {"year": {"$gte": 1994}},
    "since 1994, one team": {"$and": [{"year": {"$gte": 1994}}, {"team": {"$in": ["weir", "lock"]}}]},
}


def main() -> None:
    """Print what each filter leaves."""
    with SearchAgent(MemoryCorpus(DOCUMENTS)) as agent:
        for name, where in FILTERS.items():
            found = agent.search(QUESTION, where=where).documents
            print(f"{name}: {', '.join(sorted(document.title for document in found))}")


if __name__ == "__main__":
    main()
