"""Traces: what is asked of OpenTelemetry where the application uses it.

Nothing here imports it. Where nobody has loaded opentelemetry.trace, no provider of
tracers can have been set and no span can be current: then each of these functions is a
look into sys.modules. Else spans.py does the rest.
"""

import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    from pgwake.tracing.spans import EnqueueSpan, RunSpan, TracedJob

NOWHERE: Mapping[str, str] = {}
_PARENT = re.compile(r"[0-9a-f]{2}-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}")
_STATE = re.compile(r"[ -~]{1,512}")  # of which everybody passes on so many


class Untraced:
    """A call that adds jobs, for which there is no span."""

    carrier = NOWHERE

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """Leave."""

    def added(self, job_id: int) -> None:
        """Tell the id of the one job."""

    def counted(self, count: int) -> None:
        """Tell how many jobs there were."""


_UNTRACED = Untraced()


def is_loaded() -> bool:
    """Whether the functions below have anything to do."""
    return sys.modules.get("opentelemetry.trace") is not None


def start_run(
    jobs: "Sequence[TracedJob]", worker: str, *, is_batch: bool = False
) -> "RunSpan | None":
    """Start the span of an attempt, linked to where its jobs come from.

    Args:
        jobs: The job; those of a batch, which are of one queue and kind.
        worker: Who runs them.
        is_batch: Whether the handler takes many.

    Returns:
        None where there is no provider of tracers, or its own code has failed.
    """
    if not is_loaded():
        return None
    from pgwake.tracing import spans  # noqa: PLC0415

    try:
        return spans.RunSpan.start(jobs, worker, is_batch=is_batch)
    except Exception:  # noqa: BLE001, a sampler's, or a processor's of spans
        _log_failure(jobs[0].kind)
        return None


def enqueueing(kind: str | None, queue: str | None) -> "EnqueueSpan | Untraced":
    """Start the span of a call that adds jobs, current in its block.

    Args:
        kind: Their kind; None: they differ.
        queue: Their queue; None: they differ.
    """
    if not is_loaded():
        return _UNTRACED
    from pgwake.tracing import spans  # noqa: PLC0415

    try:
        return spans.EnqueueSpan.start(kind, queue)
    except Exception:  # noqa: BLE001, as above
        _log_failure(kind)
        return _UNTRACED


def _log_failure(kind: str | None) -> None:
    import structlog  # noqa: PLC0415, dear to load, and a producer logs nothing else

    structlog.get_logger().exception("span can't be started", kind=kind)


def carrier() -> Mapping[str, str]:
    """Return traceparent, and tracestate if it has any, of the span that is current."""
    if not is_loaded():
        return NOWHERE
    from pgwake.tracing import spans  # noqa: PLC0415

    return spans.carrier()


def carried(headers: Mapping[str, str]) -> Mapping[str, str]:
    """Return what the headers of a request carry of its span, if they carry one."""
    parent, state = headers.get("traceparent", ""), headers.get("tracestate", "")
    if not _PARENT.fullmatch(parent):
        return NOWHERE
    found = {"traceparent": parent}
    if _STATE.fullmatch(state):
        found["tracestate"] = state
    return found


@contextmanager
def continued(carrier: Mapping[str, str]) -> Iterator[None]:
    """Have the span current that another process has handed over, if it has."""
    if not carrier:
        yield
        return
    from pgwake.tracing import spans  # noqa: PLC0415

    with spans.continued(carrier):
        yield


def ids() -> dict[str, str]:
    """Return trace_id and span_id of the span that is current, if one is."""
    if not is_loaded():
        return {}
    from pgwake.tracing import spans  # noqa: PLC0415

    return spans.ids()


def flush(seconds: float) -> None:
    """Have what is not yet exported exported, for so long at most."""
    if is_loaded():
        from pgwake.tracing import spans  # noqa: PLC0415

        spans.flush(seconds)
