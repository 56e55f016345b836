"""A language model answers from the ranked passages, and every citation and quotation is checked.

    python examples/answer_with_citations.py                                  plays a script, offline
    python examples/answer_with_citations.py --base-url URL --model NAME      asks any OpenAI-compatible server

`ctx1 ask` does the same on the command line.
"""

from __future__ import annotations

import argparse
import asyncio

from context_agent import Document, MemoryCorpus, SearchAgent
from context_agent.answers import AnswerModel, passages_of
from context_agent.policies.chat.scripted_server import ScriptedServer, says

QUESTION = "Which award did the director of Rope receive?"
DOCUMENTS = [
    Document("rope", "Rope is a film of 1948 directed by Alfred Hitchcock.", "Rope"),
    Document("hitchcock", "Alfred Hitchcock received the AFI Life Achievement Award in 1979.", "Alfred Hitchcock"),
    Document("bread", "Bread is made of flour, water and salt.", "Bread"),
]
SCRIPT = 'Hitchcock directed it [1]. He "received the AFI Life Achievement Award" [2], and an Oscar [9].'


def answer(model: AnswerModel) -> None:
    """Print the answer, the documents that it cites, and what is wrong with it."""
    with SearchAgent(MemoryCorpus(DOCUMENTS)) as agent:
        result = agent.search(QUESTION, k=3)
    checked = asyncio.run(model.answer(QUESTION, passages_of(result.documents)))
    print(checked.text)
    for passage in checked.cited:
        print(f"[{passage.number}] {passage.document_id}: {passage.text}")
    for problem in checked.problems:
        print(f"problem: {problem.text}: {problem.reason}")


def main() -> None:
    """Ask the server that the options name, or the script."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--base-url")
    parser.add_argument("--model")
    options = parser.parse_args()
    if options.base_url and options.model:
        answer(AnswerModel(options.model, base_url=options.base_url))
        return
    with ScriptedServer([says(SCRIPT)]) as server:
        answer(AnswerModel("scripted", base_url=server.url))


if __name__ == "__main__":
    main()
