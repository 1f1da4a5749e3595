"""The functions, called at random, do what the model says."""

import psycopg
import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import precondition, rule, run_state_machine_as_test

from sql.comparison import Comparison
from sql.model import BACKOFF, LIVE, Job, claimable, next_run_at

QUEUES = st.sampled_from(["q1", "q2"])
WORKERS = st.sampled_from(["w1", "w2"])
PICKS = st.integers(0, 99)
KEYS = st.sampled_from([None, None, "a", "b"])
SECONDS = st.sampled_from([0, 60, 3600])

CLAIM = """
select array(select j.id from unnest(b.jobs) as j), b.jobs[1].lease_id,
  round(extract(epoch from b.next_run_at - now()), 3)::float8
from pgwake.claim_batch(%s, %s, %s, lease => %s::int * interval '1 s', suspects => %s) b
"""


class Machine(Comparison):
    """Each function is a rule."""

    @rule(
        queue=QUEUES,
        priority=st.integers(-1, 1),
        delay=SECONDS,
        key=KEYS,
        on_conflict=st.sampled_from(["return", "replace", "raise"]),
        max_attempts=st.sampled_from([None, 1, 2]),
    )
    def enqueue(
        self,
        queue: str,
        priority: int,
        delay: int,
        key: str | None,
        on_conflict: str,
        max_attempts: int | None,
    ) -> None:
        call = (
            "select pgwake.enqueue('k', queue => %s, priority => %s, run_at =>"
            " pgwake.now() + %s * interval '1 s', unique_key => %s, max_attempts => %s,"
            " on_conflict => %s)"
        )
        arguments = [queue, priority, delay, key, max_attempts, on_conflict]
        taken = self.live_with_key(key)
        if taken and on_conflict == "raise":
            assert self.code_of(call, *arguments) == "PW005"
            return
        job_id = self.one(call, *arguments)
        if taken and on_conflict == "return":
            assert job_id == taken.id
        elif taken and taken.status == "pending":
            assert job_id == taken.id
            taken.queue, taken.priority = queue, priority
            taken.run_at, taken.max_attempts = self.now + delay, max_attempts
        else:
            if taken:
                taken.unique_key = None
            run_at = self.now + delay
            job = Job(job_id, queue, priority, run_at, max_attempts, key)
            self.jobs[job_id] = job
            self.totals["enqueued"] += 1

    @rule(
        queue=QUEUES,
        count=st.integers(1, 4),
        worker=WORKERS,
        lease=st.sampled_from([60, 300]),
        suspects=st.booleans(),
    )
    def claim(
        self, queue: str, count: int, worker: str, lease: int, suspects: bool
    ) -> None:
        jobs = [job for job in self.jobs.values() if job.queue == queue]
        expected = claimable(jobs, count, self.now, suspects=suspects)
        ids, lease_id, answer = self.one(CLAIM, queue, count, worker, lease, suspects)
        assert ids == [job.id for job in expected]
        for job in expected:
            job.claim(lease_id, worker, self.now + lease)
        left = next_run_at(jobs, suspects=suspects) if len(ids) < count else None
        assert answer == (None if left is None else pytest.approx(left))

    @precondition(lambda self: self.jobs)
    @rule(pick=PICKS, lease=PICKS)
    def complete(self, pick: int, lease: int) -> None:
        job = self.pick(pick)
        lease_id, before = self.pick_lease(job, lease), job.status
        call = "select pgwake.complete_jobs(array[%s::bigint], array[%s])"
        assert self.one(call, job.id, lease_id) == [job.complete(lease_id)]
        self.ended(before, job)

    @precondition(lambda self: self.jobs)
    @rule(pick=PICKS, lease=PICKS, retryable=st.booleans(), retry_in=SECONDS)
    def fail(self, pick: int, lease: int, retryable: bool, retry_in: int) -> None:
        job = self.pick(pick)
        lease_id, before = self.pick_lease(job, lease), job.status
        outcome = self.one(
            "select pgwake.fail_jobs(array[%s::bigint], array[%s], retryables =>"
            " array[%s], retry_ins => array[nullif(%s, 0) * interval '1 s'])",
            *(job.id, lease_id, retryable, retry_in),
        )
        run_at = self.now + (retry_in or BACKOFF)
        assert outcome == [job.fail(lease_id, retryable=retryable, run_at=run_at)]
        self.ended(before, job)

    @precondition(lambda self: self.jobs)
    @rule(
        pick=PICKS,
        lease=PICKS,
        reason=st.sampled_from(["unstarted", "shutdown", "unknown_kind"]),
    )
    def release(self, pick: int, lease: int, reason: str) -> None:
        job = self.pick(pick)
        lease_id = self.pick_lease(job, lease)
        call = "select pgwake.release_jobs(array[%s::bigint], array[%s], %s)"
        outcome = self.one(call, job.id, lease_id, reason)
        assert outcome == [job.release(lease_id, reason, self.now)]

    @precondition(lambda self: self.jobs)
    @rule(pick=PICKS, lease=PICKS)
    def extend(self, pick: int, lease: int) -> None:
        job = self.pick(pick)
        lease_id = self.pick_lease(job, lease)
        call = "select pgwake.extend_leases(array[%s::bigint], array[%s])"
        assert self.one(call, job.id, lease_id) == [
            job.extend(lease_id, self.now + 300)
        ]

    @precondition(lambda self: self.jobs)
    @rule(pick=PICKS)
    def cancel(self, pick: int) -> None:
        job = self.pick(pick)
        assert self.one("select pgwake.cancel_job(%s)", job.id) == job.cancel()

    @precondition(lambda self: self.jobs)
    @rule(pick=PICKS)
    def retry(self, pick: int) -> None:
        job, code = self.pick(pick), None
        if job.status not in ("failed", "cancelled"):
            code = "PW003"
        elif self.live_with_key(job.unique_key):
            code = "PW005"
        assert self.code_of("select pgwake.retry_job(%s)", job.id) == code
        if code is None:
            job.retry(self.now)

    @precondition(lambda self: self.jobs)
    @rule(pick=PICKS, end=st.sampled_from(["complete", "fail"]))
    def force(self, pick: int, end: str) -> None:
        job = self.pick(pick)
        code = self.code_of(f"select pgwake.force_{end}_job(%s, 'x')", job.id)
        assert code == (None if job.status in LIVE else "PW001")
        if code is None:
            job.force("completed" if end == "complete" else "failed")
            self.totals[job.status] += 1

    @rule(seconds=st.sampled_from([1, 61, 301, 3600]))
    def wait(self, seconds: int) -> None:
        self.now += seconds
        self.one("select set_config('pgwake.clock_offset', %s, true)", f"{self.now} s")

    def crash(self, crashed: list[Job], statement: str, *arguments: object) -> None:
        assert self.one(statement, *arguments) == len(crashed)
        for job in crashed:
            job.crash(self.now)
            self.totals[job.status] += 1

    @rule()
    def sweep(self) -> None:
        running = [job for job in self.jobs.values() if job.status == "running"]
        expired = [job for job in running if job.lease_expires_at < self.now]
        self.crash(expired, "select (pgwake.maintain('sweep') ->> 'sweep')::int")

    @rule(worker=WORKERS)
    def worker_dies(self, worker: str) -> None:
        running = [job for job in self.jobs.values() if job.status == "running"]
        held = [job for job in running if job.worker == worker]
        statement = "select coalesce(sum(job_count), 0)::int from pgwake."
        self.crash(held, f"{statement}release_worker_jobs(%s)", worker)

    @rule()
    def upkeep(self) -> None:
        self.one("select pgwake.maintain('fold') || pgwake.maintain('retention')")


@pytest.mark.timeout(90)
def test_any_order_of_calls_does_what_the_model_says(database: str) -> None:
    with psycopg.connect(database) as connection:
        machine = type("BoundMachine", (Machine,), {"connection": connection})
        run_state_machine_as_test(
            machine,
            settings=settings(
                max_examples=60,
                stateful_step_count=50,
                deadline=None,
                suppress_health_check=list(HealthCheck),
            ),
        )
