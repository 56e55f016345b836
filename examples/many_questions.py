"""Many questions at once, inside an event loop, with a limit on how many run together.

    python examples/many_questions.py

One agent serves any number of tasks and threads. A batch in a file is answered by
`ctx1 search --questions FILE.jsonl --json`.
"""

from __future__ import annotations

import asyncio

from context_agent import Document, MemoryCorpus, SearchAgent, SearchResult

FILMS = {"Rope": "Alfred Hitchcock", "Citizen Kane": "Orson Welles", "Persona": "Ingmar Bergman"}
TOWNS = {"Alfred Hitchcock": "London", "Orson Welles": "Kenosha", "Ingmar Bergman": "Uppsala"}
AT_ONCE = 2


async def search_all(agent: SearchAgent, questions: list[str]) -> list[SearchResult]:
    """Return the results in the order of the questions."""
    slots = asyncio.Semaphore(AT_ONCE)

    async def search(question: str) -> SearchResult:
        async with slots:
            return await agent.asearch(question, k=2, effort="fast")

    return await asyncio.gather(*map(search, questions))


def main() -> None:
    """Print the documents of each question."""
    documents = [Document(film, f"{film} is a film directed by {name}.", film) for film, name in FILMS.items()]
    documents += [Document(name, f"{name} was born in {town}.", name) for name, town in TOWNS.items()]
    with SearchAgent(MemoryCorpus(documents)) as agent:
        questions = [f"Where was the director of {film} born?" for film in FILMS]
        for result in asyncio.run(search_all(agent, questions)):
            print(f"{result.question} {', '.join(document.id for document in result.documents)}")


if __name__ == "__main__":
    main()
