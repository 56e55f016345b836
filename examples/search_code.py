"""Index source code, and find the functions and classes that a question is about.

    python examples/search_code.py FOLDER "QUESTION"

With `pip install "context-agent[code]"` each function and class is a passage with its own title. Without the extra,
code is cut by lines.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

from context_agent import ChromaCorpus, SearchAgent, index_documents, load


def main(folder: Path, question: str) -> None:
    """Print the title and the first line of each passage that was kept."""
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as index:
        index_documents(load([folder]), path=index)
        with ChromaCorpus.open(index) as corpus, SearchAgent(corpus) as agent:
            for document in agent.search(question, k=5).documents:
                for passage in corpus.get([ranked.id for ranked in document.chunks]):
                    print(f"{passage.title}  {passage.text.strip().splitlines()[0][:80]}")


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    main(Path(sys.argv[1]), sys.argv[2])
