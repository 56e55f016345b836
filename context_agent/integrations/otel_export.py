"""The export of spans, as OpenTelemetry's environment variables configure it. Needs the extra `otel`.

| variable | meaning |
|---|---|
| `OTEL_TRACES_EXPORTER` | `otlp` (default), `console` (on stderr), `none`, or a package's own; several by commas |
| `OTEL_EXPORTER_OTLP_ENDPOINT`, `..._HEADERS` and others | the collector |
| `OTEL_EXPORTER_OTLP_PROTOCOL` | `grpc` or `http/protobuf`; by default the one that is installed |
| `OTEL_TRACES_SAMPLER`, `OTEL_SERVICE_NAME`, `OTEL_RESOURCE_ATTRIBUTES`, `OTEL_SDK_DISABLED` | as the SDK reads them |
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.metadata import EntryPoint, entry_points

from context_agent._support.extras import extra
from context_agent.errors import ConfigError
from context_agent.version import __version__

with extra("otel"):
    from opentelemetry import trace
    from opentelemetry.sdk.resources import Resource
    from opentelemetry.sdk.trace import TracerProvider as ExportingProvider
    from opentelemetry.sdk.trace.export import (
        BatchSpanProcessor,
        ConsoleSpanExporter,
        SimpleSpanProcessor,
        SpanExporter,
    )


EXPORTER_GROUP = "opentelemetry_traces_exporter"
"""The entry points of packages that provide exporters."""
OTLP_EXPORTERS = {"grpc": "otlp_proto_grpc", "http/protobuf": "otlp_proto_http"}


@contextmanager
def exporting() -> Iterator[None]:
    """Export the spans of this process while the block runs.

    When the block ends, the spans that are still waiting are sent. If a provider is already set, for example by
    `opentelemetry-instrument`, it stays and exports the spans.

    Raises:
        ConfigError: If an exporter is not installed.
    """
    if isinstance(trace.get_tracer_provider(), ExportingProvider):
        yield
        return
    provider = ExportingProvider(resource=_resource(), shutdown_on_exit=False)
    try:
        for name in os.environ.get("OTEL_TRACES_EXPORTER", "otlp").split(","):
            if name.strip() == "console":
                # stdout has the data of a command, or MCP's messages.
                provider.add_span_processor(SimpleSpanProcessor(ConsoleSpanExporter(out=sys.stderr)))
            elif name.strip() not in ("", "none"):
                provider.add_span_processor(BatchSpanProcessor(_exporter(name.strip())))
        trace.set_tracer_provider(provider)
        yield
    finally:
        provider.shutdown()


def _resource() -> Resource:
    is_named = "OTEL_SERVICE_NAME" in os.environ or "service.name=" in os.environ.get("OTEL_RESOURCE_ATTRIBUTES", "")
    return Resource.create({} if is_named else {"service.name": "ctx1", "service.version": __version__})


def _exporter(name: str) -> SpanExporter:
    installed = {entry.name: entry for entry in entry_points(group=EXPORTER_GROUP)}
    entry = _otlp(installed) if name == "otlp" else installed.get(name)
    if entry is None:
        names = ", ".join(sorted({"console", "none", *installed}))
        raise ConfigError(
            f"OTEL_TRACES_EXPORTER={name} names an exporter that is not installed. Install it, or use one of {names}."
        )
    exporter: SpanExporter = entry.load()()
    return exporter


def _otlp(installed: dict[str, EntryPoint]) -> EntryPoint | None:
    """Return the OTLP exporter for the protocol that the environment names.

    By default, return the one that is installed.
    """
    general = os.environ.get("OTEL_EXPORTER_OTLP_PROTOCOL")
    protocol = os.environ.get("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", general)
    if protocol is None:
        return next((installed[name] for name in OTLP_EXPORTERS.values() if name in installed), None)
    if protocol not in OTLP_EXPORTERS:
        raise ConfigError(f"OTEL_EXPORTER_OTLP_PROTOCOL must be one of {', '.join(OTLP_EXPORTERS)}; got {protocol}")
    if OTLP_EXPORTERS[protocol] not in installed:
        package = f"opentelemetry-exporter-{OTLP_EXPORTERS[protocol].replace('_', '-')}"
        raise ConfigError(f"OTEL_EXPORTER_OTLP_PROTOCOL={protocol} needs {package}. Run `pip install {package}`.")
    return installed[OTLP_EXPORTERS[protocol]]
