"""Search an engine that you already run: one function is enough. Here the engine is SQLite's full-text search.

    python examples/own_engine.py

search_engines.py has such functions for Elasticsearch, OpenSearch and Qdrant.
"""

from __future__ import annotations

import re
import sqlite3

from context_agent import EngineCorpus, SearchAgent

QUESTION = "Which award did the director of Rope receive?"
ROWS = [
    ("rope", "Rope", "Rope is a film of 1948 directed by Alfred Hitchcock."),
    ("hitchcock", "Alfred Hitchcock", "Alfred Hitchcock received the AFI Life Achievement Award in 1979."),
    ("bread", "Bread", "Bread is made of flour, water and salt."),
    ("comets", "Comets", "Comets are bodies of ice that grow a tail near the sun."),
]


class Engine:
    """A table with full-text search."""

    def __init__(self) -> None:
        self._database = sqlite3.connect(":memory:", check_same_thread=False)
        self._database.execute("CREATE VIRTUAL TABLE pages USING fts5(id, title, text)")
        self._database.executemany("INSERT INTO pages VALUES (?, ?, ?)", ROWS)

    def search(self, query: str, limit: int) -> list[dict[str, str | float]]:
        """Return the passages with any word of the query, best first."""
        words = " OR ".join(f'"{word}"' for word in re.findall(r"\w+", query))
        statement = "SELECT id, title, text, -rank FROM pages WHERE pages MATCH ? ORDER BY rank LIMIT ?"
        rows = self._database.execute(statement, (words or '""', limit))
        return [dict(zip(("id", "title", "text", "score"), row, strict=True)) for row in rows]


def main() -> None:
    """Print the ranked documents."""
    corpus = EngineCorpus(Engine().search)
    with SearchAgent(corpus) as agent:
        for document in agent.search(QUESTION, k=2).documents:
            print(f"{document.score:.2f}  {document.title}: {document.chunks[0].text}")


if __name__ == "__main__":
    main()
