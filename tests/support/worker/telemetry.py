"""OpenTelemetry's SDK, as an application sets it up, and the spans that it got."""

import json
from pathlib import Path
from typing import Any

import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan, SpanProcessor, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from pgwake.tracing import spans
from support import PATIENCE, wait_for


class Telemetry:
    """A provider of tracers for this process, and what was exported."""

    def __init__(self, patch: pytest.MonkeyPatch, *before: SpanProcessor) -> None:
        self._exporter = InMemorySpanExporter()
        provider = TracerProvider(shutdown_on_exit=False)
        for processor in (*before, SimpleSpanProcessor(self._exporter)):
            provider.add_span_processor(processor)
        # An application sets it once and for all; the next test has another, or none.
        patch.setattr(trace, "_TRACER_PROVIDER", provider)
        patch.setattr(spans, "_tracer", None)
        self.tracer = provider.get_tracer("tests")

    @property
    def spans(self) -> list[ReadableSpan]:
        """What was exported, in order of their ends."""
        return list(self._exporter.get_finished_spans())

    def named(self, name: str) -> list[ReadableSpan]:
        """Those of a name."""
        return [span for span in self.spans if span.name == name]

    async def has(self, name: str, count: int = 1) -> list[ReadableSpan]:
        """Wait for so many of a name."""

        async def are_there() -> bool:
            return len(self.named(name)) >= count

        await wait_for(are_there, PATIENCE)
        return self.named(name)


def traceparent(span: ReadableSpan | trace.Span) -> str:
    """What W3C has a span passed on as."""
    of = span.get_span_context()
    assert of is not None
    return f"00-{of.trace_id:032x}-{of.span_id:016x}-{of.trace_flags:02x}"


def key(of: trace.SpanContext | None) -> tuple[int, int]:
    """What a span is known by, here and from elsewhere."""
    assert of is not None
    return of.trace_id, of.span_id


def attributes(span: ReadableSpan) -> dict[str, Any]:
    """Its attributes."""
    return dict(span.attributes or {})


def exported(path: Path) -> list[dict[str, Any]]:
    """The spans that processes have exported into a file; see traced_handlers.py."""
    if not path.exists():
        return []
    return [json.loads(line) for line in path.read_text().splitlines()]
