"""LangChain: the agent in place of a retriever, and its pruning alone behind another one.

    python examples/langchain_rag.py

This script needs `pip install "context-agent[langchain]"`. For an agent of LangChain, see langchain_middleware.py.
"""

from __future__ import annotations

from langchain_core.documents import Document
from langchain_core.embeddings import DeterministicFakeEmbedding
from langchain_core.prompts import ChatPromptTemplate
from langchain_core.runnables import RunnableLambda, RunnablePassthrough
from langchain_core.vectorstores import InMemoryVectorStore

from context_agent import Document as Source
from context_agent import MemoryCorpus, SearchAgent
from context_agent.integrations.langchain import ContextAgentRetriever, PruningCompressor

QUESTION = "Which award did the director of Rope receive?"
TEXTS = {
    "Rope": "Rope is a film of 1948 directed by Alfred Hitchcock.",
    "Alfred Hitchcock": "Alfred Hitchcock received the AFI Life Achievement Award.",
    "Bread": "Bread is made of flour, water and salt.",
    "Comets": "Comets grow a tail near the sun.",
}


def instead_of_a_retriever() -> None:
    """Print the prompt that a chat model would get."""
    # For a Chroma store that is there already: ContextAgentRetriever.from_chroma(store).
    corpus = MemoryCorpus(Source(title.lower(), text, title) for title, text in TEXTS.items())
    with SearchAgent(corpus) as agent:
        retriever = ContextAgentRetriever(agent=agent, k=2)
        prompt = ChatPromptTemplate.from_template("Answer from these passages only:\n{context}\n\nQuestion: {question}")
        joined = RunnableLambda(lambda found: "\n".join(f"- {one.page_content}" for one in found))
        chain = {"context": retriever | joined, "question": RunnablePassthrough()} | prompt  # | your chat model
        print(chain.invoke(QUESTION).to_string())


def behind_a_retriever() -> None:
    """Print what pruning leaves of a plain search."""
    documents = [Document(text, metadata={"title": title}) for title, text in TEXTS.items()]
    store = InMemoryVectorStore.from_documents(documents, DeterministicFakeEmbedding(size=32))
    found = store.as_retriever(search_kwargs={"k": 4}).invoke(QUESTION)
    kept = PruningCompressor(tokens=500).compress_documents(found, QUESTION)
    titles = sorted(one.metadata["title"] for one in kept)
    print(f"Pruning alone keeps {len(kept)} of {len(found)}: {', '.join(titles)}")


if __name__ == "__main__":
    instead_of_a_retriever()
    behind_a_retriever()
