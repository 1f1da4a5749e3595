"""Spans of OpenTelemetry; imported by tracing.py, where the application uses that.

Names, kinds and attributes are those of the semantic conventions for messaging:
https://opentelemetry.io/docs/specs/semconv/messaging/messaging-spans/
Only a span's name has the kind of job where they have the destination, since the kind
says what is done; the destination, a queue, is an attribute.
"""

import json
import re
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import Protocol, Self

from opentelemetry import context, trace
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator
from opentelemetry.util.types import AttributeValue

from pgwake.version import __version__

MAX_CHARACTERS = 512  # of tracestate W3C has everybody pass on so many

# The propagator would log what does not fit.
_MEMBER = r"[a-z0-9][a-z0-9_*/@-]*=[ -+\--<>-~]*[!-+\--<>-~]"
_STATE = re.compile(f"{_MEMBER}(?:, *{_MEMBER})*")

_ROOT = context.Context()
_w3c = TraceContextTextMapPropagator()
_tracer: trace.Tracer | None = None


class TracedJob(Protocol):
    """What is told of a job that is run."""

    id: int
    queue: str
    kind: str
    attempt: int
    metadata: str | None


class RunSpan:
    """The span of a run, current in its block; linked to where its jobs come from.

    It is the root of a trace, not a child of their producers' spans: a job may run days
    later and many times, and a batch has many producers. It is exported when the block
    is left and it is known what became of each job.
    """

    def __init__(self, span: trace.Span, job_ids: set[int], *, is_batch: bool) -> None:
        self._span = span
        self._undecided = job_ids
        self._outcomes: set[str] = set()
        self._is_batch = is_batch
        self._left_at: int | None = None

    @classmethod
    def start(
        cls, jobs: Sequence[TracedJob], worker: str, *, is_batch: bool
    ) -> Self | None:
        """Start it; None where there is no provider of tracers."""
        tracer = _get_tracer()
        if tracer is None:
            return None
        first = jobs[0]
        attributes = _attributes("run", "process", first.kind, first.queue)
        attributes["messaging.client.id"] = worker
        if is_batch:
            attributes["messaging.batch.message_count"] = len(jobs)
        else:
            attributes["messaging.message.id"] = str(first.id)
            attributes["pgwake.attempt"] = first.attempt
        links = [
            trace.Link(origin, {"messaging.message.id": str(job.id)})
            for job in jobs
            if (origin := _origin(job.metadata)) is not None
        ]
        span = tracer.start_span(
            f"run {first.kind}", _ROOT, trace.SpanKind.CONSUMER, attributes, links
        )
        return cls(span, {job.id for job in jobs}, is_batch=is_batch)

    @property
    def ids(self) -> dict[str, str]:
        """trace_id and span_id, for the log."""
        return _ids(self._span)

    def __enter__(self) -> Self:
        self._token = context.attach(trace.set_span_in_context(self._span, _ROOT))
        return self

    def __exit__(self, *_: object) -> None:
        context.detach(self._token)
        self._left_at = time.time_ns()
        self._end_if_over()

    def failed(
        self, job_id: int, error_type: str, message: str, traceback: str | None
    ) -> None:
        """Record why an attempt failed, in the words that the job's errors have."""
        event: dict[str, AttributeValue] = {
            "exception.type": error_type,
            "exception.message": message,
        }
        if traceback is not None:
            event["exception.stacktrace"] = traceback
        if self._is_batch:
            event["messaging.message.id"] = str(job_id)
        self._span.add_event("exception", event)
        self._span.set_attribute("error.type", error_type)
        self._span.set_status(trace.StatusCode.ERROR, message)

    def decided(self, job_id: int, outcome: str) -> None:
        """Note what became of a job; from any thread. Never raises."""
        self._undecided.discard(job_id)
        self._outcomes.add(outcome)
        if outcome == "lease_lost":
            self._span.set_status(trace.StatusCode.ERROR, "lease lost")
        if outcome != "completed" and not self._undecided and self._left_at is None:
            # Its handler holds on to a job that is not its any more, perhaps for ever.
            # One that has completed it by transaction() goes on, and will end.
            self._left_at = time.time_ns()
        self._end_if_over()

    def _end_if_over(self) -> None:
        if self._undecided or self._left_at is None or not self._span.is_recording():
            return
        outcome = self._outcomes.pop() if len(self._outcomes) == 1 else "mixed"
        self._span.set_attribute("pgwake.outcome", outcome)
        _end(self._span, self._left_at)


class EnqueueSpan:
    """The span of a call that adds jobs, current in its block.

    Attributes:
        carrier: What the jobs' metadata is to carry: traceparent, perhaps tracestate.
    """

    def __init__(self, span: trace.Span) -> None:
        self._span = span

    @classmethod
    def start(cls, kind: str | None, queue: str | None) -> Self:
        """Start it; without a provider of tracers, stand for the one that is there."""
        tracer = _get_tracer()
        if tracer is None:
            there = trace.get_current_span().get_span_context()
            return cls(trace.NonRecordingSpan(there))
        return cls(
            tracer.start_span(
                f"enqueue {kind}" if kind is not None else "enqueue",
                kind=trace.SpanKind.PRODUCER,
                attributes=_attributes("enqueue", "send", kind, queue),
            )
        )

    def __enter__(self) -> Self:
        self._token = context.attach(trace.set_span_in_context(self._span))
        self.carrier = carrier()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: object, traceback: object
    ) -> None:
        context.detach(self._token)
        if kind is not None:
            # Without its message: a database's may show the payload.
            self._span.set_attribute("error.type", kind.__qualname__)
            self._span.set_status(trace.StatusCode.ERROR)
        _end(self._span)

    def added(self, job_id: int) -> None:
        """Tell the id of the one job."""
        self._span.set_attribute("messaging.message.id", str(job_id))

    def counted(self, count: int) -> None:
        """Tell how many jobs there were."""
        self._span.set_attribute("messaging.batch.message_count", count)


def carrier() -> Mapping[str, str]:
    """Return traceparent, and perhaps tracestate, of the span that is current."""
    found: dict[str, str] = {}
    _w3c.inject(found)
    return found


@contextmanager
def continued(carrier: Mapping[str, str]) -> Iterator[None]:
    """Have the span current that another process has handed over."""
    token = context.attach(_w3c.extract(carrier, _ROOT))
    try:
        yield
    finally:
        context.detach(token)


def ids() -> dict[str, str]:
    """Return trace_id and span_id of the span that is current, if one is."""
    return _ids(trace.get_current_span())


def flush(seconds: float) -> None:
    """Have what the provider holds exported; an exporter may take long to give up."""
    flush = getattr(trace.get_tracer_provider(), "force_flush", None)
    if flush is not None:  # the SDK's: the API has none

        def work() -> None:
            with suppress(Exception):
                flush(int(seconds * 1000))

        thread = threading.Thread(target=work, name="pgwake-flush", daemon=True)
        thread.start()
        thread.join(seconds)


def _get_tracer() -> trace.Tracer | None:
    """Return the tracer, once the application has set its provider: it does so once."""
    global _tracer  # noqa: PLW0603
    if _tracer is None:
        provider = trace.get_tracer_provider()
        if isinstance(provider, trace.ProxyTracerProvider):
            return None
        _tracer = provider.get_tracer("pgwake", __version__)
    return _tracer


def _end(span: trace.Span, at: int | None = None) -> None:
    try:
        span.end(at)
    except Exception:  # noqa: BLE001, a processor's of spans
        import structlog  # noqa: PLC0415, as in tracing

        structlog.get_logger().exception("span can't be ended")


def _attributes(
    name: str, operation: str, kind: str | None, queue: str | None
) -> dict[str, AttributeValue]:
    attributes: dict[str, AttributeValue] = {
        "messaging.system": "pgwake",
        "messaging.operation.name": name,
        "messaging.operation.type": operation,
    }
    if queue is not None:
        attributes["messaging.destination.name"] = queue
    if kind is not None:
        attributes["pgwake.kind"] = kind
    return attributes


def _origin(metadata: str | None) -> trace.SpanContext | None:
    """Read the span that a job comes from; anybody may have written anything there."""
    if metadata is None or '"traceparent"' not in metadata:
        return None
    try:
        found = json.loads(metadata)
    except (ValueError, RecursionError):  # too many digits, or brackets
        return None
    parent, state = found.get("traceparent"), found.get("tracestate")
    if not isinstance(parent, str) or len(parent) > MAX_CHARACTERS:
        return None
    given = {"traceparent": parent}
    if (
        isinstance(state, str)
        and len(state) <= MAX_CHARACTERS
        and _STATE.fullmatch(state)
    ):
        given["tracestate"] = state
    origin = trace.get_current_span(_w3c.extract(given, _ROOT)).get_span_context()
    return origin if origin.is_valid else None


def _ids(span: trace.Span) -> dict[str, str]:
    of = span.get_span_context()
    if not of.is_valid:
        return {}
    return {
        "trace_id": trace.format_trace_id(of.trace_id),
        "span_id": trace.format_span_id(of.span_id),
    }
