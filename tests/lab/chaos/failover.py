"""python -m tests.lab.chaos.failover: the leader dies, hands over, or falls silent.

Three PostgreSQL servers under Patroni (cluster.py), one supervisor with two
worker processes, and producers that insert 500 jobs a second, five in a transaction,
all by URLs with three hosts. One job in a thousand takes 20 s, so that some ten run at
each fault. Each round has three:

- kill -9 of the leader's Patroni, server and backends, its walsenders stopped half a
  second before; it is started again 20 s after another leads,
- a switchover,
- SIGSTOP of all of the leader; it goes on 20 s after another leads, with its sessions.

The old leader is a standby before the next one. At the end the database, the producers
and the handlers must tell the same story: each job whose commit was answered is there
and completed, none has failed, and a job ran more than once only if the database counts
a crash of it. With --synchronous off it is told what was lost, and that is no failure.
"""

import asyncio
import json
import os
import random
import subprocess
import sys
import time
from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from itertools import pairwise
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated, Literal

import asyncpg
import typer

from pgwake.database.connection import FAULTS
from pgwake.database.install import install

from .cluster import CHECKOUT, LOOP_WAIT, RETRY_TIMEOUT, TTL, Cluster, until
from .run import executions

WORKER = [
    *("-m", "pgwake", "run", "--import", "tests.lab.chaos.handlers"),
    *("--queue", "failover:20", "--processes", "2", "--http-port", "0"),
]
LEASE = 30
PRODUCERS = 10
BATCH = 5
CALM_SECONDS = 10.0  # before each fault, with all nodes well
ALONE_SECONDS = 20.0  # that another leads, until the old leader may come back
RATE_SECONDS = 2.0  # over which a rate is measured
ANSWER_SECONDS = 3.0  # that a producer waits for its commit
CONNECT_SECONDS = 1.5

INSERT = """
insert into pgwake.jobs (queue, kind, payload)
select 'failover', 'chaos', jsonb_build_object(
  'serial', n, 'seconds', case when n % 1000 = 0 then 20 else 0.01 end)
from unnest($1::bigint[]) as n
"""
ROWS = """
select (payload ->> 'serial')::bigint as number, id, status, crash_count,
  extract(epoch from finished_at)::float8 as finished_at
from pgwake.jobs where queue = 'failover'
"""
IS_LEFT = "select exists (select from pgwake.jobs_live where queue = 'failover')"

Synchronous = Literal["on", "strict", "off"]
Kind = Literal["kill -9", "switchover", "SIGSTOP"]
KINDS: tuple[Kind, ...] = ("kill -9", "switchover", "SIGSTOP")


@dataclass(slots=True)
class Fault:
    """One fault, and what followed. All times are seconds after `at`.

    Attributes:
        kind: What was done.
        leader: Who led.
        successor: Who led then.
        at: When, in seconds since 1970.
        back_at: When the old leader was started again, or let go on; None: it was
            never away.
        standby: When it streamed from its successor.
        inserts: When the first commit was answered after the longest time without one.
        completions: The same of completed jobs.
        rate: When completions came at 90% of the rate before the fault again.
    """

    kind: Kind
    leader: str
    at: float
    successor: str = ""
    back_at: float | None = None
    standby: float | None = None
    inserts: float | None = None
    completions: float | None = None
    rate: float | None = None

    @property
    def is_over(self) -> bool:
        """Whether producers and worker came back, and before the old leader did."""
        times = (self.inserts, self.completions)
        return all(t is not None and t < (self.back_at or t + 1) for t in times)


@dataclass(slots=True)
class Row:
    """What the database has of a job."""

    job_id: int
    status: str
    crash_count: int
    finished_at: float | None


@dataclass(slots=True)
class Account:
    """What came of the jobs, by the numbers that their producers gave them.

    Attributes:
        acknowledged: How many were in a commit that was answered.
        lost: How many of these the database does not have.
        unanswered: How many were in a commit that was not answered.
        unanswered_found: How many of these the database has all the same.
        completed: How many the database has as completed.
        others: How many it has in any other state.
        doubled: Numbers that it has more than once.
        ids_repeated: Ids that two numbers had, one of them before a failover.
        executions: How often a handler began.
        never_run: How many it has as completed that no handler has begun.
        repeated: How many jobs ran more than once.
        unexplained: How many of these without a crash that the database counts.
        crashed: How many jobs it counts a crash of: lease over, or claim unanswered.
    """

    acknowledged: int
    lost: int
    unanswered: int
    unanswered_found: int
    completed: int
    others: int
    doubled: int
    ids_repeated: int
    executions: int
    never_run: int
    repeated: int
    unexplained: int
    crashed: int

    def accounts_for_every_job(self, *, is_synchronous: bool) -> bool:
        """Whether nothing was lost, failed, doubled or is unexplained."""
        wrong = [self.others, self.doubled, self.never_run]
        if is_synchronous:
            wrong += [self.lost, self.unexplained, self.ids_repeated]
        return not any(wrong)


def balance(
    acknowledged: set[int],
    unanswered: set[int],
    rows: Sequence[tuple[int, Row]],
    executions: Sequence[tuple[int, int]],
) -> Account:
    """Draw up the account.

    Args:
        acknowledged: The numbers whose commit was answered.
        unanswered: The numbers whose commit was not.
        rows: The database's, each with its number.
        executions: The handlers', each its number and its job's id.
    """
    found = dict(rows)
    runs = Counter(number for number, _ in executions)
    repeated = {number for number, count in runs.items() if count > 1}
    completed = {n for n, row in found.items() if row.status == "completed"}
    numbers_of: dict[int, set[int]] = {}
    for number, job_id in executions:
        numbers_of.setdefault(job_id, set()).add(number)
    return Account(
        acknowledged=len(acknowledged),
        lost=len(acknowledged - found.keys()),
        unanswered=len(unanswered),
        unanswered_found=len(unanswered & found.keys()),
        completed=len(completed),
        others=len(found) - len(completed),
        doubled=len(rows) - len(found),
        ids_repeated=sum(len(numbers) > 1 for numbers in numbers_of.values()),
        executions=len(executions),
        never_run=len(completed - runs.keys()),
        repeated=len(repeated),
        unexplained=sum(
            number not in found or found[number].crash_count == 0 for number in repeated
        ),
        crashed=sum(row.crash_count > 0 for row in found.values()),
    )


def resumed_at(times: Sequence[float], since: float, until: float) -> float | None:
    """Return the end of the longest gap in sorted times that a fault has made.

    Args:
        times: When something happened.
        since: When the fault was.
        until: When the next one was; nothing counts that is later.
    """
    inside = times[bisect_left(times, since) : bisect_right(times, until)]
    gaps = [(after - before, after) for before, after in pairwise([since, *inside])]
    return max(gaps)[1] if gaps else None


def rate_back_at(
    times: Sequence[float], since: float, resumed: float, until: float
) -> float | None:
    """Return when as many came as 90% of those before a fault; None: not till then."""
    before = _count(times, since - RATE_SECONDS, since)
    start = bisect_left(times, resumed)
    for at in times[start : bisect_right(times, until - RATE_SECONDS)]:
        if _count(times, at, at + RATE_SECONDS) >= 0.9 * before:
            return at
    return None


def _count(times: Sequence[float], since: float, until: float) -> int:
    return bisect_left(times, until) - bisect_left(times, since)


@dataclass(slots=True)
class Producers:
    """They insert at a steady rate, and never the same number twice.

    Attributes:
        acknowledged: The numbers of answered commits, with when.
        unanswered: The numbers of all others that were tried.
    """

    cluster: Cluster
    rate: int
    acknowledged: dict[int, float] = field(default_factory=dict)
    unanswered: set[int] = field(default_factory=set)
    _number: int = 0
    _stop: asyncio.Event = field(default_factory=asyncio.Event)

    def stop(self) -> None:
        """Let run() end."""
        self._stop.set()

    async def run(self) -> None:
        """Insert until stopped."""
        async with asyncio.TaskGroup() as tasks:
            for _ in range(PRODUCERS):
                tasks.create_task(self._produce())

    async def _produce(self) -> None:
        pause = PRODUCERS * BATCH / self.rate
        due = time.monotonic() + random.uniform(0, pause)  # noqa: S311
        connection: asyncpg.Connection[asyncpg.Record] | None = None
        while not self._stop.is_set():
            await asyncio.sleep(max(due - time.monotonic(), 0))
            due = max(due + pause, time.monotonic())  # what was missed is not made up
            if connection is None:
                connection = await self._connect()
                if connection is None:
                    continue
            numbers = list(range(self._number, self._number + BATCH))
            self._number += BATCH
            try:
                await connection.execute(INSERT, numbers, timeout=ANSWER_SECONDS)
            except FAULTS:
                self.unanswered.update(numbers)
                connection.terminate()
                connection = None
            else:
                self.acknowledged.update(dict.fromkeys(numbers, time.time()))
        if connection is not None:
            connection.terminate()

    async def _connect(self) -> "asyncpg.Connection[asyncpg.Record] | None":
        # In another order each time, or one that accepts and never answers would be
        # asked first for ever.
        names = random.sample(list(self.cluster.nodes), 3)
        with suppress(*FAULTS):
            return await asyncpg.connect(
                self.cluster.url_of(*names), timeout=CONNECT_SECONDS
            )
        return None


class Worker:
    """The `pgwake run` that nobody helps."""

    def __init__(self, url: str, folder: Path) -> None:
        self._journal = folder / "journal"
        self.log = folder / "worker.log"
        environment = {
            **os.environ,
            "PGWAKE_DATABASE_URL": url,
            "PGWAKE_CHAOS_JOURNAL": str(self._journal),
            "PGWAKE_LEASE": str(LEASE),
            "PGWAKE_LOG_FORMAT": "json",
            "PGWAKE_LOG_JOBS_PER_SECOND": "0",
        }
        with self.log.open("ab") as output:
            self._process = subprocess.Popen(
                [sys.executable, *WORKER], cwd=CHECKOUT, env=environment, stderr=output
            )

    def pids(self) -> list[int]:
        """Return the supervisor's and its children's process ids."""
        pid = self._process.pid
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text()
        return [pid, *map(int, children.split())]

    def stop(self) -> int:
        """Stop it as a deploy would; its exit code."""
        self._process.terminate()
        return self._process.wait(timeout=90)

    def executions(self) -> list[tuple[int, int]]:
        """Return what the handlers have written: a job's number and its id."""
        return [(one.serial, one.job_id) for one in executions(self._journal)]

    def events(self) -> dict[str, int]:
        """Return the events that it has logged, debug and info apart."""
        events: Counter[str] = Counter()
        for line in self.log.read_text().splitlines():
            with suppress(ValueError):
                entry = json.loads(line)
                if entry["level"] not in ("debug", "info"):
                    events[f"{entry['level']}: {entry['event']}"] += 1
        return dict(events.most_common())


@dataclass(slots=True)
class Report:
    """All that is printed."""

    synchronous: Synchronous
    version: str
    faults: list[Fault]
    account: Account
    worker_pids: tuple[list[int], list[int]]  # before and after
    worker_exit_code: int
    worker_events: dict[str, int]

    @property
    def accounts_for_every_job(self) -> bool:
        """Whether the account does, every job came, and the worker was left alone."""
        return (
            self.account.accounts_for_every_job(
                is_synchronous=self.synchronous != "off"
            )
            and self.worker_pids[0] == self.worker_pids[1]
            and self.worker_exit_code == 0
            and all(fault.is_over for fault in self.faults)
        )


async def run(
    folder: Path,
    *,
    rounds: int,
    rate: int,
    synchronous: Synchronous,
    kinds: tuple[Kind, ...],
) -> Report:
    """Do it in a folder; the report."""
    async with Cluster(folder, synchronous) as cluster:
        await install(cluster.url)
        worker = Worker(cluster.url, folder)
        producers = Producers(cluster, rate)
        producing = asyncio.create_task(producers.run())
        try:
            await until(lambda: _is_running(worker), "a job has run")
            pids = worker.pids()
            faults = []
            for kind in kinds * rounds:
                await cluster.until_healthy()
                await asyncio.sleep(CALM_SECONDS)
                faults.append(await _do(cluster, kind))
                print(".", end="", file=sys.stderr, flush=True)  # noqa: T201
            await cluster.until_healthy()
            await asyncio.sleep(CALM_SECONDS)
            producers.stop()
            await producing
            connection = await asyncpg.connect(cluster.url)
            await until(lambda: _is_empty(connection), "all jobs have ended")
            rows = await connection.fetch(ROWS)
            await connection.close()
            pids_then = worker.pids()
        finally:
            producing.cancel()
            code = worker.stop()
    account = balance(
        set(producers.acknowledged),
        producers.unanswered,
        [(row[0], Row(*row[1:])) for row in rows],
        worker.executions(),
    )
    commits = sorted(producers.acknowledged.values())
    ends = sorted(row[4] for row in rows if row[4] is not None)
    _time(faults, commits, ends)
    return Report(
        synchronous,
        cluster.version,
        faults,
        account,
        (pids, pids_then),
        code,
        worker.events(),
    )


async def _is_running(worker: Worker) -> bool:
    return bool(worker.executions())


async def _is_empty(connection: "asyncpg.Connection[asyncpg.Record]") -> bool:
    return not await connection.fetchval(IS_LEFT)


async def _do(cluster: Cluster, kind: Kind) -> Fault:
    """Do one fault, and wait until the old leader is a standby."""
    leader = await cluster.leader()
    assert leader is not None
    fault = Fault(kind, leader, time.time())

    async def is_followed() -> bool:
        fault.successor = await cluster.leader() or ""
        return fault.successor not in ("", leader)

    if kind == "switchover":
        await cluster.switch_over()
    elif kind == "kill -9":
        await cluster.kill(leader)
    else:
        cluster.freeze(leader)
    await until(is_followed, f"another than {leader} leads")
    if kind != "switchover":
        await asyncio.sleep(ALONE_SECONDS)
        (cluster.start if kind == "kill -9" else cluster.thaw)(leader)
        fault.back_at = time.time() - fault.at
    await cluster.until_standby(leader)
    fault.standby = time.time() - fault.at
    return fault


def _time(
    faults: Sequence[Fault], commits: Sequence[float], ends: Sequence[float]
) -> None:
    """Fill in when things came back."""
    nexts = [fault.at for fault in faults[1:]] + [time.time()]
    for fault, following in zip(faults, nexts, strict=True):
        inserted = resumed_at(commits, fault.at, following)
        completed = resumed_at(ends, fault.at, following)
        if inserted is not None:
            fault.inserts = inserted - fault.at
        if completed is not None:
            fault.completions = completed - fault.at
            back = rate_back_at(ends, fault.at, completed, following)
            fault.rate = None if back is None else back - fault.at


def _print(report: Report) -> None:
    print(  # noqa: T201
        f"PostgreSQL {report.version}, synchronous_mode {report.synchronous}, ttl {TTL}"
        f" s, loop_wait {LOOP_WAIT} s, retry_timeout {RETRY_TIMEOUT} s, lease {LEASE} s"
    )
    print(  # noqa: T201
        "fault       leader  insert  completed  90% rate  back up  standby"
    )
    for fault in report.faults:
        times = [fault.inserts, fault.completions, fault.rate]
        words = ["-" if t is None else f"{t:.1f}" for t in times]
        words += [f"{t:.1f}" if t else "-" for t in (fault.back_at, fault.standby)]
        print(  # noqa: T201
            f"{fault.kind:11} {fault.leader} > {fault.successor}",
            "{:>8} {:>10} {:>9} {:>8} {:>8}".format(*words),
        )
    for name, value in asdict(report.account).items():
        print(f"{name:17} {value}")  # noqa: T201
    before, after = report.worker_pids
    print(f"worker processes  {before}, {after} at the end")  # noqa: T201
    for event, count in report.worker_events.items():
        print(f"{count:6} {event}")  # noqa: T201


def main(
    rounds: int = 1,
    rate: Annotated[int, typer.Option(help="Jobs a second.")] = 500,
    synchronous: Annotated[Synchronous, typer.Option()] = "on",
    fault: Annotated[Kind | None, typer.Option(help="Only this one.")] = None,
    keep: Annotated[Path | None, typer.Option(help="Where logs go.")] = None,
    as_json: Annotated[bool, typer.Option("--json")] = False,
) -> None:
    """Run it and print the account; exit code 1 if a job is missing in it."""
    with TemporaryDirectory(prefix="pgwake-failover-") as name:
        folder = Path(name)
        try:
            report = asyncio.run(
                run(
                    folder,
                    rounds=rounds,
                    rate=rate,
                    synchronous=synchronous,
                    kinds=KINDS if fault is None else (fault,),
                )
            )
        finally:
            if keep is not None:
                keep.mkdir(parents=True, exist_ok=True)
                for log in [*folder.glob("*/log"), folder / "worker.log"]:
                    target = "-".join(log.relative_to(folder).parts)
                    (keep / target).write_bytes(log.read_bytes())
    if as_json:
        answer = {"accounts_for_every_job": report.accounts_for_every_job}
        print(json.dumps(asdict(report) | answer, indent=2))  # noqa: T201
    else:
        _print(report)
        is_balanced = report.accounts_for_every_job
        verdict = "every job is" if is_balanced else "NOT EVERY JOB IS"
        print(f"{verdict} accounted for")  # noqa: T201
    sys.exit(not report.accounts_for_every_job)


if __name__ == "__main__":
    typer.run(main)
