"""LlamaIndex: the agent in place of a retriever, and its pruning alone behind another one.

    python examples/llamaindex_query.py

This script needs `pip install "context-agent[llamaindex]"`.
"""

from __future__ import annotations

from llama_index.core import Document, MockEmbedding, VectorStoreIndex
from llama_index.core.llms import MockLLM
from llama_index.core.query_engine import RetrieverQueryEngine
from llama_index.core.response_synthesizers import get_response_synthesizer

from context_agent import Document as Source
from context_agent import MemoryCorpus, SearchAgent
from context_agent.integrations.llamaindex import ContextAgentRetriever, PruningPostprocessor

QUESTION = "Which award did the director of Rope receive?"
TEXTS = {
    "Rope": "Rope is a film of 1948 directed by Alfred Hitchcock.",
    "Alfred Hitchcock": "Alfred Hitchcock received the AFI Life Achievement Award.",
    "Bread": "Bread is made of flour, water and salt.",
    "Comets": "Comets grow a tail near the sun.",
}


def instead_of_a_retriever() -> None:
    """Print the nodes behind an answer."""
    # For an index over Chroma that is there already: ContextAgentRetriever.from_chroma(index).
    corpus = MemoryCorpus(Source(title.lower(), text, title) for title, text in TEXTS.items())
    with SearchAgent(corpus) as agent:
        retriever = ContextAgentRetriever(agent, similarity_top_k=2)
        engine = RetrieverQueryEngine(retriever, get_response_synthesizer(llm=MockLLM()))  # your language model
        for one in engine.query(QUESTION).source_nodes:
            print(f"{one.score:.2f}  {one.node.metadata['ctx1_title']}: {one.node.get_content()}")


def behind_a_retriever() -> None:
    """Print what pruning leaves of an index's own search."""
    documents = [Document(text=text, metadata={"title": title}) for title, text in TEXTS.items()]
    index = VectorStoreIndex.from_documents(documents, embed_model=MockEmbedding(8))
    found = index.as_retriever(similarity_top_k=4).retrieve(QUESTION)
    kept = PruningPostprocessor(tokens=500).postprocess_nodes(found, query_str=QUESTION)
    titles = sorted(one.node.metadata["title"] for one in kept)
    print(f"Pruning alone keeps {len(kept)} of {len(found)}: {', '.join(titles)}")


if __name__ == "__main__":
    instead_of_a_retriever()
    behind_a_retriever()
