"""Make questions with known answers from the links between your documents, without a language model.

    python examples/make_questions.py [FOLDER]

A document links to another one if it names its title. The question describes the linked document instead of naming it,
so a search has to find both. Without a folder, the script uses four notes of its own. `ctx1 synth tasks` does the same
on the command line, and `ctx1 synth tasks --model NAME` lets a language model write the questions.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from context_agent import Document, MemoryCorpus, load
from context_agent.synth_data.links.tasks import LinkTasks, LinkTaskSettings

NOTES = {
    "Brasko Weir": "Brasko Weir is a stone weir. Brasko Weir was built by Lena Ortiz. It was raised in 1994.",
    "Lena Ortiz": "Lena Ortiz (born 1 May 1961) is a harbor engineer. Lena Ortiz moved to the coast in 1981.",
    "Tessel Lock": "Tessel Lock is a canal lock. Tessel Lock was designed by Paul Reker. It was closed in 1987.",
    "Paul Reker": "Paul Reker (born 3 June 1950) is a canal engineer. Paul Reker retired in 2012.",
}


def main(folder: Path | None) -> None:
    """Print a row of a question file for each task."""
    notes = [Document(f"{title}.md", text, title) for title, text in NOTES.items()]
    corpus = MemoryCorpus(load([folder]) if folder else notes)
    maker = LinkTasks(corpus.chunks, LinkTaskSettings(count=20, hops=(2, 2)))
    for task in maker.tasks():
        row = {"id": task.id, "question": task.question, "answer": task.answer, "gold": list(task.gold)}
        print(json.dumps(row, ensure_ascii=False))
    print(f"{maker.counts.links} links, {maker.counts.kept.total()} questions", file=sys.stderr)


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else None)
