"""The metrics of a server, which Prometheus reads."""

from __future__ import annotations

from collections.abc import Iterable

from context_agent._support.extras import extra

with extra("serve"):
    from prometheus_client import CollectorRegistry, Counter, Histogram, generate_latest
    from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4 as CONTENT_TYPE
    from prometheus_client.metrics_core import Metric
    from prometheus_client.parser import text_string_to_metric_families
    from prometheus_client.registry import Collector

__all__ = ["CONTENT_TYPE", "Metrics", "labeled_by_worker"]

SECONDS_BUCKETS = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 25.0, 60.0)


class Metrics:
    """The metrics of one server. They have their own registry, so one process can run several servers."""

    def __init__(self) -> None:
        self.registry = registry = CollectorRegistry()
        self.requests = Counter(
            "ctx1_requests_total", "Requests answered, by path and status.", ("path", "status"), registry=registry
        )
        self.errors = Counter("ctx1_errors_total", "Failed requests, by code.", ("code",), registry=registry)
        self.seconds = Histogram(
            "ctx1_request_seconds",
            "Seconds from a request's first byte to the last byte of its answer.",
            ("path",),
            buckets=SECONDS_BUCKETS,
            registry=registry,
        )
        self.queue_seconds = Histogram(
            "ctx1_queue_seconds",
            "Seconds that searches waited in the queue.",
            ("path",),
            buckets=SECONDS_BUCKETS,
            registry=registry,
        )
        self.searches = Counter(
            "ctx1_searches_total", "Searches that ended, by stop reason.", ("stop_reason",), registry=registry
        )
        self.unrecorded = Counter(
            "ctx1_searches_unrecorded_total", "Records of searches that could not be written.", registry=registry
        )
        self.turns = Counter("ctx1_turns_total", "Turns of all searches.", registry=registry)
        self.tokens = Counter("ctx1_tokens_total", "Tokens ever placed in a context.", registry=registry)
        self.reloads = Counter(
            "ctx1_index_reloads_total", "Reloads of a changed index, by outcome.", ("outcome",), registry=registry
        )
        self.refusals = Counter(
            "ctx1_connections_refused_total", "Connections that a limit ended, by code.", ("code",), registry=registry
        )

    def text(self) -> str:
        """Return all metrics in Prometheus's text format."""
        return generate_latest(self.registry).decode()


def labeled_by_worker(texts: Iterable[tuple[int, str]]) -> str:
    """Return the metrics of several workers as one text. The label `worker` of a sample is the number of its worker."""
    families: dict[str, Metric] = {}
    for worker, text in texts:
        for family in text_string_to_metric_families(text):
            gathered = families.setdefault(family.name, Metric(family.name, family.documentation, family.type))
            for sample in family.samples:
                gathered.add_sample(sample.name, {"worker": str(worker), **sample.labels}, sample.value)
    return generate_latest(_Families(families.values())).decode()


class _Families(Collector):
    """Metric families in the form that the library's writer needs."""

    def __init__(self, families: Iterable[Metric]) -> None:
        self._families = families

    def collect(self) -> Iterable[Metric]:
        return self._families
