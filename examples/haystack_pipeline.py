"""Haystack: a pipeline with the agent as its retriever, saved as YAML, loaded and run.

    HAYSTACK_TELEMETRY_ENABLED=false python examples/haystack_pipeline.py

This script needs `pip install "context-agent[haystack]"`. Without the variable, Haystack reports pipeline runs to
its makers.
"""

from __future__ import annotations

import tempfile

from haystack import Pipeline
from haystack.components.builders import PromptBuilder

from context_agent import Document, index_documents
from context_agent.integrations.haystack import ContextAgentRetriever

QUESTION = "Which award did the director of Rope receive?"
DOCUMENTS = [
    Document("rope", "Rope is a film of 1948 directed by Alfred Hitchcock.", "Rope", {"year": 1948}),
    Document(
        "hitchcock", "Alfred Hitchcock received an AFI Life Achievement Award.", "Alfred Hitchcock", {"year": 1979}
    ),
    Document("bread", "Bread is made of flour, water and salt.", "Bread", {"year": 1200}),
]
TEMPLATE = "Answer from these passages only:\n{% for d in documents %}- {{ d.content }}\n{% endfor %}\n{{ question }}"


def main() -> None:
    """Print the saved pipeline, and the prompt that a generator would get from the loaded one."""
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        index_documents(DOCUMENTS, path=folder)
        pipeline = Pipeline()
        pipeline.add_component("retriever", ContextAgentRetriever(path=folder, top_k=2))
        pipeline.add_component("prompt", PromptBuilder(TEMPLATE, required_variables=["documents", "question"]))
        pipeline.connect("retriever.documents", "prompt.documents")
        saved = pipeline.dumps()
        print(saved)

        loaded = Pipeline.loads(saved, allowed_modules=["context_agent.integrations.haystack"])
        late = {"field": "meta.year", "operator": ">", "value": 1900}
        asked = {"retriever": {"query": QUESTION, "filters": late}, "prompt": {"question": QUESTION}}
        print(loaded.run(asked)["prompt"]["prompt"])
        loaded.get_component("retriever").close()


if __name__ == "__main__":
    main()
