"""DSPy: the agent as the retriever of a program, and as a tool of `dspy.ReAct`.

    python examples/dspy_program.py                                       prints what a model would be given
    python examples/dspy_program.py --model openai/NAME --base-url URL    asks a language model, as DSPy names it

This script needs `pip install "context-agent[dspy]"`.
"""

from __future__ import annotations

import argparse
from typing import Any

import dspy

from context_agent import Document, MemoryCorpus, SearchAgent
from context_agent.integrations.dspy import ContextAgentRetriever

QUESTION = "Which award did the director of Rope receive?"
DOCUMENTS = [
    Document("rope", "Rope is a film of 1948 directed by Alfred Hitchcock.", "Rope"),
    Document("hitchcock", "Alfred Hitchcock received the AFI Life Achievement Award.", "Alfred Hitchcock"),
    Document("bread", "Bread is made of flour, water and salt.", "Bread"),
]


class Rag(dspy.Module):  # type: ignore[misc]
    """A program that retrieves, then answers."""

    def __init__(self, retriever: ContextAgentRetriever) -> None:
        super().__init__()
        self.retriever = retriever
        self.answer = dspy.ChainOfThought("context: list[str], question -> answer")

    def forward(self, question: str) -> Any:
        """Return the answer, from the passages alone."""
        return self.answer(context=self.retriever(question).passages, question=question)


def main() -> None:
    """Print the passages and the text of the tool. With a model, print two answers."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model")
    parser.add_argument("--base-url")
    options = parser.parse_args()
    with SearchAgent(MemoryCorpus(DOCUMENTS)) as agent:
        retriever = ContextAgentRetriever(agent, k=2)
        found = retriever(QUESTION)
        for title, passage, score in zip(found.titles, found.passages, found.scores, strict=True):
            print(f"{score:.2f}  {title}: {passage}")
        print(retriever.tool()(QUESTION))
        if options.model:
            dspy.configure(lm=dspy.LM(options.model, api_base=options.base_url, api_key="none"))
            print(Rag(retriever)(question=QUESTION).answer)
            print(dspy.ReAct("question -> answer", tools=[retriever.tool()])(question=QUESTION).answer)


if __name__ == "__main__":
    main()
