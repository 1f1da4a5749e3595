"""The functions, called at random, do what the model says.

The same at each run, so that it fails for a change and not by chance; others come
with pytest --hypothesis-seed=NUMBER.
"""

from collections import Counter
from typing import Any

import psycopg
import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import rule, run_state_machine_as_test

from support.sql.comparison import Comparison
from support.sql.model import BACK, BACKOFF, LIVE, Job, claimable, next_run_at

QUEUES = st.sampled_from(["q1", "q2"])
WORKERS = st.sampled_from(["w1", "w2"])
PICKS = st.integers(0, 99)
SECONDS = st.sampled_from([0, 1, 60, 301, 3600])
REASONS = ["unstarted", "shutdown", "unknown_kind"]

ENQUEUE = """
select pgwake.enqueue('k', queue => %s, priority => %s, unique_key => %s,
  run_at => pgwake.now() + %s * interval '1 s', max_attempts => %s, on_conflict => %s,
  depends_on => %s::bigint[], on_parent_failure => %s)
"""
CLAIM = """
select array(select j.id from unnest(b.jobs) as j), b.jobs[1].lease_id,
  round(extract(epoch from b.next_run_at - now()), 3)::float8
from pgwake.claim_batch(%s, %s, %s, lease => %s::int * interval '1 s', suspects => %s) b
"""
FAIL = """
select pgwake.fail_jobs(array[%s::bigint], array[%s], retryables => array[%s],
  retry_ins => array[nullif(%s, 0) * interval '1 s'])
"""
# What is to have happened before it can be said that all was tried.
USUAL = {"completed", "failed", "cancelled", "retry", "released", "extended"}
USUAL |= {"cancel_requested", "lease_lost", "PW001", "PW003"}
USUAL |= {"returned", "raised", "replaced", "added beside", "claimed", "suspects"}
USUAL |= {f"crash {n}" for n in range(1, 6)}
USUAL |= {f"{state} by its parents" for state in ("waiting", "pending", "cancelled")}
USUAL |= {"too young a parent"}


class Machine(Comparison):
    """Few rules with many arguments, since hypothesis leaves some out of a run."""

    @rule(
        queue=QUEUES,
        priority=st.integers(-1, 1),
        key=st.sampled_from([None, "a", "b"]),
        delay=st.sampled_from([0, 0, 60]),
        max_attempts=st.sampled_from([None, 1, 2]),
        on_conflict=st.sampled_from(["return", "replace", "raise"]),
        picks=st.lists(PICKS, max_size=2),
        policy=st.sampled_from([None, "cancel", "run"]),
    )
    def enqueue(
        self,
        queue: str,
        priority: int,
        key: str | None,
        delay: int,
        max_attempts: int | None,
        on_conflict: str,
        picks: list[int],
        policy: str | None,
    ) -> None:
        parents = [self.pick(number, *LIVE) for number in picks]
        arguments = (
            *(queue, priority, key, delay, max_attempts, on_conflict),
            *([job.id for job in parents], policy),
        )
        taken = self.live_with_key(key)
        if taken and on_conflict == "raise":
            self.seen["raised"] += 1
            assert self.code_of(ENQUEUE, *arguments) == "PW005"
            return
        is_replaced = taken and on_conflict == "replace" and taken.status in BACK
        if taken and is_replaced and any(job.id >= taken.id for job in parents):
            self.seen["too young a parent"] += 1
            assert self.code_of(ENQUEUE, *arguments) == "PW003"
            return
        job_id, run_at = self.one(ENQUEUE, *arguments), self.now + delay
        if taken and on_conflict == "return":
            self.seen["returned"] += 1
            assert job_id == taken.id
        elif taken and is_replaced:
            self.seen["replaced"] += 1
            assert job_id == taken.id
            taken.queue, taken.priority = queue, priority
            taken.run_at, taken.max_attempts = run_at, max_attempts
            taken.wait_for(parents, may_run_anyhow=policy == "run")
        else:
            if taken:
                self.seen["added beside"] += 1
                taken.unique_key = None
            job = Job(job_id, queue, priority, run_at, max_attempts, key)
            job.wait_for(parents, may_run_anyhow=policy == "run")
            self.add(job)
        self.settle()

    @rule(
        queue=QUEUES,
        count=st.integers(1, 6),
        worker=WORKERS,
        lease=st.sampled_from([60, 300]),
        suspects=st.booleans(),
    )
    def claim(self, **arguments: Any) -> None:
        self._claim(**arguments)

    def _claim(
        self, queue: str, count: int, worker: str, lease: int, suspects: bool
    ) -> None:
        jobs = [job for job in self.jobs.values() if job.queue == queue]
        expected = claimable(jobs, count, self.now, suspects=suspects)
        ids, lease_id, answer = self.one(CLAIM, queue, count, worker, lease, suspects)
        assert ids == [job.id for job in expected]
        for job in expected:
            job.claim(lease_id, worker, self.now + lease)
            self.see_lease(job)
            self.seen["suspects" if suspects else "claimed"] += 1
        left = next_run_at(jobs, suspects=suspects) if len(ids) < count else None
        assert answer == (None if left is None else pytest.approx(left))

    def running(self, number: int) -> Job:
        """Mostly a running job; claim some if there is none."""
        if all(job.status != "running" for job in self.jobs.values()):
            for queue in ("q1", "q2"):
                self._claim(queue, 3, "w1", 300, suspects=number % 2 == 0)
        return self.pick(number, "running")

    @rule(pick=PICKS, lease=PICKS)
    def complete(self, pick: int, lease: int) -> None:
        job = self.running(pick)
        lease_id, before = self.pick_lease(job, lease), job.status
        call = "select pgwake.complete_jobs(array[%s::bigint], array[%s])"
        (outcome,) = self.one(call, job.id, lease_id)
        assert outcome == job.complete(lease_id)
        self.move(job, before, outcome)
        self.settle()

    @rule(pick=PICKS, lease=PICKS, retryable=st.booleans(), retry_in=SECONDS)
    def fail(self, pick: int, lease: int, retryable: bool, retry_in: int) -> None:
        job = self.running(pick)
        lease_id, before = self.pick_lease(job, lease), job.status
        (outcome,) = self.one(FAIL, job.id, lease_id, retryable, retry_in)
        run_at = self.now + (retry_in or BACKOFF)
        assert outcome == job.fail(lease_id, retryable=retryable, run_at=run_at)
        self.move(job, before, outcome)
        self.settle()

    @rule(pick=PICKS, lease=PICKS, reason=st.sampled_from([*REASONS, "extend"]))
    def release_or_extend(self, pick: int, lease: int, reason: str) -> None:
        job = self.running(pick)
        lease_id, before = self.pick_lease(job, lease), job.status
        pair = "(array[%s::bigint], array[%s]"
        if reason == "extend":
            call = f"select pgwake.extend_leases{pair})"
            (outcome,) = self.one(call, job.id, lease_id)
            expected = job.extend(lease_id, self.now + 300)
            if job.status == "running":
                self.see_lease(job)
        else:
            call = f"select pgwake.release_jobs{pair}, %s)"
            (outcome,) = self.one(call, job.id, lease_id, reason)
            expected = job.release(lease_id, reason, self.now)
        assert outcome == expected
        self.move(job, before, outcome)
        self.settle()

    @rule(pick=PICKS)
    def cancel(self, pick: int) -> None:
        job = self.running(pick)
        before = job.status
        outcome = self.one("select pgwake.cancel_job(%s)", job.id)
        assert outcome == job.cancel()
        self.move(job, before, outcome)
        self.settle()

    @rule(pick=PICKS)
    def retry(self, pick: int) -> None:
        job, code = self.pick(pick, "failed", "cancelled"), None
        if job.status not in ("failed", "cancelled"):
            code = "PW003"
        elif self.live_with_key(job.unique_key):
            code = "PW005"
        assert self.code_of("select pgwake.retry_job(%s)", job.id) == code
        self.seen[str(code)] += 1
        if code is None:
            job.retry(self.now)
            self.settle()

    @rule(pick=PICKS, end=st.sampled_from(["complete", "fail"]))
    def force(self, pick: int, end: str) -> None:
        job = self.pick(pick)
        before, code = job.status, None if job.is_live else "PW001"
        call = f"select pgwake.force_{end}_job(%s, 'x')"
        assert self.code_of(call, job.id) == code
        if code is None:
            job.force("completed" if end == "complete" else "failed")
        self.move(job, before, str(code))
        self.settle()

    @rule(seconds=SECONDS, worker=st.sampled_from([None, None, "w1", "w2"]))
    def time_passes_and_what_is_lost_is_found(
        self, seconds: int, worker: str | None
    ) -> None:
        self.set_clock(seconds)
        running = [job for job in self.jobs.values() if job.status == "running"]
        if worker is None:
            lost = [job for job in running if job.lease_expires_at < self.now]
            count = "select (pgwake.maintain('sweep') ->> 'sweep')::int"
            assert self.one(count) == len(lost)
        else:
            lost = [job for job in running if job.worker == worker]
            count = "select coalesce(sum(job_count), 0)::int from pgwake."
            assert self.one(f"{count}release_worker_jobs(%s)", worker) == len(lost)
        for job in lost:
            job.crash(self.now)
            self.move(job, "running", f"crash {job.crash_count}")
        self.settle()

    @rule()
    def upkeep(self) -> None:
        self.one("select pgwake.maintain('fold') || pgwake.maintain('retention')")


@pytest.mark.timeout(360)  # only a failure takes so long: to be shrunk
def test_any_order_of_calls_does_what_the_model_says(
    database: str, pytestconfig: pytest.Config
) -> None:
    seed = pytestconfig.getoption("hypothesis_seed")
    with psycopg.connect(database) as db:
        bound = {"connection": db, "seen": Counter()}
        machine: type[Machine] = type("BoundMachine", (Machine,), bound)
        run_state_machine_as_test(
            machine,
            settings=settings(
                max_examples=30,
                stateful_step_count=50,
                deadline=None,
                derandomize=seed is None,
                suppress_health_check=list(HealthCheck),
            ),
        )
    assert machine.seen.keys() >= USUAL, USUAL - machine.seen.keys()
