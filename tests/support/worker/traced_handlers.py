"""Handlers of an application that uses OpenTelemetry, for worker processes.

Each process exports its spans into the file that TEST_SPANS names, a line of JSON each,
in batches that are never full and seldom due: what it has left when it ends is what it
was told to flush.
"""

import os
from pathlib import Path

import structlog
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, ConsoleSpanExporter

from pgwake import job

provider = TracerProvider()
provider.add_span_processor(
    BatchSpanProcessor(
        ConsoleSpanExporter(
            out=Path(os.environ["TEST_SPANS"]).open("a", buffering=1),  # noqa: SIM115
            formatter=lambda span: str(span.to_json(indent=None)) + "\n",
        ),
        schedule_delay_millis=3_600_000,
    )
)
trace.set_tracer_provider(provider)
tracer = trace.get_tracer("application")


@job("apart", process=True)
def apart() -> int:
    """Do something that has a span, in a process of its own."""
    with tracer.start_as_current_span("in a process"):
        structlog.get_logger().info("within")
    return os.getpid()


@job("raise apart", process=True, max_attempts=1)
def raise_apart() -> None:
    """Fail in a process of its own."""
    raise LookupError("nothing is there")


@job("log")
async def log_it() -> None:
    """Leave a line in the log."""
    structlog.get_logger().info("within")
