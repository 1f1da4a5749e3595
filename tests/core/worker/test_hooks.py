"""A user's trigger that refuses an end costs its own job alone."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from structlog.testing import capture_logs

from pgwake import Registry, Worker
from support import Connection, wait_for
from support.sql.helpers import call, insert, job, sweep
from support.worker.helpers import embedded, ended, in_status, reasons
from support.worker.metrics import Samples, shown

REFUSE = """
create table public.refusals (kind text);
create function public.refuse() returns trigger language plpgsql
set search_path = public as $$
begin
  if exists (select from refusals as r where r.kind = new.kind) then
    raise exception 'not now, %', new.kind;
  end if;
  return null;
end $$;
create trigger refuse after insert on pgwake.jobs_finished
for each row execute function public.refuse();
create trigger refuse after insert on pgwake.jobs_failed
for each row execute function public.refuse();
insert into public.refusals values ('bad');
"""


def handlers() -> Registry:
    registry = Registry()

    @registry.job("good")
    async def good() -> None: ...

    @registry.job("bad", max_attempts=2, backoff_base=0)
    async def bad(*, fail: bool = False) -> str:
        if fail:
            raise ValueError("broken")
        return "done"

    return registry


@asynccontextmanager
async def refusing(
    connection: Connection, database: str, **columns: Any
) -> AsyncIterator[tuple[Worker, int]]:
    """A worker that has been refused the end of a bad job, of no other; its id."""
    await connection.execute(REFUSE)
    bad = await insert(connection, "bad", **columns)
    good = [await insert(connection, "good") for _ in range(20)]
    async with embedded(database, handlers()) as worker:
        for job_id in good:
            assert (await ended(connection, job_id))["status"] == "completed"

        async def was_refused() -> bool:
            return "refused" in reasons(await job(connection, bad))

        await wait_for(was_refused)
        yield worker, bad


async def test_a_job_whose_completion_is_refused_is_retried_and_named(
    database: str, connection: Connection
) -> None:
    with capture_logs() as lines:
        async with refusing(connection, database, max_attempts=20) as (worker, bad):
            await connection.execute("delete from refusals")
            row = await ended(connection, bad)
            retried = Samples(worker.metrics.render()).total(
                "pgwake_jobs_retried", kind="bad"
            )

    assert retried == len(row["errors"])
    assert (row["status"], row["result"]) == ("completed", "done")
    message = row["errors"][0]["message"]
    assert message == "its end is refused: RaiseError: not now, bad (P0001)"
    line = next(line for line in lines if line["event"] == "end refused")
    assert (line["job"], line["error"]) == (bad, "RaiseError: not now, bad (P0001)")


async def test_a_job_whose_failure_is_refused_is_put_off_and_named(
    database: str, connection: Connection
) -> None:
    failing = {"payload": {"fail": True}}
    with capture_logs() as lines:
        async with refusing(connection, database, **failing) as (worker, bad):
            row = await in_status(connection, bad, "pending")
            assert reasons(row)[:2] == ["failed", "refused"]
            assert row["attempt"] == 1  # the last one was given back
            assert row["crash_count"] == 0
            refused = {"kind": "bad", "reason": "refused"}
            await shown(
                worker, lambda s: s.total("pgwake_jobs_released", **refused) > 0
            )
            await connection.execute("delete from refusals")
            row = await ended(connection, bad)

    assert (row["status"], row["attempt"]) == ("failed", 2)
    assert row["errors"][-1]["message"] == "ValueError: broken"
    released = [line for line in lines if line["event"] == "job released"]
    assert released[0].items() >= {"job": bad, "reason": "refused"}.items()


async def test_a_cancelled_job_whose_end_is_refused_is_left_to_the_sweep(
    database: str, connection: Connection
) -> None:
    await connection.execute(REFUSE)
    registry = Registry()

    @registry.job("bad")
    async def bad() -> None:
        await asyncio.sleep(60)

    @registry.job("good")
    async def good() -> None: ...

    cancelled = await insert(connection, "bad")
    async with embedded(database, registry):
        await in_status(connection, cancelled, "running")
        await call(connection, "cancel_job", job_id=cancelled)
        after = await insert(connection, "good")
        assert (await ended(connection, after))["status"] == "completed"

    assert (await job(connection, cancelled))["status"] == "running"
    await connection.execute("delete from refusals")
    assert await sweep(connection, "1 hour") == 1
    assert (await job(connection, cancelled))["status"] == "cancelled"
