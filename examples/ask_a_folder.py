"""Index a folder of text and ask it a question. Run: python examples/ask_a_folder.py FOLDER "QUESTION" """

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

from context_agent import ChromaCorpus, SearchAgent, index_documents, load


def main(folder: Path, question: str) -> None:
    """Prints the ranked documents with the passage that earned each its place."""
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as index:
        index_documents(load([folder]), path=Path(index))
        with SearchAgent(ChromaCorpus.open(path=Path(index))) as agent:
            for document in agent.search(question, k=5).documents:
                print(f"{document.score:.2f}  {document.title or document.id}: {document.chunks[0].text[:100]}")


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])
