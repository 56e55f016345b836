"""Metrics in Prometheus's text format (version 0.0.4)."""

from __future__ import annotations

import re
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

_SAMPLE = re.compile(r"(\w+)(?:\{(.*)\})?( [^ ]+)")
"""Name, labels and value of a metric."""
CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
SECONDS = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 25.0, 60.0)
"""Upper bounds of the histograms' buckets."""
_ESCAPED = str.maketrans({"\\": "\\\\", '"': '\\"', "\n": "\\n"})


class Counter:
    """A number for each combination of labels; it only grows."""

    kind = "counter"

    def __init__(self, name: str, help: str, labels: Sequence[str] = ()) -> None:
        self.name, self.help, self._labels = name, help, tuple(labels)
        self._values: dict[tuple[str, ...], float] = {} if labels else {(): 0.0}

    def add(self, *values: str, by: float = 1.0) -> None:
        """Adds to the number of these label values, in the order of the labels."""
        self._values[values] = self._values.get(values, 0.0) + by

    def lines(self) -> Iterator[str]:
        """Yield the samples."""
        for values in sorted(self._values):
            yield f"{self.name}{labelled(self._labels, values)} {self._values[values]:.17g}"


class Gauge:
    """A number that is read when it is shown, or a label whose sample is 1."""

    kind = "gauge"

    def __init__(self, name: str, help: str, read: Callable[[], float | str], label: str = "") -> None:
        self.name, self.help, self._read, self._label = name, help, read, label

    def lines(self) -> Iterator[str]:
        """Yield the sample."""
        value = self._read()
        if isinstance(value, str):
            yield f"{self.name}{labelled((self._label,), (value,))} 1"
        else:
            yield f"{self.name} {value:.17g}"


class Histogram:
    """How many durations were below each bound, for each value of one label."""

    kind = "histogram"

    def __init__(self, name: str, help: str, label: str) -> None:
        self.name, self.help, self._label = name, help, label
        self._counts: dict[str, list[int]] = defaultdict(lambda: [0] * (len(SECONDS) + 1))
        self._sums: dict[str, float] = defaultdict(float)

    def add(self, value: str, seconds: float) -> None:
        """Adds one duration."""
        self._counts[value][bisect_left(SECONDS, seconds)] += 1
        self._sums[value] += seconds

    def lines(self) -> Iterator[str]:
        """Yield the samples: cumulative buckets, sum and count."""
        for value in sorted(self._counts):
            total = 0
            for bound, count in zip((*map(str, SECONDS), "+Inf"), self._counts[value], strict=True):
                total += count
                yield f"{self.name}_bucket{labelled((self._label, 'le'), (value, bound))} {total}"
            label = labelled((self._label,), (value,))
            yield f"{self.name}_sum{label} {self._sums[value]:.17g}"
            yield f"{self.name}_count{label} {total}"


class Metrics:
    """The metrics of a server. Used from one event loop."""

    def __init__(self) -> None:
        self.requests = Counter("ctx1_requests_total", "Requests answered, by path and status.", ("path", "status"))
        self.errors = Counter("ctx1_errors_total", "Failed requests, by code.", ("code",))
        self.seconds = Histogram(
            "ctx1_request_seconds", "Seconds from a request's first byte to the last byte of its answer.", "path"
        )
        self.queue_seconds = Histogram("ctx1_queue_seconds", "Seconds that searches waited in the queue.", "path")
        self.searches = Counter("ctx1_searches_total", "Searches that ended, by stop reason.", ("stop_reason",))
        self.turns = Counter("ctx1_turns_total", "Turns of all searches.")
        self.tokens = Counter("ctx1_tokens_total", "Tokens ever placed in a context.")
        self.reloads = Counter("ctx1_index_reloads_total", "Reloads of a changed index, by outcome.", ("outcome",))
        self.refusals = Counter("ctx1_connections_refused_total", "Connections that a limit ended, by code.", ("code",))
        self.gauges: list[Gauge] = []

    def gauge(self, name: str, help: str, read: Callable[[], float | str], label: str = "") -> None:
        """Adds a gauge: `read` returns its number, or the value of its label."""
        self.gauges.append(Gauge(name, help, read, label))

    def samples(self) -> dict[str, list[str]]:
        """Return the lines of each metric's samples, by the lines that describe it."""
        metrics = (metric for metric in vars(self).values() if isinstance(metric, Counter | Histogram))
        return {
            f"# HELP {metric.name} {metric.help}\n# TYPE {metric.name} {metric.kind}": [*metric.lines()]
            for metric in (*metrics, *self.gauges)
        }

    def text(self) -> str:
        """Return all metrics in Prometheus's format."""
        return exposition(self.samples())


def exposition(samples: Mapping[str, Sequence[str]]) -> str:
    """Samples by their descriptions, in Prometheus's format."""
    return "\n".join(line for description, lines in samples.items() for line in (description, *lines)) + "\n"


def by_worker(samples: Iterable[tuple[int, Mapping[str, Sequence[str]]]]) -> dict[str, list[str]]:
    """Return the samples of several workers together, each with the label `worker`, the worker's number."""
    together: dict[str, list[str]] = {}
    for worker, metrics in samples:
        for description, lines in metrics.items():
            together.setdefault(description, []).extend(_with_worker(line, worker) for line in lines)
    return together


def _with_worker(sample: str, worker: int) -> str:
    name, labels, value = _SAMPLE.fullmatch(sample).groups(default="")  # type: ignore[union-attr]
    with_worker = ",".join(filter(None, (f'worker="{worker}"', labels)))
    return f"{name}{{{with_worker}}}{value}"


def labelled(names: Sequence[str], values: Sequence[str]) -> str:
    """`{name="value",...}`; empty without labels."""
    pairs = ",".join(f'{name}="{value.translate(_ESCAPED)}"' for name, value in zip(names, values, strict=True))
    return f"{{{pairs}}}" if pairs else ""
