"""Batch handlers: many jobs in one call, each with an end of its own."""

import asyncio
import threading
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from pydantic import BaseModel, field_validator

from pgwake import ConfigurationError, Discard, Job, Registry, Retry, Snooze
from support import Connection, wait_for
from support.sql.helpers import insert, job, set_queue
from support.worker.helpers import (
    Row,
    all_ended,
    asleep,
    embedded,
    ended,
    in_status,
    reasons,
)
from support.worker.metrics import Samples, gauge
from support.worker.processes import StartProcess


class Document(BaseModel):
    """What the jobs of these tests are about."""

    number: int

    @field_validator("number")
    @classmethod
    def _check(cls, number: int) -> int:
        if number == -1:
            raise RuntimeError("minus one breaks the validator")
        return number


class Calls:
    """A registry with a batch handler, "index", which notes what it was called with.

    Args:
        answer: Makes what it returns out of the jobs.
        options: Of the handler.
    """

    def __init__(
        self, answer: Callable[[list[Job]], Any] = lambda _: None, **options: Any
    ) -> None:
        self.registry = Registry()
        self.sizes: list[int] = []
        self.told: list[Job] = []
        self.go = asyncio.Event()
        self.go.set()

        @self.registry.job("index", **{"batch": 100, "batch_wait": 0.05, **options})
        async def index(jobs: list[Job], documents: list[Document]) -> Any:
            assert [document.number for document in documents] == [
                job.payload["number"] for job in jobs
            ]
            self.sizes.append(len(jobs))
            self.told += jobs
            await self.go.wait()
            return answer(jobs)


async def insert_numbers(
    connection: Connection, *numbers: object, **columns: Any
) -> list[int]:
    """Insert jobs in one transaction, so that one claim finds them; their ids."""
    async with connection.transaction():
        return [
            await insert(connection, "index", payload={"number": number}, **columns)
            for number in numbers
        ]


async def run_batches(
    connection: Connection,
    database: str,
    calls: Calls,
    *numbers: object,
    settings: Row | None = None,
    **columns: Any,
) -> list[Row]:
    """Insert jobs in one transaction, run them to their ends; their rows."""
    ids = await insert_numbers(connection, *numbers, **columns)
    async with embedded(database, calls.registry, **(settings or {})):
        return [await ended(connection, job_id) for job_id in ids]


async def test_jobs_that_are_there_are_run_in_one_call(
    connection: Connection, database: str
) -> None:
    calls = Calls()
    ids = await insert_numbers(connection, *range(100))
    # More than slots: the claims ask for what a batch takes beyond them.
    async with embedded(database, calls.registry, queues="default:2") as worker:
        await all_ended(connection)
        samples = Samples(worker.metrics.render())

    assert calls.sizes == [100]
    assert [told.id for told in calls.told] == ids
    assert samples.total("pgwake_jobs_completed", kind="index") == 100
    assert samples.total("pgwake_slots_busy") == 0
    rows = [await job(connection, job_id) for job_id in ids]
    assert {(row["status"], row["attempt"], row["result"]) for row in rows} == {
        ("completed", 1, None)
    }


async def test_no_call_has_more_jobs_than_its_batch_takes(
    connection: Connection, database: str
) -> None:
    calls = Calls(batch=7)
    await run_batches(
        connection, database, calls, *range(100), settings={"queues": "default:3"}
    )

    assert max(calls.sizes) == 7
    assert sum(calls.sizes) == 100
    assert len({job.id for job in calls.told}) == 100


async def test_a_batch_waits_for_jobs_that_come_later_and_starts_once_it_is_full(
    connection: Connection, database: str
) -> None:
    calls = Calls(batch=3, batch_wait=3600)
    async with embedded(database, calls.registry) as worker:
        await asleep(worker)
        for number in range(3):
            assert not calls.sizes
            await insert_numbers(connection, number)
        await all_ended(connection)

    assert calls.sizes == [3]


async def test_a_batch_starts_with_what_it_has_when_its_wait_is_over(
    connection: Connection, database: str
) -> None:
    calls = Calls(batch=100, batch_wait=0.2)
    await run_batches(connection, database, calls, 1, 2)

    assert calls.sizes == [2]


async def test_a_batch_without_a_wait_takes_what_has_been_claimed(
    connection: Connection, database: str
) -> None:
    calls = Calls(batch_wait=0)
    await run_batches(connection, database, calls, *range(5))

    assert calls.sizes == [5]


async def test_other_kinds_run_beside_a_batch_that_waits(
    connection: Connection, database: str
) -> None:
    calls = Calls(batch_wait=3600)

    @calls.registry.job("quick")
    async def quick() -> None: ...

    async with embedded(database, calls.registry, queues="default:2") as worker:
        (waits,) = await insert_numbers(connection, 1)
        await in_status(connection, waits, "running")
        for _ in range(20):
            row = await ended(connection, await insert(connection, "quick"))
            assert row["status"] == "completed"
        assert gauge(worker, "slots_busy") == 1

    # A stop gives back what was gathered: nothing of it had begun.
    row = await job(connection, waits)
    assert (row["status"], row["attempt"]) == ("pending", 0)
    assert (row["bounce_count"], calls.sizes) == (0, [])


async def test_results_are_one_each_in_the_order_of_the_jobs(
    connection: Connection, database: str
) -> None:
    calls = Calls(lambda jobs: [job.payload["number"] * 2 for job in jobs])
    rows = await run_batches(connection, database, calls, 5, 3, 8)

    assert [row["result"] for row in rows] == [10, 6, 16]


async def test_results_can_be_given_by_job_id(
    connection: Connection, database: str
) -> None:
    calls = Calls(
        lambda jobs: {job.id: "odd" for job in jobs if job.payload["number"] % 2 == 1}
    )
    rows = await run_batches(connection, database, calls, 1, 2, 3)

    assert [row["status"] for row in rows] == ["completed"] * 3
    assert [row["result"] for row in rows] == ["odd", None, "odd"]


async def test_an_exception_among_the_results_is_the_end_of_its_job_alone(
    connection: Connection, database: str
) -> None:
    ends = [
        ValueError("bad"),
        Snooze(1000),
        Retry(1000, "later"),
        Discard("no use"),
        object(),
        "good",
    ]
    calls = Calls(lambda _: ends)
    ids = await insert_numbers(connection, *range(6), max_attempts=2)
    async with embedded(database, calls.registry):
        rows = [await ended(connection, ids[n]) for n in (0, 3, 4, 5)]
        snoozed = await in_status(connection, ids[1], "pending")
        retried = await in_status(connection, ids[2], "pending")
        bad, discarded, unfit, good = rows

    assert calls.sizes[0] == 6
    assert (bad["errors"][0]["message"], reasons(bad)[0]) == (
        "ValueError: bad",
        "failed",
    )
    assert (discarded["status"], reasons(discarded)) == ("failed", ["discarded"])
    assert reasons(unfit)[0] == "invalid"
    assert (good["status"], good["result"]) == ("completed", "good")
    assert (snoozed["attempt"], snoozed["errors"]) == (0, None)
    assert retried["errors"][0]["message"] == "later"


@pytest.mark.parametrize(
    ("answer", "what"),
    [
        (["one", "too", "many"], "3 of them"),
        ({0: "nobody's"}, "keys that are no job's id"),
        ("done", "str"),
        (2, "int"),
    ],
)
async def test_results_that_nobody_can_tell_apart_fail_all_jobs(
    connection: Connection, database: str, answer: object, what: str
) -> None:
    calls = Calls(lambda _: answer)
    rows = await run_batches(connection, database, calls, 1, 2, max_attempts=1)

    for row in rows:
        assert (row["status"], reasons(row)) == ("failed", ["invalid"])
        assert row["errors"][0]["message"].endswith(f"its handler returned {what}")


async def test_what_a_batch_handler_raises_is_the_end_of_all_its_jobs(
    connection: Connection, database: str
) -> None:
    def refuse(_: list[Job]) -> None:
        raise Discard("the index is gone")

    calls = Calls(refuse)
    rows = await run_batches(connection, database, calls, 1, 2, 3)

    assert [row["status"] for row in rows] == ["failed"] * 3
    assert [reasons(row) for row in rows] == [["discarded"]] * 3


async def test_a_payload_that_does_not_fit_fails_its_job_alone(
    connection: Connection, database: str
) -> None:
    calls = Calls(lambda jobs: [job.payload["number"] for job in jobs])
    rows = await run_batches(
        connection, database, calls, 1, "two", 3, -1, 5, max_attempts=1
    )

    assert calls.sizes == [3]
    assert [row["result"] for row in rows] == [1, None, 3, None, 5]
    unfit, broken = rows[1], rows[3]
    assert (unfit["status"], reasons(unfit)) == ("failed", ["invalid"])
    assert "the payload does not fit index: number" in unfit["errors"][0]["message"]
    assert (broken["status"], reasons(broken)) == ("failed", ["failed"])
    assert "minus one" in broken["errors"][0]["message"]


async def test_a_plain_batch_handler_runs_in_a_thread(
    connection: Connection, database: str
) -> None:
    registry = Registry()

    @registry.job("index", batch=10)
    def index(documents: list[dict[str, int]]) -> list[int]:
        assert threading.current_thread() is not threading.main_thread()
        return [document["number"] for document in documents]

    ids = await insert_numbers(connection, 1, 2)
    async with embedded(database, registry):
        rows = [await ended(connection, job_id) for job_id in ids]

    assert [row["result"] for row in rows] == [1, 2]


async def test_a_cancelled_job_of_a_batch_leaves_the_others_alone(
    connection: Connection, database: str
) -> None:
    calls = Calls(lambda jobs: [job.should_stop for job in jobs])
    calls.go.clear()
    first, second, third = await insert_numbers(connection, 1, 2, 3)
    async with embedded(database, calls.registry):
        await wait_for(lambda: calls.sizes)
        await connection.execute("select pgwake.cancel_job($1)", second)
        await wait_for(lambda: calls.told[1].should_stop)
        calls.go.set()
        rows = [await ended(connection, job_id) for job_id in (first, second, third)]

    assert [row["status"] for row in rows] == ["completed", "cancelled", "completed"]
    assert [row["attempt"] for row in rows] == [1, 1, 1]
    assert [row["result"] for row in rows] == [False, None, False]


async def test_a_batch_whose_jobs_are_all_cancelled_is_cancelled(
    connection: Connection, database: str
) -> None:
    calls = Calls()
    calls.go.clear()
    ids = await insert_numbers(connection, 1, 2)
    async with embedded(database, calls.registry):
        await wait_for(lambda: calls.sizes)
        await connection.execute("select pgwake.cancel_job(id) from pgwake.jobs_live")
        rows = [await ended(connection, job_id) for job_id in ids]

    assert [row["status"] for row in rows] == ["cancelled"] * 2


async def test_a_job_that_is_cancelled_while_its_batch_gathers_is_never_begun(
    connection: Connection, database: str
) -> None:
    calls = Calls(batch=3, batch_wait=3600)
    async with embedded(database, calls.registry) as worker:
        first, second = await insert_numbers(connection, 1, 2)
        await in_status(connection, second, "running")
        await connection.execute("select pgwake.cancel_job($1)", first)
        await asleep(worker)
        await insert_numbers(connection, 3)
        await all_ended(connection)

    assert sorted(job.payload["number"] for job in calls.told) == [2, 3]
    assert (await job(connection, first))["status"] == "cancelled"


async def test_a_batch_member_that_is_cancelled_costs_no_process(
    connection: Connection, start_worker: StartProcess
) -> None:
    worker = await start_worker(
        imports="support.worker.batch_handlers", cancel_grace=0.2
    )
    async with connection.transaction():
        first = await insert(connection, "batched nap", payload={"seconds": 2})
        second = await insert(connection, "batched nap", payload={"seconds": 2})
    await in_status(connection, second, "running")
    await connection.execute("select pgwake.cancel_job($1)", first)
    row = await ended(connection, second)

    # Its call went on for much longer than what one that is to stop may take.
    assert (row["status"], row["result"]) == ("completed", 2)
    assert (await ended(connection, first))["status"] == "cancelled"
    assert not worker.log("job can't be stopped")


async def test_a_lost_lease_in_a_batch_drops_the_end_of_its_job_alone(
    connection: Connection, database: str
) -> None:
    calls = Calls()
    calls.go.clear()
    first, second = await insert_numbers(connection, 1, 2)
    async with embedded(database, calls.registry, lease=1):
        await wait_for(lambda: calls.sizes)
        await connection.execute(
            "update pgwake.jobs_live set lease_id = gen_random_uuid(),"
            " lease_expires_at = 'infinity', claimed_by = 'another' where id = $1",
            first,
        )
        await wait_for(lambda: calls.told[0].should_stop)
        calls.go.set()
        await ended(connection, second)

    assert (await job(connection, second))["status"] == "completed"
    row = await job(connection, first)
    assert (row["status"], row["claimed_by"]) == ("running", "another")


async def test_a_batch_over_its_time_limit_fails_all_its_jobs(
    connection: Connection, database: str
) -> None:
    calls = Calls(timeout=0.1)
    calls.go.clear()
    rows = await run_batches(connection, database, calls, 1, 2, max_attempts=1)

    assert [reasons(row) for row in rows] == [["timeout"]] * 2


async def test_a_stop_gives_back_a_batch_that_outlasts_its_grace(
    connection: Connection, database: str
) -> None:
    calls = Calls()
    calls.go.clear()
    ids = await insert_numbers(connection, 1, 2)
    async with embedded(database, calls.registry, grace=0.1):
        await wait_for(lambda: calls.sizes)
    rows = [await job(connection, job_id) for job_id in ids]

    assert [(row["status"], row["attempt"]) for row in rows] == [("pending", 0)] * 2
    assert [row["bounce_count"] for row in rows] == [1, 1]


async def test_leases_are_kept_up_while_a_batch_gathers(
    connection: Connection, database: str
) -> None:
    calls = Calls(batch_wait=3)
    (job_id,) = await insert_numbers(connection, 1)
    async with embedded(database, calls.registry, lease=1):
        row = await ended(connection, job_id)

    assert (row["status"], row["attempt"], row["crash_count"]) == ("completed", 1, 0)


async def test_jobs_of_one_key_run_one_after_the_other_though_batched(
    connection: Connection, database: str
) -> None:
    calls = Calls(batch_wait=0.01)
    await insert_numbers(connection, 1, 2, 3, concurrency_key="a")
    await run_batches(connection, database, calls, 4, 5, 6, concurrency_key="b")

    assert sum(calls.sizes) == 6
    assert max(calls.sizes) <= 2


async def test_a_batch_is_no_larger_than_what_its_queue_may_run(
    connection: Connection, database: str
) -> None:
    calls = Calls()
    await set_queue(connection, max_running=3)
    await run_batches(connection, database, calls, *range(10))

    assert sum(calls.sizes) == 10
    assert max(calls.sizes) <= 3


async def test_a_job_that_crashed_before_is_alone_in_its_batch(
    connection: Connection, database: str
) -> None:
    calls = Calls()
    ids = await insert_numbers(connection, 1, 2, 3)
    await connection.execute(
        "update pgwake.jobs_live set crash_count = 1 where id = $1", ids[1]
    )
    async with embedded(database, calls.registry):
        await all_ended(connection)

    assert calls.sizes == [1, 2]
    assert calls.told[0].id == ids[1]


async def test_a_job_that_crashed_before_joins_no_batch_that_waits(
    connection: Connection, database: str
) -> None:
    calls = Calls(batch_wait=3600)
    async with embedded(database, calls.registry) as worker:
        (waits,) = await insert_numbers(connection, 1)
        await in_status(connection, waits, "running")
        await asleep(worker)
        async with connection.transaction():
            (crashed,) = await insert_numbers(connection, 2)
            await connection.execute(
                "update pgwake.jobs_live set crash_count = 1 where id = $1", crashed
            )
        row = await ended(connection, crashed)

    assert (row["status"], calls.sizes) == ("completed", [1])
    assert (await job(connection, waits))["status"] == "pending"


async def test_a_failed_job_of_a_batch_is_tried_again_without_the_others(
    connection: Connection, database: str
) -> None:
    calls = Calls(
        lambda jobs: [
            ValueError("once") if job.payload["number"] == 2 and job.attempt == 1 else 0
            for job in jobs
        ]
    )
    await set_queue(connection, backoff_base=timedelta(0))
    rows = await run_batches(connection, database, calls, 1, 2, 3)

    assert [row["attempt"] for row in rows] == [1, 2, 1]
    assert calls.sizes == [3, 1]


async def test_a_large_backlog_is_run_in_full_batches(
    connection: Connection, database: str
) -> None:
    calls = Calls(batch_wait=5)
    await connection.execute(
        "insert into pgwake.jobs (kind, payload)"
        " select 'index', jsonb_build_object('number', 1)"
        " from generate_series(1, 3000)"
    )
    async with embedded(database, calls.registry, queues="default:1"):
        await all_ended(connection)

    assert calls.sizes == [100] * 30


async def nothing(_: list[Job]) -> None: ...


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"batch": 0}, "batch is 0: use 1 to 1000"),
        ({"batch": 1001}, "batch is 1001"),
        ({"batch": 2.5}, "batch is 2.5"),
        ({"batch": True}, "batch is True"),
        ({"batch": 2, "batch_wait": -1}, "batch_wait is -1: use 0 to 3600"),
        ({"batch": 2, "batch_wait": float("nan")}, "batch_wait is nan"),
        ({"batch": 2, "process": True}, "exclude each other"),
    ],
)
def test_options_that_cannot_be_meant_are_refused(
    options: dict[str, Any], problem: str
) -> None:
    with pytest.raises(ConfigurationError, match=problem):
        Registry().job("index", **options)(nothing)


async def one(document: Document) -> None: ...
async def none() -> None: ...
async def twice(jobs: list[Job], others: list[Job]) -> None: ...
async def bare(jobs: list) -> None: ...  # type: ignore[type-arg]
async def rest(jobs: list[Job], **rest: Any) -> None: ...


@pytest.mark.parametrize("function", [one, none, twice, bare, rest])
def test_a_function_that_takes_no_batch_is_refused(function: Any) -> None:
    with pytest.raises(ConfigurationError, match=r"index: .*takes list\[Job\]"):
        Registry().job("index", batch=10)(function)


async def test_the_schema_of_one_payload_is_declared(
    connection: Connection, database: str
) -> None:
    async with embedded(database, Calls().registry):
        schema = await connection.fetchval(
            "select declared_schema from pgwake.kinds where name = 'index'"
        )

    assert schema["properties"]["number"]["type"] == "integer"
