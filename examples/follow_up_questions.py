"""Follow-up questions: "Which award did he receive?" is searched together with what the conversation is about.

    python examples/follow_up_questions.py

The agent keeps nothing from one question to the next. This script adds the titles behind the answer before. A
language model that calls the agent as a tool writes whole questions by itself: see reasoning_model.py.
"""

from __future__ import annotations

from context_agent import Document, MemoryCorpus, RankedDocument, SearchAgent

CONVERSATION = ["Who directed the film Rope?", "Which award did he receive?", "When was that?"]
DOCUMENTS = [
    Document("rope", "Rope is a film of 1948 directed by Alfred Hitchcock.", "Rope"),
    Document("hitchcock", "Alfred Hitchcock received the AFI Life Achievement Award in 1979.", "Alfred Hitchcock"),
    Document("welles", "Orson Welles received the AFI Life Achievement Award in 1975.", "Orson Welles"),
    Document("kane", "Citizen Kane is a film of 1941 directed by Orson Welles.", "Citizen Kane"),
    Document("bread", "Bread is made of flour, water and salt.", "Bread"),
]
REMEMBERED_DOCUMENTS = 2


class Conversation:
    """Searches each question with the titles of the documents that were found before."""

    def __init__(self, agent: SearchAgent) -> None:
        self._agent = agent
        self._topics: list[str] = []

    def ask(self, question: str) -> tuple[RankedDocument, ...]:
        """Return the ranked documents, and remember what they are about."""
        topics = ", ".join(self._topics)
        result = self._agent.search(f"{topics}: {question}" if topics else question, k=3)
        self._topics = [document.title for document in result.documents[:REMEMBERED_DOCUMENTS]]
        return result.documents


def main() -> None:
    """Print each question with its best passages."""
    with SearchAgent(MemoryCorpus(DOCUMENTS)) as agent:
        conversation = Conversation(agent)
        for question in CONVERSATION:
            print(question)
            for document in conversation.ask(question)[:REMEMBERED_DOCUMENTS]:
                print(f"  {document.title}: {document.chunks[0].text}")


if __name__ == "__main__":
    main()
