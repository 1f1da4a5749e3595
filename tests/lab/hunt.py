"""python -m tests.lab.hunt: is a wake-up lost?

Sessions claim jobs that each wait for an event of their own, or for the end of a job of
their own, while others bring it at that very moment: some before the wait, some during
it, some after, and both in transactions of which some stay open for a while. Whoever
waits though the answer is there, and nothing is to wake it, is lost. Nobody does the
upkeep, which would find it within two minutes. Exit code 1 if one is lost.

--without-locks has each session take an event's lock under a key of its own: then many
are lost, which shows that the hunt would see it.
"""

import asyncio
import json
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from time import monotonic
from typing import Any, TypeAlias

import asyncpg
import typer

from pgwake.database.embedded import EmbeddedServer
from support import create_installed_database

Session: TypeAlias = "asyncpg.Connection[asyncpg.Record]"

SESSIONS = 4  # that wait, and as many that bring what is waited for
INSERT = """
insert into pgwake.jobs (queue, kind, payload)
select 'hunt', 'hunt', jsonb_build_object('n', n) from generate_series(1, $1) as n
"""
INSERT_OTHERS = """
with others as (
  insert into pgwake.jobs (queue, kind)
  select 'others', 'other' from generate_series(1, $1)
  returning id
)
insert into pgwake.jobs (queue, kind, payload)
select 'hunt', 'hunt', jsonb_build_object('n', o.id) from others as o
"""
CLAIM = "select id, lease_id, payload, options from pgwake.claim_jobs('hunt', 1)"
AWAIT_EVENT = "select outcome from pgwake.await_event($1, $2, $3::bigint::text)"
AWAIT_JOB = "select outcome from pgwake.await_job($1, $2, $3)"
EMIT = "select pgwake.emit_event($1::bigint::text)"
CANCEL = "select pgwake.cancel_job($1)"
COMPLETE = "select pgwake.complete_job($1, $2)"
LOST = """
select count(*) from pgwake.waits as w
where not exists (select from pgwake.rechecks as r where r.child_id = w.job_id)
  and (exists (select from pgwake.events as e where e.name = w.event)
    or w.other_id is not null
      and not exists (select from pgwake.jobs_live as j where j.id = w.other_id))
"""
WITHOUT_LOCKS = """
create or replace function pgwake.event_lock_key(event text) returns int
language sql volatile as 'select pg_catalog.pg_backend_pid()'
"""


@dataclass
class Hunt:
    """So many jobs, and what has become of them."""

    url: str
    jobs: int
    for_jobs: bool = False
    patience: float = 10.0
    done: int = 0
    asked: int = 0
    lost: int = 0
    _last: float = 0.0

    async def run(self) -> None:
        """Have all of them wait and go on; return when none has for a while."""
        control = await asyncpg.connect(self.url)
        await control.execute(INSERT_OTHERS if self.for_jobs else INSERT, self.jobs)
        self._last = monotonic()
        wanted: asyncio.Queue[int] = asyncio.Queue()
        await asyncio.gather(
            *(self._session(self._wait, wanted) for _ in range(SESSIONS)),
            *(self._session(self._bring, wanted) for _ in range(SESSIONS)),
        )
        self.lost = await control.fetchval(LOST)
        await control.close()

    async def _session(
        self,
        step: Callable[[Session, "asyncio.Queue[int]"], Awaitable[None]],
        wanted: "asyncio.Queue[int]",
    ) -> None:
        session = await asyncpg.connect(self.url)
        while self.done < self.jobs and monotonic() - self._last < self.patience:
            await step(session, wanted)
        await session.close()

    async def _wait(self, session: Session, wanted: "asyncio.Queue[int]") -> None:
        job = await session.fetchrow(CLAIM)
        if job is None:
            await asyncio.sleep(0.002)
            return
        answer: int = json.loads(job["payload"])["n"]
        if "steps" not in json.loads(job["options"] or "{}") and not await _has_asked(
            session, job["id"]
        ):
            delay = 0.0005 * (answer % 5)
            asyncio.get_running_loop().call_later(delay, wanted.put_nowait, answer)
        self.asked += 1
        question = AWAIT_JOB if self.for_jobs else AWAIT_EVENT
        async with session.transaction():
            pair = job["id"], job["lease_id"]
            outcome = await session.fetchval(question, *pair, answer)
            await asyncio.sleep(0.001 * (answer % 3))
        if outcome == "here":
            await session.execute(COMPLETE, *pair)
            self.done += 1
            self._last = monotonic()

    async def _bring(self, session: Session, wanted: "asyncio.Queue[int]") -> None:
        try:
            answer = await asyncio.wait_for(wanted.get(), 0.5)
        except TimeoutError:
            return
        async with session.transaction():
            await session.execute(CANCEL if self.for_jobs else EMIT, answer)
            if answer % 2:
                await asyncio.sleep(0.001 * (answer % 4))


async def _has_asked(session: Session, job_id: int) -> Any:
    return await session.fetchval(
        "select exists (select from pgwake.waits where job_id = $1)", job_id
    )


def main(
    jobs: int = 4000, *, for_jobs: bool = False, without_locks: bool = False
) -> None:
    """Hunt on a server of its own."""
    with EmbeddedServer(settings={"fsync": "off"}) as server:
        url = create_installed_database(server, "pgwake_hunt")
        if without_locks:
            asyncio.run(_execute(url, WITHOUT_LOCKS))
        hunt = Hunt(url, jobs, for_jobs=for_jobs)
        asyncio.run(hunt.run())
    typer.echo(
        f"{hunt.done} of {jobs} went on, asked {hunt.asked} times, lost {hunt.lost}"
    )
    raise typer.Exit(int(hunt.done != jobs))


async def _execute(url: str, statement: str) -> None:
    session = await asyncpg.connect(url)
    await session.execute(statement)
    await session.close()


if __name__ == "__main__":
    typer.run(main)
