"""All that the three roles may do, done once: for tests of roles and of settings."""

from collections.abc import Callable
from typing import Any, TypeAlias

import psycopg

Session: TypeAlias = "psycopg.Connection[tuple[Any, ...]]"
Login: TypeAlias = Callable[[str], Session]


def words(text: str) -> frozenset[str]:
    return frozenset(text.split())


# What sql/roles.sql grants, and nothing else.
PRODUCER = words("""
check_payload clock_offset emit_event enqueue enqueue_many get_job get_queue_stats
get_steps now unwatch watch
""")
WORKER = PRODUCER | words("""
allow_replace await_event await_job claim_batch claim_jobs claim_next_job claim_or_wait
claim_rows complete_job complete_jobs count_retries declare_kinds diagnose
diagnose_worker
due_schedules explain_job extend_leases fail_job fail_jobs fire_schedule fire_schedules
forget_worker get_adoption get_metrics get_parent_results is_live lease_outcome
list_failed list_kinds list_schedules list_workers maintain mute next_run_at
next_run_ats next_suspect_run_at note_schedule_problem notify_lock_key open_writers park
pass_duty peek_jobs raise_invalid record_step record_steps release_jobs
release_worker_jobs report_worker report_worker_slots retry_delay set_progress
set_progresses sleep_job snooze_job sweep_expired_leases take_upkeep unmute unpark
""")
ADMIN = WORKER | words("""
adopt apply_retention cancel_job cancel_jobs force_complete_job force_fail_job
merge_patch pause_queue pause_schedule purge recount_jobs resume_queue resume_schedule
retry_failed retry_from_step retry_job run_now run_schedule schedule unschedule
update_jobs
""")

STEPS = [
    "sweep",
    "fold",
    "retention",
    "analyze",
    "recount",
    "keys",
    "children",
    "ids",
]
PAYLOAD = '{"n": 1.50, "text": "it\'s \\\\ \\"q\\" $$ %s"}'


class EveryCall:
    """Calls functions by name, keeps what they answer, and which were called."""

    def __init__(self, producer: Session, worker: Session, admin: Session) -> None:
        self.producer = producer
        self.worker = worker
        self.admin = admin
        self.called: set[str] = set()
        self.answers: list[object] = []

    def call(self, session: Session, function: str, **arguments: Any) -> list[Any]:
        """Call a function; its rows, or the values of its one column."""
        named = ", ".join(f"{name} => %({name})s" for name in arguments)
        rows = session.execute(
            f"select f.* from pgwake.{function}({named}) as f", arguments
        ).fetchall()
        self.called.add(function)
        return [row[0] if len(row) == 1 else row for row in rows]

    def keep(self, session: Session, function: str, **arguments: Any) -> list[Any]:
        """Call a function whose answer must not differ from run to run."""
        answer = self.call(session, function, **arguments)
        self.answers.append((function, answer))
        return answer

    def claim(self, queue: str, count: int = 1, **arguments: Any) -> list[Any]:
        """Claim jobs; (id, lease_id) each."""
        jobs = self.call(
            self.worker, "claim_jobs", queue=queue, count=count, **arguments
        )
        assert len(jobs) == count, f"{len(jobs)} jobs in {queue}"
        return [(job[0], job[1]) for job in jobs]

    def one(self, queue: str, **columns: Any) -> dict[str, Any]:
        """Enqueue a job and claim it; the arguments of whatever ends it."""
        self.call(self.producer, "enqueue", kind="one", queue=queue, **columns)
        ((job_id, lease_id),) = self.claim(queue, worker="w1")
        return {"job_id": job_id, "lease_id": lease_id}


def set_policy(life: EveryCall) -> None:
    """Policy, by an admin's own statements."""
    admin = life.admin
    admin.execute(
        "insert into pgwake.queues (name, max_running, rate_limit, status_events,"
        " wakeups) values ('limited', 5, 1000, 'always', 'always')"
    )
    admin.execute("insert into pgwake.queues (name) values ('gone')")
    admin.execute(
        "update pgwake.queues set webhook = 'http://127.0.0.1/hook', key_limit = 2,"
        " key_rate = 100"
        " where name = 'limited'"
    )
    admin.execute("delete from pgwake.queues where name = 'gone'")
    admin.execute(
        "insert into pgwake.kinds (name, priority, check_payload)"
        " values ('checked', 5, true), ('gone', 1, false)"
    )
    admin.execute("update pgwake.kinds set max_attempts = 7 where name = 'checked'")
    admin.execute("delete from pgwake.kinds where name = 'gone'")
    admin.execute("delete from pgwake.unique_periods where unique_key = 'gone'")
    admin.execute(
        "insert into pgwake.concurrency_limits (queue, key, max_running)"
        " values ('limited', 'k', 1), ('limited', 'gone', 1)"
    )
    admin.execute(
        "update pgwake.concurrency_limits set max_running = 2 where key = 'k'"
    )
    admin.execute("delete from pgwake.concurrency_limits where key = 'gone'")


def declare(life: EveryCall) -> None:
    worker = life.worker
    life.keep(worker, "allow_replace")
    kinds = '{"checked": {"timeout": 60, "schema": {"type": "object"}}}'
    life.keep(worker, "declare_kinds", kinds=kinds, version="1.2", worker="w1")
    report = {
        "worker": "w1",
        "host": "h",
        "pid": 1,
        "queues": ["limited"],
        "kinds": ["checked"],
        "version": "1.2",
    }
    life.call(worker, "report_worker", **report)
    life.call(worker, "report_worker_slots", slots=1, **report)
    life.call(worker, "take_upkeep", worker="w1", may_sweep=True, done="{}")
    assert life.call(worker, "list_workers")[0][0] == "w1"
    assert len(life.call(worker, "list_kinds")) == 1


def enqueue(life: EveryCall) -> None:
    """Jobs of every sort, by every way in."""
    producer = life.producer
    life.call(producer, "watch")
    life.call(producer, "check_payload", kind="checked", payload=PAYLOAD)
    (job_id,) = producer.execute(
        "insert into pgwake.jobs (queue, kind, payload, metadata, priority, run_at,"
        " max_attempts, unique_key) values ('limited', 'checked', %s, '{}', 1,"
        " '2020-01-02 03:04:05Z', 3, 'u') on conflict do nothing returning id",
        [PAYLOAD],
    ).fetchone() or (None,)
    again = life.call(
        producer, "enqueue", kind="checked", queue="limited", unique_key="u"
    )
    assert again == [job_id]
    jobs = (
        '[{"kind": "keyed", "queue": "limited", "concurrency_key": "k"},'
        ' {"kind": "parent", "queue": "family"},'
        ' {"kind": "late", "queue": "late", "delay": "1 hour"}]'
    )
    ((_, parent, _),) = life.call(producer, "enqueue_many", jobs=jobs)
    life.call(
        producer,
        "enqueue",
        kind="child",
        queue="family",
        depends_on=[parent],
        on_parent_failure="run",
        webhook="http://127.0.0.1/w",
    )
    with producer.cursor().copy(
        "copy pgwake.jobs (kind, queue, payload) from stdin"
    ) as copy:
        copy.write_row(("copied", "copies", PAYLOAD))
        copy.write_row(("copied", "copies", PAYLOAD))
    assert life.call(producer, "get_job", job_id=parent)[0]["status"] == "pending"
    life.call(producer, "now")
    life.call(producer, "clock_offset")
    assert life.call(producer, "get_queue_stats")
    life.call(producer, "unwatch")


def go_on_duty(life: EveryCall) -> None:
    worker = life.worker
    for function in ("notify_lock_key", "park", "mute", "unmute", "pass_duty"):
        life.keep(worker, function, queue="family")
    life.call(worker, "open_writers")
    life.keep(worker, "unpark", queue="family")
    assert life.call(worker, "next_run_at", queue="late") != [None]
    assert life.call(worker, "next_run_ats", queues=["late"]) != []
    life.keep(worker, "claim_or_wait", queue="nobody's")
    life.keep(worker, "unpark", queue="nobody's")
    life.keep(worker, "next_suspect_run_at", queues=["limited", "family"])
    life.call(worker, "explain_job", job_id=1)
    assert len(life.call(worker, "peek_jobs", queue="limited")) == 1


def run(life: EveryCall) -> None:
    """Every way to claim a job and to end one."""
    worker = life.worker
    ((jobs, *_),) = worker.execute(
        "select array(select j.id from unnest(b.jobs) as j), b.next_run_at,"
        " b.claimed_at, b.cursor, b.is_limited from pgwake.claim_batch('limited', 9,"
        " 'w1', '10 seconds') as b"
    ).fetchall()
    life.called.add("claim_batch")
    first, second = jobs
    leases: dict[int, Any] = dict(
        worker.execute(
            "select id, lease_id from pgwake.jobs_live where claimed_by = 'w1'"
        ).fetchall()
    )
    held = {"job_ids": jobs, "lease_ids": [leases[first], leases[second]]}
    one = {"job_id": first, "lease_id": leases[first]}
    life.keep(worker, "extend_leases", **held, lease="1 minute")
    life.keep(worker, "set_progresses", **held, progresses=['{"done": 1}', "0.25"])
    life.keep(worker, "set_progress", **one, progress="[1]")
    life.keep(worker, "lease_outcome", **one)
    life.call(worker, "explain_job", job_id=second)
    life.keep(worker, "fail_jobs", **held, errors=["it's 17 \\ 4", "no"])
    ((_, *_),) = life.call(worker, "claim_next_job", queue="family")
    family = worker.execute(
        "select id, lease_id from pgwake.jobs_live where kind = 'parent'"
    ).fetchone()
    assert family is not None
    life.keep(
        worker, "complete_job", job_id=family[0], lease_id=family[1], result=PAYLOAD
    )
    ((child, lease_id),) = life.claim("family", worker="w1")
    life.keep(worker, "get_parent_results", job_id=child)
    life.keep(
        worker, "complete_jobs", job_ids=[child], lease_ids=[lease_id], results=["1e2"]
    )
    life.keep(worker, "snooze_job", **life.one("a"), delay="90 minutes")
    pair = life.one("b")
    life.keep(
        worker,
        "release_jobs",
        job_ids=[pair["job_id"]],
        lease_ids=[pair["lease_id"]],
        reason="unknown_kind",
        errors=["not known"],
    )
    life.keep(worker, "fail_job", **life.one("c"), error="can't", retryable=False)
    life.keep(worker, "fail_job", **life.one("c"), error="'x' 0x1F", retryable=False)
    life.one("d")
    life.keep(worker, "release_worker_jobs", worker="w1")
    assert len(life.call(worker, "list_failed")) == 2
    life.call(worker, "retry_delay", attempt=3, draw=0.5)
    life.keep(worker, "is_live", seen_at="2020-01-02 03:04:05Z")


def go_step_by_step(life: EveryCall) -> None:
    """Steps, sleeps and events."""
    worker, producer = life.worker, life.producer
    pair = life.one("steps")
    life.keep(worker, "record_step", **pair, name="it's", result=PAYLOAD)
    arrays = {f"{name}s": [value] for name, value in pair.items()}
    life.keep(worker, "record_steps", **arrays, names=["\\"], results=["1e2"])
    life.keep(worker, "await_job", **pair, other_id=-1)
    life.keep(worker, "await_event", **pair, event="e", may_wait=False)
    life.keep(producer, "emit_event", name="e", payload=PAYLOAD)
    producer.execute("insert into pgwake.events (name, payload) values ('f', '1')")
    producer.execute("select from pgwake.events")
    life.keep(worker, "await_event", **pair, event="e")
    life.keep(worker, "sleep_job", **pair, name="s", until="2999-01-02T03:04:05Z")
    assert len(life.call(producer, "get_steps", job_id=pair["job_id"])) == 5


def keep_up(life: EveryCall) -> None:
    """Schedules, upkeep and monitoring."""
    worker, admin = life.worker, life.admin
    life.keep(admin, "schedule", name="s", cron="*/5 1-3 * * 0", kind="tick", queue="s")
    ((_, version, *_),) = life.call(worker, "due_schedules")
    life.keep(
        worker, "note_schedule_problem", name="s", version=version, problem="none"
    )
    life.keep(admin, "pause_schedule", name="s")
    life.keep(admin, "resume_schedule", name="s")
    # That a problem is noted puts the next look off, so it is defined anew.
    life.keep(admin, "schedule", name="s", every="1 hour", kind="tick", queue="s")
    ((_, version, *_),) = life.call(worker, "due_schedules")
    worker.execute(
        "select pgwake.fire_schedule('s', %s, array[pgwake.now()],"
        " pgwake.now() operator(pg_catalog.+) '1 hour'::interval)",
        [version],
    )
    life.called.add("fire_schedule")
    nothing: dict[str, list[str]] = {
        name: [] for name in ("names", "versions", "next_ats", "ticks", "tick_counts")
    }
    assert life.call(worker, "fire_schedules", **nothing) == [[]]
    assert life.call(worker, "list_schedules")[0][10] == 1  # fired_count
    life.keep(worker, "sweep_expired_leases")
    for step in STEPS:
        (done,) = life.call(worker, "maintain", step=step)
        assert step in done
    assert len(life.call(worker, "get_metrics")) > 5
    assert len(life.call(worker, "count_retries")) > 4
    life.call(worker, "diagnose")
    life.call(worker, "diagnose_worker")
    life.call(worker, "claim_rows", queue="nobody's", count=1)
    life.call(worker, "get_adoption")
    life.keep(worker, "forget_worker", worker="w1")


def decide(life: EveryCall) -> None:
    """What only admins may."""
    admin = life.admin
    life.call(admin, "adopt", environment="it's", guard=False)
    life.call(admin, "pause_queue", queue="copies", until="2999-01-02T03:04:05Z")
    life.keep(admin, "resume_queue", queue="copies")
    (failed,) = admin.execute(
        "select min(id) from pgwake.jobs_failed where queue = 'c'"
    ).fetchone() or (None,)
    life.keep(admin, "retry_job", job_id=failed)
    life.keep(admin, "cancel_job", job_id=failed)
    life.keep(admin, "retry_from_step", job_id=failed, keep_steps=0)
    life.keep(admin, "cancel_job", job_id=failed)
    assert (
        life.call(admin, "retry_failed", queue="c", patch='{"n": 2}')[0][5] == "retried"
    )
    life.keep(admin, "update_jobs", changes='{"payload": {"n": 3}}', queue="late")
    life.keep(admin, "run_now", job_id=failed)
    life.keep(admin, "cancel_jobs", queue="c")
    life.keep(admin, "purge", status="cancelled", queue="c")
    for function in ("force_complete_job", "force_fail_job"):
        pair = life.one("f")
        life.keep(admin, function, job_id=pair["job_id"], reason="it's done")
    life.keep(admin, "merge_patch", target=PAYLOAD, patch='{"n": null}')
    life.keep(admin, "unschedule", name="s")
    life.keep(admin, "schedule", name="own", every="1 hour", kind="tick", queue="s")
    life.call(admin, "run_schedule", name="own")
    life.call(admin, "apply_retention")
    life.keep(admin, "recount_jobs")


PHASES: list[Callable[[EveryCall], None]] = [
    set_policy,
    declare,
    enqueue,
    go_on_duty,
    run,
    go_step_by_step,
    keep_up,
    decide,
]


def live(producer: Session, worker: Session, admin: Session) -> EveryCall:
    """Do all of it, in a database that has had no job yet."""
    life = EveryCall(producer, worker, admin)
    for phase in PHASES:
        phase(life)
    return life


def rows_of_jobs(session: Session) -> list[tuple[Any, ...]]:
    """What is left of the jobs, without what differs from run to run."""
    return session.execute(
        "select id, queue, kind, status, priority, attempt, max_attempts, crash_count,"
        " bounce_count, (payload - 'finished_at')::text,"
        " (metadata - 'scheduled_for')::text, progress::text, result::text,"
        " split_part(unique_key, '/', 1), concurrency_key, depends_on, fingerprint,"
        " jsonb_path_query_array(errors, '$[*].message')::text"
        " from pgwake.jobs order by id"
    ).fetchall()
