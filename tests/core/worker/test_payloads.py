"""What becomes of jobs whose payload does not fit, and of kinds nobody handles."""

from typing import Any

import pytest

from pgwake import Job, Registry
from support import Connection, wait_for
from support.sql.helpers import insert, job
from support.worker.helpers import embedded, ended, in_status, reasons, run
from support.worker.metrics import Samples


@pytest.fixture
def registry() -> Registry:
    registry = Registry()

    @registry.job("send")
    async def send(to: str, copies: int = 1) -> str:
        return f"{copies} to {to}"

    @registry.job("who")
    async def who(job: Job, **rest: Any) -> dict[str, Any]:
        return {"id": job.id, "attempt": job.attempt, "rest": rest}

    return registry


@pytest.mark.parametrize(
    ("payload", "field"),
    [
        ({}, "to"),
        ({"to": "a", "cc": "b"}, "cc"),
        ({"to": "a", "copies": "many"}, "copies"),
    ],
)
async def test_a_payload_that_does_not_fit_is_a_dead_letter_that_names_the_field(
    connection: Connection,
    database: str,
    registry: Registry,
    payload: dict[str, Any],
    field: str,
) -> None:
    job_id = await insert(connection, "send", payload=payload)
    async with embedded(database, registry):
        row = await ended(connection, job_id)

    assert row["status"] == "failed"
    (error,) = row["errors"]
    assert (error["reason"], error["attempt"]) == ("invalid", 1)
    assert f"the payload does not fit send: {field}:" in error["message"]


async def test_a_bad_payload_harms_no_other_job(
    connection: Connection, database: str, registry: Registry
) -> None:
    bad = await insert(connection, "send", payload={})
    good = await insert(connection, "send", payload={"to": "a"})
    async with embedded(database, registry):
        assert (await ended(connection, bad))["status"] == "failed"
        assert (await ended(connection, good))["result"] == "1 to a"


async def test_a_handler_that_asks_for_it_gets_the_job(
    connection: Connection, database: str, registry: Registry
) -> None:
    job_id = await insert(connection, "who", payload={"x": 1})
    async with embedded(database, registry):
        row = await ended(connection, job_id)

    assert row["result"] == {"id": job_id, "attempt": 1, "rest": {"x": 1}}


async def test_a_kind_that_nobody_here_handles_goes_back_unburnt_once(
    connection: Connection, database: str, registry: Registry
) -> None:
    job_id = await insert(connection, "unheard of", max_attempts=1)
    async with embedded(database, registry):
        await wait_for(lambda: _bounced(connection, job_id))
        row = await in_status(connection, job_id, "pending")
        assert (row["attempt"], row["errors"]) == (0, None)

        # From then on it is left out, however often it is due, and others are not.
        for _ in range(3):
            await connection.execute("update pgwake.jobs set run_at = now()")
            known = await insert(connection, "who", priority=-1)
            await ended(connection, known)
    assert (await job(connection, job_id))["bounce_count"] == 1


async def test_another_worker_gets_what_this_one_does_not_handle(
    connection: Connection, database: str, registry: Registry
) -> None:
    other = Registry()

    @other.job("new")
    async def new() -> None: ...

    job_id = await insert(connection, "new", max_attempts=1)
    async with embedded(database, registry):
        await wait_for(lambda: _bounced(connection, job_id))
        async with embedded(database, other):
            row = await ended(connection, job_id)

    assert (row["status"], row["attempt"], row["errors"]) == ("completed", 1, None)


async def _bounced(connection: Connection, job_id: int) -> bool:
    return bool((await job(connection, job_id))["bounce_count"])


async def test_unknown_kinds_are_counted_under_one_name(
    connection: Connection, database: str, registry: Registry
) -> None:
    for n in range(3):
        await insert(connection, f"unheard of {n}")

    async with embedded(database, registry) as worker:
        await wait_for(
            lambda: (
                Samples(worker.metrics.render()).total(
                    "pgwake_jobs_released", reason="unknown_kind"
                )
                >= 3
            )
        )
        samples = Samples(worker.metrics.render())

    assert samples.label_values("pgwake_jobs_released", "kind") == {"(unknown)"}
    assert samples.label_values("pgwake_jobs_claimed", "kind") == {"(unknown)"}


async def test_a_failed_attempt_names_the_worker_and_where_it_was(
    connection: Connection, database: str
) -> None:
    registry = Registry()

    @registry.job("fail", max_attempts=1)
    async def fail() -> None:
        raise ValueError("out of paper")

    job_id = await insert(connection, "fail")
    async with embedded(database, registry) as worker:
        row = await ended(connection, job_id)

    (error,) = row["errors"]
    assert error["worker"] == worker.name
    assert error["message"] == "ValueError: out of paper"
    assert "test_payloads.py" in error["traceback"]
    assert "/pgwake/" not in error["traceback"]
    assert reasons(row) == ["failed"]


async def test_a_payload_of_one_mebibyte_reaches_its_handler(
    connection: Connection, database: str
) -> None:
    async def measure(text: str) -> int:
        return len(text)

    row = await run(
        connection, database, measure, columns={"payload": {"text": "x" * 1_048_000}}
    )

    assert (row["status"], row["result"]) == ("completed", 1_048_000)
