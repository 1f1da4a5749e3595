"""The database beside its model: what the rules of test_state_machine.py stand on."""

from collections import Counter
from typing import Any, ClassVar
from uuid import UUID, uuid4

import psycopg
import pytest
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant

from support.sql.model import LIVE, Job

INSERT = """
insert into pgwake.jobs
  (kind, queue, attempt, max_attempts, crash_count, bounce_count, unique_key)
values ('k', %s, %s, %s, %s, %s, %s) returning id
"""
ROWS = """
select id, queue, priority, status, attempt, crash_count, bounce_count, unique_key,
  round(extract(epoch from run_at - now()), 3)::float8, lease_id,
  round(extract(epoch from lease_expires_at - now()), 3)::float8,
  cancel_requested_at is not null, coalesce(jsonb_array_length(errors), 0)
from pgwake.jobs order by id
"""
RUN_AT = """
select round(extract(epoch from run_at - now()), 3)::float8 from pgwake.jobs
where id = %s
"""
LEASE_END = RUN_AT.replace("run_at", "lease_expires_at")
# What there is, and what get_queue_stats says of queues that have anything.
RECOUNTED = """
select jsonb_agg(c order by queue) from (
  select queue,
    count(*) filter (where status = 'pending' and run_at <= pgwake.now()) as pending,
    count(*) filter (where status = 'pending' and run_at > pgwake.now()) as scheduled,
    count(*) filter (where status = 'waiting') as waiting,
    count(*) filter (where status = 'running') as running,
    count(*) filter (where status = 'completed') as completed,
    count(*) filter (where status = 'failed') as failed,
    count(*) filter (where status = 'cancelled') as cancelled
  from pgwake.jobs group by queue) as c
"""
COUNTS = """
select jsonb_agg(c order by queue) from (
  select queue, pending_count as pending, scheduled_count as scheduled,
    waiting_count as waiting, running_count as running, completed_count as completed,
    failed_count as failed, cancelled_count as cancelled
  from pgwake.get_queue_stats()
  where pending_count + scheduled_count + waiting_count + running_count
    + completed_count + failed_count + cancelled_count > 0) as c
"""
TOTALS = """
select sum(enqueued_total)::int, sum(completed_total)::int, sum(failed_total)::int
from pgwake.get_queue_stats()
"""


class Comparison(RuleBasedStateMachine):
    """One transaction an example: its clock stands still but for the offset."""

    connection: ClassVar[psycopg.Connection]
    seen: ClassVar[Counter[str]]  # what happened in all examples

    def __init__(self) -> None:
        super().__init__()
        self.jobs: dict[int, Job] = {}
        self.now = 0.0
        self.totals = Counter[str]()

    @initialize()
    def begin(self) -> None:
        """Some jobs that have been through something already."""
        self.connection.execute("begin")
        for queue, key in (("q1", "a"), ("q2", "b")):
            self.connection.execute(
                "insert into pgwake.queues (name, backoff_cap) values (%s, '0')",
                [queue],
            )
            for crash_count in range(5):
                self.insert(Job(0, queue, 0, 0, None, None, crash_count=crash_count))
            self.insert(Job(0, queue, 0, 0, 2, None, attempt=1, bounce_count=18))
            self.insert(Job(0, queue, 0, 0, None, key))

    def insert(self, job: Job) -> None:
        counts = (job.attempt, job.max_attempts, job.crash_count, job.bounce_count)
        job.id = self.one(INSERT, job.queue, *counts, job.unique_key)
        self.add(job)

    def add(self, job: Job) -> None:
        self.jobs[job.id] = job
        self.totals["enqueued"] += 1

    def teardown(self) -> None:
        self.connection.rollback()

    def one(self, statement: str, *arguments: object) -> Any:
        row = self.connection.execute(statement, arguments).fetchone()
        assert row is not None
        return row if len(row) > 1 else row[0]

    def code_of(self, statement: str, *arguments: object) -> str | None:
        """Run a statement that may be refused; the SQLSTATE, or None."""
        try:
            with self.connection.transaction():
                self.connection.execute(statement, arguments)
        except psycopg.Error as error:
            return error.sqlstate
        return None

    def pick(self, number: int, *states: str) -> Job:
        """One of the jobs; mostly one in one of these states, if there is any."""
        jobs = list(self.jobs.values())
        fitting = [job for job in jobs if job.status in states]
        if fitting and number % 5:
            jobs = fitting
        return jobs[number // 5 % len(jobs)]

    def pick_lease(self, job: Job, number: int) -> UUID:
        """Mostly the present lease; now and then an old one, or a stranger's."""
        if job.lease and number % 5:
            return job.lease
        leases = [*job.past_leases, uuid4()]
        return leases[number // 5 % len(leases)]

    def settle(self) -> None:
        """Have children checked that have a recheck: by the upkeep, in two seconds.

        A claim would do it too, but its clock goes on while it does. A parent that
        completes has checked its children.
        """
        if self.one("select exists (select from pgwake.rechecks)"):
            self.set_clock(2)
            self.one("select pgwake.maintain('children')")
            assert not self.one("select exists (select from pgwake.rechecks)")
        for job in sorted(self.jobs.values(), key=lambda job: job.id):
            if job.status != "waiting":
                continue
            job.see_parents()
            if job.status == "pending":
                run_at = self.one(RUN_AT, job.id)
                assert run_at >= max(job.run_at, self.now)
                assert run_at == job.run_at or run_at < self.now + 60
                job.run_at = run_at
            self.seen[f"{job.status} by its parents"] += 1

    def see_lease(self, job: Job) -> None:
        """Take over when its lease ends: leases count by the clock, which goes on."""
        lease_end = self.one(LEASE_END, job.id)
        assert job.lease_expires_at <= lease_end < job.lease_expires_at + 300
        job.lease_expires_at = lease_end

    def set_clock(self, seconds: float) -> None:
        self.now += seconds
        self.one("select set_config('pgwake.clock_offset', %s, true)", f"{self.now} s")

    def live_with_key(self, key: str | None) -> Job | None:
        same = [j for j in self.jobs.values() if j.unique_key == key and key]
        return next((j for j in same if j.status in LIVE), None)

    def move(self, job: Job, before: str, outcome: str) -> None:
        """Count what became of a job."""
        self.seen[outcome] += 1
        if before in LIVE and job.status not in LIVE:
            self.totals[job.status] += 1

    @invariant()
    def all_is_as_the_model_says(self) -> None:
        # Asked in one round trip: most of the test's time went into waiting for four.
        with self.connection.pipeline():
            rows, recounted, counts, totals = (
                self.connection.execute(statement)
                for statement in (ROWS, RECOUNTED, COUNTS, TOTALS)
            )
        self.rows_are_as_the_model_says(rows.fetchall())
        assert recounted.fetchone() == counts.fetchone()
        ended = ("enqueued", "completed", "failed")
        assert totals.fetchone() == tuple(self.totals[name] for name in ended)

    def rows_are_as_the_model_says(self, rows: list[tuple[Any, ...]]) -> None:
        assert rows == [
            (
                *(job.id, job.queue, job.priority, job.status, job.attempt),
                *(job.crash_count, job.bounce_count, job.unique_key),
                pytest.approx(job.run_at),
                # a forced end has a lease that nobody knows
                *((job.lease,) if job.status in LIVE else (row[9],)),
                job.lease_expires_at if job.status == "running" else None,
                *(job.is_cancel_requested, job.error_count),
            )
            for job, row in zip(self.jobs.values(), rows, strict=True)
        ]
