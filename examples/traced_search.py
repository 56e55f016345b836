"""OpenTelemetry: a search as spans, printed as a tree. No collector is needed.

    python examples/traced_search.py

This script needs `pip install "context-agent[otel]"`.
"""

from __future__ import annotations

from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from context_agent import Document, MemoryCorpus, SearchAgent
from context_agent.integrations.otel import Tracing

QUESTION = "Which award did the director of Rope receive?"
TEXTS = {
    "Rope": "Rope is a film of 1948 directed by Alfred Hitchcock.",
    "Alfred Hitchcock": "Alfred Hitchcock received the AFI Life Achievement Award.",
    "Bread": "Bread is made of flour, water and salt.",
}


def show(spans: list[ReadableSpan], parent: int | None = None, depth: int = 0) -> None:
    """Print the spans below a span, in the order in which they began."""
    for span in sorted(spans, key=lambda one: one.start_time or 0):
        if (span.parent.span_id if span.parent else None) != parent or span.context is None:
            continue
        milliseconds = ((span.end_time or 0) - (span.start_time or 0)) / 1e6
        print(f"{'  ' * depth}{span.name}  {milliseconds:.1f} ms")
        show(spans, span.context.span_id, depth + 1)


def main() -> None:
    """Search, then print the tree and the figures of the episode."""
    exporter = InMemorySpanExporter()  # in a service: what `ctx1 serve --otel` sets up from the environment
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    corpus = MemoryCorpus(Document(title.lower(), text, title) for title, text in TEXTS.items())
    with (
        SearchAgent(corpus, observers=[Tracing(provider=provider)]) as agent,
        provider.get_tracer("example").start_as_current_span("POST /ask"),
    ):
        agent.search(QUESTION)
    spans = list(exporter.get_finished_spans())
    show(spans)
    episode = next(span for span in spans if span.name.startswith("invoke_agent"))
    for name, value in sorted((episode.attributes or {}).items()):
        if name.startswith("ctx1."):
            print(f"{name} = {value}")


if __name__ == "__main__":
    main()
