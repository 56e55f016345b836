"""Index a folder of files and ask it a question.

    python examples/ask_a_folder.py FOLDER "QUESTION"

`ctx1 sources FOLDER` shows beforehand which files are read.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

from context_agent import ChromaCorpus, SearchAgent, index_documents, load


def main(folder: Path, question: str) -> None:
    """Print the ranked documents, each with the start of its best passage."""
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as index:
        index_documents(load([folder]), path=Path(index))
        with ChromaCorpus.open(path=Path(index)) as corpus, SearchAgent(corpus) as agent:
            for document in agent.search(question, k=5).documents:
                print(f"{document.score:.2f}  {document.title or document.id}: {document.chunks[0].text[:100]}")


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    main(Path(sys.argv[1]), sys.argv[2])
