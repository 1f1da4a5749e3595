"""Traces: from whoever enqueues to the handler, and from there on."""

import asyncio
import contextlib
import subprocess
import sys
import threading
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest
from opentelemetry import context, trace
from opentelemetry.sdk.trace import ReadableSpan, Span, SpanProcessor
from opentelemetry.trace import SpanKind, StatusCode, get_current_span
from structlog.testing import capture_logs

from pgwake import (
    Discard,
    InvalidArgumentError,
    Job,
    NewJob,
    Queue,
    Registry,
    Retry,
    Snooze,
)
from support import Connection, wait_for
from support.sql.helpers import insert, job
from support.worker.helpers import Row, embedded, ended, in_status
from support.worker.processes import StartProcess, clean_environment
from support.worker.producers import CONNECTIONS, POOLS, Producer
from support.worker.receiver import Receiver
from support.worker.registries import quick
from support.worker.telemetry import Telemetry, attributes, exported, key, traceparent

TRACE_ID = "4bf92f3577b34da6a3ce929d0e0e4736"
TRACEPARENT = f"00-{TRACE_ID}-00f067aa0ba902b7-01"


@pytest.fixture
def telemetry(monkeypatch: pytest.MonkeyPatch) -> Telemetry:
    return Telemetry(monkeypatch)


@pytest.fixture(params=CONNECTIONS + POOLS, ids=lambda opened: opened.__name__)
async def producer(
    request: pytest.FixtureRequest, database: str, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[Producer]:
    """A queue on each kind of connection there is."""
    monkeypatch.setenv("DJANGO_ALLOW_ASYNC_UNSAFE", "true")
    async with request.param(database) as producer:
        yield producer


async def metadata(connection: Connection) -> list[Any]:
    """The metadata of all jobs, in order of id."""
    rows = await connection.fetch("select metadata from pgwake.jobs order by id")
    return [row[0] for row in rows]


async def test_a_job_carries_the_span_that_enqueued_it_on_every_connection(
    producer: Producer, connection: Connection, telemetry: Telemetry
) -> None:
    many = [NewJob("mail", queue="post"), NewJob("mail", queue="post")]
    with telemetry.tracer.start_as_current_span("request") as request:
        async with producer.transaction():
            job_id = await producer("enqueue", "mail", queue="post")
            await producer("enqueue_many", many)
            await producer("copy", iter(many))

    one, of_many, of_copy = telemetry.spans[:3]
    origins = [one, of_many, of_many, of_copy, of_copy]
    carried = [{"traceparent": traceparent(origin)} for origin in origins]
    assert await metadata(connection) == carried
    assert [span.parent for span in (one, of_many, of_copy)] == [
        request.get_span_context()
    ] * 3
    assert {span.kind for span in (one, of_many, of_copy)} == {SpanKind.PRODUCER}
    common = {
        "messaging.system": "pgwake",
        "messaging.operation.name": "enqueue",
        "messaging.operation.type": "send",
    }
    known = {"messaging.destination.name": "post", "pgwake.kind": "mail"}
    assert (one.name, of_many.name, of_copy.name) == (
        "enqueue mail",
        "enqueue mail",
        "enqueue",  # a generator's jobs are not known when it begins
    )
    assert attributes(one) == {**common, **known, "messaging.message.id": str(job_id)}
    count = {"messaging.batch.message_count": 2}
    assert attributes(of_many) == {**common, **known, **count}
    assert attributes(of_copy) == {**common, **count}


async def test_metadata_of_the_producers_own_stays(
    database: str, connection: Connection, telemetry: Telemetry
) -> None:
    own = {"traceparent": TRACEPARENT, "tenant": 7}
    nested = {"headers": {"traceparent": TRACEPARENT}}
    large = {"large": "x" * 65_000}
    given: list[Any] = [{"tenant": 7}, own, nested, large, {}, None]
    async with Queue(database) as queue:
        await queue.enqueue_many(NewJob("mail", metadata=one) for one in given)
        await queue.copy(NewJob("mail", metadata=one) for one in given)

    found = await metadata(connection)
    for origin, own_and_carried in zip(
        telemetry.spans, (found[:6], found[6:]), strict=True
    ):
        carried = {"traceparent": traceparent(origin)}
        assert own_and_carried == [
            {"tenant": 7, **carried},
            own,
            {**nested, **carried},
            large,
            carried,
            carried,
        ]


async def test_a_copy_of_what_is_no_job_is_refused_as_ever(
    database: str, telemetry: Telemetry
) -> None:
    async with Queue(database) as queue:
        for wrong in ("mail", [NewJob("mail"), "mail"], iter(["mail"])):
            with pytest.raises(InvalidArgumentError, match="use NewJob"):
                await queue.copy(wrong)  # type: ignore[arg-type]

    assert {span.status.status_code for span in telemetry.spans} == {StatusCode.ERROR}


async def test_without_a_provider_a_span_from_elsewhere_is_carried_and_nothing_else(
    database: str, connection: Connection
) -> None:
    async with Queue(database) as queue:
        await queue.enqueue("mail", metadata={"tenant": 7})
        elsewhere = trace.SpanContext(
            int(TRACE_ID, 16),
            0x00F067AA0BA902B7,
            is_remote=True,
            trace_flags=trace.TraceFlags(1),
            trace_state=trace.TraceState([("vendor", "a;b")]),
        )
        with trace.use_span(trace.NonRecordingSpan(elsewhere)):
            await queue.enqueue("mail")

    assert await metadata(connection) == [
        {"tenant": 7},
        {"traceparent": TRACEPARENT, "tracestate": "vendor=a;b"},
    ]


async def test_a_span_of_an_enqueue_that_is_refused_says_so_without_the_payload(
    database: str, telemetry: Telemetry
) -> None:
    async with Queue(database) as queue:
        with pytest.raises(InvalidArgumentError, match="kind"):
            await queue.enqueue("k" * 129, {"secret": "canary"})

    (span,) = telemetry.spans
    assert span.status.status_code is StatusCode.ERROR
    assert attributes(span)["error.type"] == "InvalidArgumentError"
    assert "canary" not in span.to_json()


async def run(
    connection: Connection,
    url: str,
    handler: Callable[..., Any],
    *,
    payload: Row | None = None,
    carried: Row | None = None,
    **options: Any,
) -> Row:
    """Run one job of a handler, until it has ended or is to run again; its row."""
    registry = Registry()
    registry.job("mail", **options)(handler)
    job_id = await insert(
        connection, "mail", payload=payload or {}, metadata=carried, queue="default"
    )
    async with embedded(url, registry):

        async def is_through() -> bool:
            row = await job(connection, job_id)
            return row["status"] not in ("pending", "running") or bool(
                row["errors"] or row["run_at"] != row["created_at"]
            )

        await wait_for(is_through)
    return await job(connection, job_id)


async def test_a_run_has_a_span_of_its_own_linked_to_where_the_job_comes_from(
    database: str, connection: Connection, telemetry: Telemetry
) -> None:
    seen: list[trace.SpanContext] = []

    async def mail() -> None:
        seen.append(get_current_span().get_span_context())

    row = await run(
        connection,
        database,
        mail,
        carried={"traceparent": TRACEPARENT, "tracestate": "vendor=1"},
    )

    (span,) = telemetry.spans
    assert (span.name, span.kind, span.parent) == ("run mail", SpanKind.CONSUMER, None)
    assert [span.get_span_context()] == seen
    assert attributes(span) == {
        "messaging.system": "pgwake",
        "messaging.operation.name": "run",
        "messaging.operation.type": "process",
        "messaging.destination.name": "default",
        "messaging.client.id": row["claimed_by"],
        "messaging.message.id": str(row["id"]),
        "pgwake.kind": "mail",
        "pgwake.attempt": 1,
        "pgwake.outcome": "completed",
    }
    (link,) = span.links
    assert link.context.trace_id == int(TRACE_ID, 16)
    assert link.context.trace_state.get("vendor") == "1"
    assert link.attributes == {"messaging.message.id": str(row["id"])}
    assert span.status.status_code is StatusCode.UNSET
    assert span.end_time is not None
    assert span.start_time is not None
    assert span.start_time < span.end_time


def raising(error: BaseException) -> Callable[..., Any]:
    """A handler that raises."""

    async def mail() -> None:
        raise error

    return mail


def raising_in_thread(error: BaseException) -> Callable[..., Any]:
    """A plain one."""

    def mail() -> None:
        raise error

    return mail


async def needy(needed: int) -> None:
    """Take what the payload has not."""


async def slow() -> None:
    """Never end."""
    await asyncio.Event().wait()


async def unstorable() -> object:
    """Return what is no JSON."""
    return object()


OWN = ValueError("no such address")


@pytest.mark.parametrize(
    ("handler", "options", "outcome", "error_type"),
    [
        (raising(OWN), {}, "retry", "ValueError"),
        (raising(OWN), {"max_attempts": 1}, "failed", "ValueError"),
        (raising_in_thread(OWN), {"max_attempts": 1}, "failed", "ValueError"),
        (raising(SystemExit(1)), {"max_attempts": 1}, "failed", "SystemExit"),
        (raising(Retry(1000)), {}, "retry", "pgwake.jobs.outcomes.Retry"),
        (raising(Discard("gone")), {}, "failed", "pgwake.jobs.outcomes.Discard"),
        (needy, {}, "failed", "invalid"),
        (unstorable, {}, "retry", "pgwake.errors.InvalidValueError"),
        (slow, {"timeout": 0.1, "max_attempts": 1}, "failed", "timeout"),
        (raising(Snooze(1000)), {}, "snoozed", None),
    ],
)
async def test_a_span_says_how_its_run_ended_and_why_as_the_jobs_errors_do(
    database: str,
    connection: Connection,
    telemetry: Telemetry,
    handler: Callable[..., Any],
    options: dict[str, Any],
    outcome: str,
    error_type: str | None,
) -> None:
    row = await run(connection, database, handler, **options)

    (span,) = telemetry.spans
    assert attributes(span)["pgwake.outcome"] == outcome
    assert attributes(span).get("error.type") == error_type
    if error_type is None:
        assert span.status.status_code is StatusCode.UNSET
        assert not span.events
        return
    (error,) = row["errors"]
    (event,) = span.events
    assert span.status.status_code is StatusCode.ERROR
    assert span.status.description == error["message"]
    assert event.name == "exception"
    recorded = dict(event.attributes or {})
    assert recorded["exception.type"] == error_type
    assert recorded["exception.message"] == error["message"]
    assert recorded.get("exception.stacktrace") == error.get("traceback")


async def test_a_span_tells_of_a_job_that_was_cancelled_or_whose_lease_was_lost(
    database: str, connection: Connection, telemetry: Telemetry
) -> None:
    registry = Registry()
    registry.job("mail")(slow)
    ids = [await insert(connection, "mail") for _ in range(2)]
    async with embedded(database, registry, lease=1):
        for job_id in ids:
            await in_status(connection, job_id, "running")
        await connection.fetchval("select pgwake.cancel_job($1)", ids[0])
        await connection.execute("select pgwake.force_fail_job($1, 'mine')", ids[1])
        cancelled, lost = sorted(
            await telemetry.has("run mail", 2),
            key=lambda span: attributes(span)["messaging.message.id"],
        )

    assert attributes(cancelled)["pgwake.outcome"] == "cancelled"
    assert cancelled.status.status_code is StatusCode.UNSET
    assert attributes(lost)["pgwake.outcome"] == "lease_lost"
    assert lost.status.status_code is StatusCode.ERROR


async def test_a_run_that_a_stop_cuts_short_was_released(
    database: str, connection: Connection, telemetry: Telemetry
) -> None:
    registry, go, end = Registry(), threading.Event(), asyncio.Event()

    @registry.job("mail")
    def mail() -> None:
        go.wait(10)

    @registry.job("post")
    async def post() -> None:
        while not end.is_set():
            with contextlib.suppress(asyncio.CancelledError):
                await end.wait()

    ids = [await insert(connection, kind) for kind in ("mail", "post")]
    async with embedded(database, registry, grace=0.1, cancel_grace=0.1):
        for job_id in ids:
            await in_status(connection, job_id, "running")
    # Neither has ended: their runs are over when nobody waits for them.
    spans = telemetry.spans
    go.set()
    end.set()

    assert {span.name: attributes(span)["pgwake.outcome"] for span in spans} == {
        "run mail": "released",
        "run post": "released",
    }


async def test_the_span_of_a_job_completed_by_transaction_lasts_until_its_handler_ends(
    database: str, connection: Connection, telemetry: Telemetry
) -> None:
    registry, go = Registry(), asyncio.Event()

    @registry.job("mail")
    async def mail(job: Job) -> None:
        async with job.transaction() as own:
            await Queue(own).enqueue("next")
        await go.wait()

    job_id = await insert(connection, "mail")
    async with embedded(database, registry):
        await ended(connection, job_id)
        assert telemetry.named("run mail") == []
        go.set()
        (span,) = await telemetry.has("run mail")

    assert attributes(span)["pgwake.outcome"] == "completed"
    (enqueued,) = telemetry.named("enqueue next")
    assert enqueued.parent == span.get_span_context()
    assert (await metadata(connection))[-1] == {"traceparent": traceparent(enqueued)}


async def test_a_batch_has_one_span_with_links_to_all(
    database: str, connection: Connection, telemetry: Telemetry
) -> None:
    registry = Registry()

    @registry.job("index", batch=3, batch_wait=5, max_attempts=1)
    async def index(jobs: list[Job]) -> list[Any]:
        assert len(jobs) == 3
        return [None, ValueError("no such document"), None]

    async with Queue(database) as queue:
        await queue.enqueue("index")
        await queue.enqueue("index")
        await insert(connection, "index")  # by somebody who does not trace
        async with embedded(database, registry):
            (span,) = await telemetry.has("run index")

    origins = telemetry.named("enqueue index")
    assert [key(link.context) for link in span.links] == [
        key(origin.get_span_context()) for origin in origins
    ]
    ids = [attributes(origin)["messaging.message.id"] for origin in origins]
    assert [link.attributes for link in span.links] == [
        {"messaging.message.id": job_id} for job_id in ids
    ]
    told = attributes(span)
    assert told["messaging.batch.message_count"] == 3
    assert told["pgwake.outcome"] == "mixed"
    assert "messaging.message.id" not in told
    (event,) = span.events
    assert dict(event.attributes or {})["messaging.message.id"] == ids[1]
    assert span.status.status_code is StatusCode.ERROR


async def test_what_a_handler_enqueues_carries_its_run_on(
    database: str, connection: Connection, telemetry: Telemetry
) -> None:
    registry = Registry()

    @registry.job("next")
    async def following() -> None: ...

    @registry.job("async")
    async def on_the_loop() -> None:
        await following.enqueue()

    @registry.job("thread")
    def in_a_thread() -> None:
        following.enqueue_sync()

    first = [await insert(connection, kind) for kind in ("async", "thread")]
    async with embedded(database, registry):
        for job_id in first:
            await ended(connection, job_id)
        following_runs = await telemetry.has("run next", 2)

    for kind in ("async", "thread"):
        (run_of_first,) = telemetry.named(f"run {kind}")
        (enqueued,) = [
            span
            for span in telemetry.named("enqueue next")
            if span.parent == run_of_first.get_span_context()
        ]
        (linked,) = [
            span
            for span in following_runs
            if [key(link.context) for link in span.links]
            == [key(enqueued.get_span_context())]
        ]
        assert linked.parent is None


SPACES = " " * 60_000


NONE: list[Row] = [
    {"traceparent": None},
    {"traceparent": 7},
    {"traceparent": [TRACEPARENT]},
    {"traceparent": {"traceparent": TRACEPARENT}},
    {"traceparent": ""},
    {"traceparent": "00-0-0-00"},
    {"traceparent": TRACEPARENT[:-1]},
    {"traceparent": TRACEPARENT.upper()},
    {"traceparent": f"00-{'0' * 32}-00f067aa0ba902b7-01"},
    {"traceparent": f"ff{TRACEPARENT[2:]}"},
    {"traceparent": f"{TRACEPARENT}-more"},
    {"traceparent": f"{TRACEPARENT}-{SPACES}\nx"},
    {"traceparent": "\N{PILE OF POO}"},
    {"headers": {"traceparent": TRACEPARENT}},
    {"text": '"traceparent"'},
]


async def test_a_traceparent_that_is_none_harms_nothing(
    database: str, connection: Connection, telemetry: Telemetry
) -> None:
    registry = Registry()
    registry.job("mail", max_attempts=1)(raising(OWN))
    ids = [await insert(connection, "mail", metadata=carried) for carried in NONE]
    async with embedded(database, registry):
        rows = [await ended(connection, job_id) for job_id in ids]

    for row in rows:
        assert [error["message"] for error in row["errors"]] == [f"ValueError: {OWN}"]
    assert [span.links for span in telemetry.spans] == [()] * len(NONE)


async def test_a_tracestate_that_is_none_leaves_the_traceparent(
    database: str,
    connection: Connection,
    telemetry: Telemetry,
    caplog: pytest.LogCaptureFixture,
) -> None:
    many, late = "a=b" * 20_000, f"a=b,{' ' * 400}x"
    states: list[Any] = [7, None, [], "", "=", many, late, "a=\x7f", "a=\n"]
    for state in states:
        carried = {"traceparent": TRACEPARENT, "tracestate": state}
        await insert(connection, "quick", metadata=carried)
    async with embedded(database, quick()):
        runs = await telemetry.has("run quick", len(states))

    for span in runs:
        (link,) = span.links
        assert link.context.trace_id == int(TRACE_ID, 16)
    assert caplog.records == []


async def test_metadata_that_python_can_not_read_harms_nothing(
    database: str, connection: Connection, telemetry: Telemetry
) -> None:
    for value in ("[" * 3000 + "]" * 3000, "1" * 5000):
        await connection.execute(
            "insert into pgwake.jobs (kind, metadata)"
            " values ('quick', $1::text::jsonb)",
            f'{{"traceparent": {value}}}',
        )
    async with embedded(database, quick()):
        runs = await telemetry.has("run quick", 2)

    outcomes = {
        attributes(span)["messaging.message.id"]: attributes(span)["pgwake.outcome"]
        for span in runs
    }
    assert outcomes == {"1": "completed", "2": "completed"}


class Broken(SpanProcessor):
    """A processor of spans that raises where it can."""

    def __init__(self, *when: str) -> None:
        self._when = when

    def on_start(self, span: Span, parent_context: Any = None) -> None:  # noqa: ARG002
        if "start" in self._when:
            raise RuntimeError("it breaks at the start")

    def on_end(self, span: ReadableSpan) -> None:  # noqa: ARG002
        if "end" in self._when:
            raise RuntimeError("it breaks at the end")


@pytest.mark.parametrize("when", ["start", "end"])
async def test_an_applications_broken_processor_harms_neither_producer_nor_job(
    database: str, connection: Connection, monkeypatch: pytest.MonkeyPatch, when: str
) -> None:
    Telemetry(monkeypatch, Broken(when))
    with capture_logs() as lines:
        async with embedded(database, quick()), Queue(database) as queue:
            ids = [
                await queue.enqueue("quick"),
                *await queue.enqueue_many([NewJob("quick"), NewJob("quick")]),
            ]
            rows = [await ended(connection, job_id) for job_id in ids]

    assert [row["status"] for row in rows] == ["completed"] * 3
    told = "span can't be started" if when == "start" else "span can't be ended"
    assert len([line for line in lines if line["event"] == told]) == 5


async def test_a_worker_that_is_told_so_makes_no_spans(
    database: str, connection: Connection, telemetry: Telemetry
) -> None:
    seen: list[bool] = []
    registry = Registry()

    @registry.job("quick")
    async def look() -> None:
        seen.append(get_current_span().get_span_context().is_valid)

    async with embedded(database, registry, tracing=False):
        job_id = await insert(
            connection, "quick", metadata={"traceparent": TRACEPARENT}
        )
        await ended(connection, job_id)

    assert seen == [False]
    assert telemetry.spans == []


async def test_a_jobs_line_in_the_log_has_its_ids(
    database: str, connection: Connection, telemetry: Telemetry
) -> None:
    with capture_logs() as lines:
        await run(connection, database, raising(OWN), max_attempts=1)

    (span,) = telemetry.spans
    (line,) = [line for line in lines if line["event"] == "job failed for good"]
    of = span.get_span_context()
    assert of is not None
    assert int(line["trace_id"], 16) == of.trace_id
    assert int(line["span_id"], 16) == of.span_id


async def test_a_slot_has_no_span_left_over_from_the_job_before(
    database: str, connection: Connection, telemetry: Telemetry
) -> None:
    registry = Registry()

    @registry.job("careless")
    async def careless() -> None:
        span = telemetry.tracer.start_span("left over")
        context.attach(trace.set_span_in_context(span))  # and never detached

    ids = [await insert(connection, "careless") for _ in range(3)]
    with telemetry.tracer.start_as_current_span("start of the worker"):
        async with embedded(database, registry, queues="default:1"):
            for job_id in ids:
                await ended(connection, job_id)

    assert [span.parent for span in telemetry.named("run careless")] == [None] * 3


async def test_processes_hand_the_span_on_and_flush_what_they_have_when_they_end(
    connection: Connection, start_worker: StartProcess, tmp_path: Path
) -> None:
    path = tmp_path / "spans"
    worker = await start_worker(
        imports="support.worker.traced_handlers", test_spans=path
    )
    carried = {"traceparent": TRACEPARENT}
    ids = {
        kind: await insert(connection, kind, metadata=carried)
        for kind in ("apart", "raise apart", "log")
    }
    rows = {kind: await ended(connection, ids[kind]) for kind in ids}
    line = await worker.logged("job completed", job=ids["apart"])
    within = [await worker.logged("within", count) for count in (1, 2)]
    await worker.close()
    spans = {span["name"]: span for span in exported(path)}

    of = spans["run apart"]["context"]
    assert spans["in a process"]["context"]["trace_id"] == of["trace_id"]
    assert spans["in a process"]["parent_id"] == of["span_id"]
    assert f"0x{line['trace_id']}" == of["trace_id"]
    assert f"0x{line['span_id']}" == of["span_id"]
    assert [f"0x{TRACE_ID}"] == [
        link["context"]["trace_id"] for link in spans["run apart"]["links"]
    ]
    (error,) = rows["raise apart"]["errors"]
    failed = spans["run raise apart"]
    assert failed["attributes"]["error.type"] == "LookupError"
    assert failed["status"]["description"] == error["message"]
    assert {f"0x{line['span_id']}" for line in within} == {
        spans["in a process"]["context"]["span_id"],
        spans["run log"]["context"]["span_id"],
    }


async def test_endpoints_and_commands_are_told_the_span(
    connection: Connection, start_worker: StartProcess, tmp_path: Path
) -> None:
    path = tmp_path / "spans"
    with Receiver().serve() as receiver:
        worker = await start_worker(
            *("--http", f"post={receiver.url}"),
            *("--exec", "echo=sh -c 'echo $TRACEPARENT'"),
            imports="support.worker.traced_handlers",
            test_spans=path,
            queues="default",
        )
        ids = [await insert(connection, kind) for kind in ("post", "echo")]
        rows = [await ended(connection, job_id) for job_id in ids]
        await worker.close()
        (posted,) = receiver.posted

    told = [posted.headers["traceparent"], rows[1]["result"]]
    assert [text[:53] for text in told] == [
        f"00-{context['trace_id'][2:]}-{context['span_id'][2:]}-"
        for name in ("run post", "run echo")
        for context in [
            span["context"] for span in exported(path) if span["name"] == name
        ]
    ]


BASE = """
import asyncio, sys
{before}
import pgwake.cli.main, pgwake.kinds.builtin, pgwake.supervise.main, pgwake.testing
from pgwake import Queue, Registry, Settings, Worker

async def main():
    registry, done = Registry(), asyncio.Event()

    @registry.job("quick")
    async def quick(text: str):
        done.set()

    async with Queue({url!r}) as queue:
        await queue.enqueue("quick", {{"text": "a"}})
        async with Worker(Settings.load(database_url={url!r}, http_port=0), registry):
            await done.wait()

asyncio.run(main())
print("opentelemetry.trace" in sys.modules)
"""
BLOCKED = """
class Blocked:
    def find_spec(self, name, *_):
        if name.partition(".")[0] == "opentelemetry":
            raise ModuleNotFoundError(name)

sys.meta_path.insert(0, Blocked())
"""


@pytest.mark.parametrize("before", ["", BLOCKED], ids=["unused", "not installed"])
async def test_who_does_not_use_opentelemetry_needs_it_not_and_does_not_load_it(
    database: str, connection: Connection, tmp_path: Path, before: str
) -> None:
    program = BASE.format(before=before, url=database)
    done = await asyncio.to_thread(
        subprocess.run,
        [sys.executable, "-c", program],
        cwd=tmp_path,
        env=clean_environment({}),
        capture_output=True,
        text=True,
        check=False,
    )

    assert done.stdout.splitlines()[-1:] == ["False"], done.stderr
    assert await metadata(connection) == [None]
