"""Short words for what the tests of sql/ do again and again."""

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Coroutine, Iterator
from typing import Any, TypeAlias, TypeVar
from uuid import uuid4

import asyncpg
import pytest

from support import Connection, wait_for

Row: TypeAlias = dict[str, Any]
T = TypeVar("T")

ABSENT = -1  # an id that no job has


async def call(db: Connection, function: str, **arguments: Any) -> Any:
    """Call a function of pgwake with named arguments; its value, or its first row."""
    return await db.fetchval(*_call("select {}", function, arguments))


async def rows(db: Connection, function: str, **arguments: Any) -> list[Row]:
    """Call a function of pgwake that returns a set."""
    statement = _call("select * from {}", function, arguments)
    return [dict(row) for row in await db.fetch(*statement)]


async def row_count(db: Connection, function: str, **arguments: Any) -> int:
    """Call a function of pgwake, and count what it returns."""
    statement = _call("select count(*) from {}", function, arguments)
    count: int = await db.fetchval(*statement)
    return count


def _call(statement: str, function: str, arguments: dict[str, Any]) -> tuple[Any, ...]:
    named = ", ".join(f"{name} => ${n}" for n, name in enumerate(arguments, 1))
    return statement.format(f"pgwake.{function}({named})"), *arguments.values()


async def insert(db: Connection, kind: Any = "noop", **columns: Any) -> int:
    """Insert a job as a producer does, by plain SQL; its id.

    One that is to wait for nothing that is said waits for a parent that nobody knows.
    """
    columns["kind"] = kind
    if columns.get("status") == "waiting" and "concurrency_key" not in columns:
        columns.setdefault("has_parents_left", True)
    names = ", ".join(columns)
    places = ", ".join(f"${n}" for n in range(1, len(columns) + 1))
    statement = f"insert into pgwake.jobs ({names}) values ({places}) returning id"
    job_id: int = await db.fetchval(statement, *columns.values())
    return job_id


async def flush_statistics(db: Connection) -> None:
    """Have what the session has done so far in PostgreSQL's statistics of tables."""
    if db.get_server_version().major >= 15:
        await db.execute("select pg_stat_force_next_flush()")
        return
    # 14 has a collector, which a session tells at the end of a transaction, and which
    # is asked, no oftener than each half a second; nothing hastens it.
    for _ in range(2):
        await asyncio.sleep(0.6)
        await db.execute("select")


async def insert_many(db: Connection, count: int, queue: str = "default") -> None:
    await db.execute(
        "insert into pgwake.jobs (kind, queue) select 'noop', $2"
        " from generate_series(1, $1::int)",
        count,
        queue,
    )


async def set_queue(db: Connection, name: str = "default", **policy: Any) -> None:
    """Give a queue its policy row, or change it."""
    await _set(db, "queues", name, policy)


async def set_kind(db: Connection, name: str = "noop", **policy: Any) -> None:
    """The same for a kind."""
    await _set(db, "kinds", name, policy)


async def _set(db: Connection, table: str, name: str, policy: dict[str, Any]) -> None:
    policy["name"] = name
    places = ", ".join(f"${n}" for n in range(1, len(policy) + 1))
    changes = ", ".join(f"{column} = excluded.{column}" for column in policy)
    await db.execute(
        f"insert into pgwake.{table} ({', '.join(policy)}) values ({places})"
        f" on conflict (name) do update set {changes}",
        *policy.values(),
    )


async def claim(
    db: Connection, count: int = 1, queue: str = "default", **arguments: Any
) -> list[Row]:
    """Claim with claim_jobs."""
    return await rows(db, "claim_jobs", queue=queue, count=count, **arguments)


async def claimed_ids(db: Connection, count: int = 100, **arguments: Any) -> list[int]:
    """The same; the ids."""
    return [job["id"] for job in await claim(db, count, **arguments)]


async def complete(db: Connection, *jobs: Row) -> None:
    """Complete running jobs."""
    outcomes = await call(db, "complete_jobs", **pairs(*jobs))
    assert outcomes == ["completed"] * len(jobs)


async def child(db: Connection, *parents: int, **columns: Any) -> int:
    """Insert a job that depends on others; its id."""
    return await insert(db, depends_on=list(parents), **columns)


async def running(db: Connection, **columns: Any) -> Row:
    """Insert a job and claim it; the claimed row. Nothing else may be due."""
    job_id = await insert(db, **columns)
    queue = columns.get("queue", "default")
    (job,) = await rows(db, "claim_next_job", queue=queue, worker="w1")
    assert job["id"] == job_id
    return job


async def job_in(db: Connection, state: str, **columns: Any) -> int:
    """Bring a job into a state, as far as there are functions for it; its id."""
    if state in ("waiting", "pending"):
        return await insert(db, status=state, **columns)
    held = await running(db, **columns)
    if state == "completed":
        await call(db, "complete_job", **pair(held))
    elif state == "failed":
        await call(db, "fail_job", **pair(held), retryable=False)
    elif state == "cancelled":
        await call(db, "cancel_job", job_id=held["id"])
        await call(db, "fail_job", **pair(held))
    job_id: int = held["id"]
    assert await status(db, job_id) == state
    return job_id


async def claim_batch(db: Connection, count: int = 1, **arguments: Any) -> Row:
    """Claim with claim_batch: its one row, with the ids of its jobs."""
    arguments = {"queue": "default", "count": count, **arguments}
    ids = "array(select j.id from unnest(jobs) as j) as ids"
    columns = f"{ids}, next_run_at, cursor, claimed_at"
    statement = _call(f"select {columns} from {{}}", "claim_batch", arguments)
    (row,) = await db.fetch(*statement)
    return dict(row)


async def job(db: Connection, job_id: int) -> Row:
    """The row of a job, wherever it lies."""
    row = await db.fetchrow("select * from pgwake.jobs where id = $1", job_id)
    assert row is not None, f"job {job_id} is gone"
    return dict(row)


async def status(db: Connection, job_id: int) -> str:
    found: str = (await job(db, job_id))["status"]
    return found


async def leaf(db: Connection, job_id: int) -> str:
    """The table that a job lies in."""
    name: str = await db.fetchval(
        "select tableoid::regclass::text from pgwake.jobs where id = $1", job_id
    )
    return name.removeprefix("pgwake.")


async def set_clock(db: Connection, offset: str) -> None:
    """Move the queue's clock, as this session sees it."""
    await db.execute("select set_config('pgwake.clock_offset', $1, false)", offset)


@contextlib.contextmanager
def refused(
    code: str, by: str | None = None
) -> Iterator[pytest.ExceptionInfo[asyncpg.PostgresError]]:
    """Expect an error by its SQLSTATE, perhaps of a named constraint."""
    with pytest.raises(asyncpg.PostgresError) as caught:
        yield caught
    assert caught.value.sqlstate == code, caught.value
    assert caught.value.constraint_name == by, caught.value
    # Every error of pgwake's own says what to do.
    assert caught.value.hint or not code.startswith("PW")


async def waits(
    db: Connection, task: "asyncio.Task[Any]", observer: Connection
) -> None:
    """Wait until the task's statement, on `connection`, waits for a lock."""
    pid = db.get_server_pid()

    async def is_blocked() -> bool:
        assert not task.done(), f"did not wait: {task}"
        blocked: bool = await observer.fetchval(
            "select cardinality(pg_blocking_pids($1)) > 0", pid
        )
        return blocked

    await wait_for(is_blocked)


@contextlib.asynccontextmanager
async def blocking(
    first: Connection, second: Connection, statement: Coroutine[Any, Any, T]
) -> AsyncIterator["asyncio.Task[T]"]:
    """Have a statement of `second` wait for what the block does on `first`.

    It begins when the block ends, and when it waits the first one commits. Awaiting
    what is yielded gives its answer.
    """
    is_done = asyncio.Event()

    async def follow() -> T:
        await is_done.wait()
        return await statement

    async with first.transaction():
        task = asyncio.create_task(follow())
        yield task
        is_done.set()
        await waits(second, task, first)


@contextlib.asynccontextmanager
async def rolled_back(db: Connection, **options: Any) -> AsyncIterator[None]:
    """Do what the block does in a transaction that is rolled back at its end."""
    transaction = db.transaction(**options)
    await transaction.start()
    yield
    await transaction.rollback()


@contextlib.asynccontextmanager
async def row_locked(db: Connection, job_id: int) -> AsyncIterator[None]:
    """Hold the lock of a job's row, in a transaction as long as the block."""
    async with db.transaction():
        await db.execute("select from pgwake.jobs where id = $1 for update", job_id)
        yield


def pairs(*jobs: Row) -> dict[str, Any]:
    """The parallel arrays that the batch functions take."""
    return {
        "job_ids": [job["id"] for job in jobs],
        "lease_ids": [job["lease_id"] for job in jobs],
    }


def pair(job: Row) -> dict[str, Any]:
    """The fence that the functions for one job take."""
    return {"job_id": job["id"], "lease_id": job["lease_id"]}


class Listener:
    """What a session that LISTENs hears, without waiting for time to pass."""

    def __init__(self, db: Connection, channel: str) -> None:
        self._connection = db
        self._channel = channel
        self._payloads: list[str] = []
        self._arrived = asyncio.Event()

    @classmethod
    async def start(cls, db: Connection, channel: str = "pgwake") -> "Listener":
        listener = cls(db, channel)
        await db.add_listener(channel, listener._hear)
        return listener

    @classmethod
    async def with_notify_locks(cls, db: Connection, *queues: str) -> "Listener":
        """Like a worker that sleeps on these queues."""
        listener = await cls.start(db)
        for queue in queues:
            assert await call(db, "park", queue=queue)
        return listener

    def _hear(
        self, _connection: object, _pid: int, _channel: str, payload: object
    ) -> None:
        self._payloads.append(str(payload))
        self._arrived.set()

    async def heard(self) -> list[str]:
        """What was sent since the last call, by transactions that have committed."""
        # Notifications come in the order of commits: after our own nothing is missing.
        mark = str(uuid4())
        await self._connection.execute("select pg_notify($1, $2)", self._channel, mark)
        while mark not in self._payloads:
            self._arrived.clear()
            await self._arrived.wait()
        payloads, self._payloads = self._payloads, []
        payloads.remove(mark)
        return payloads

    async def events(self) -> list[Row]:
        """The same for status events, which are JSON."""
        return [json.loads(payload) for payload in await self.heard()]


async def put_off_sweep(db: Connection) -> None:
    """Put the next sweep off by a minute, if it is put off at all.

    It is by twenty times what the last one took, which may be less than what a busy
    machine takes until the next statement.
    """
    await db.execute(
        "select set_config('pgwake.sweep_at',"
        " (clock_timestamp() + interval '59 s')::text, false)"
        " where current_setting('pgwake.sweep_at', true) <> ''"
    )


async def sweep(db: Connection, offset: str | None = None) -> int:
    """Sweep, having moved the clock if an offset is given; how many jobs it took."""
    if offset is not None:
        await set_clock(db, offset)
    swept = await rows(db, "sweep_expired_leases")
    return sum(row["job_count"] for row in swept)
