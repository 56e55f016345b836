"""Search a Chroma folder that another program made. Nothing is embedded again, and the collection is not changed.

    python examples/existing_chroma.py [FOLDER "QUESTION"]

Without arguments, the script first makes a folder as LangChain would: chunks with a UUID as id, and `source` and `page`
in their metadata.
"""

from __future__ import annotations

import sys
import tempfile
import uuid

import chromadb

from context_agent import ChromaCorpus, SearchAgent

PAGES = [
    ("films/rope.pdf", "Rope", 0, "Rope is a film of 1948."),
    ("films/rope.pdf", "Rope", 1, "Rope was directed by Alfred Hitchcock."),
    ("people/hitchcock.pdf", "Alfred Hitchcock", 0, "Alfred Hitchcock received the AFI Life Achievement Award."),
    ("food/bread.pdf", "Bread", 0, "Bread is made of flour, water and salt."),
]


def make(folder: str) -> None:
    """Write a collection with vectors of a model that this program does not have."""
    collection = chromadb.PersistentClient(folder).create_collection("langchain", embedding_function=None)
    collection.add(
        ids=[str(uuid.uuid4()) for _ in PAGES],
        documents=[text for *_, text in PAGES],
        embeddings=[[float(number), 1.0] for number in range(len(PAGES))],
        metadatas=[{"source": source, "title": title, "page": page} for source, title, page, _ in PAGES],
    )


def search(folder: str, question: str) -> None:
    """Print the documents that the chunks belong to.

    The corpus logs which collection and which metadata it uses. Its `notices` has the same texts.
    """
    # Pass embedder="openai:text-embedding-3-small", or a function from texts to vectors, to search the vectors too.
    with ChromaCorpus.open(folder, embedder="none") as corpus, SearchAgent(corpus) as agent:
        for document in agent.search(question, k=3).documents:
            print(f"{document.score:.2f}  {document.title or document.id}: {document.chunks[0].text}")


if __name__ == "__main__":
    if len(sys.argv) == 3:
        search(sys.argv[1], sys.argv[2])
    else:
        with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as temporary:
            make(temporary)
            search(temporary, "Which award did the director of Rope receive?")
