"""Two sessions with open transactions do what they like; a third looks after each step.

Unlike test_state_machine.py, which knows exactly what each call answers, this knows
what must never be: a lost job, a step between states that do not follow each other, a
limit exceeded, a child before its parents. What an open transaction did is not believed
before its commit.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any, ClassVar, TypeAlias
from uuid import UUID

import psycopg
from hypothesis import strategies as st
from hypothesis.stateful import initialize, invariant, rule
from psycopg.types.json import Jsonb

from support.sql.comparison import COUNTS, RECOUNTED
from support.sql.schedule_rules import ScheduleRules

ACTORS = st.integers(0, 1)
QUEUES = st.sampled_from(["q1", "q2"])
KEYS = st.sampled_from([None, "k1", "k1", "k2", "k3"])
PICKS = st.integers(0, 99)
SECONDS = st.sampled_from([0, 0, 1, 60, 301, 3600])
BACK = {"pending", "waiting"}
LIVE = BACK | {"running"}
ENDED = {"completed", "failed", "cancelled"}

CHANGES = st.fixed_dictionaries(
    {},
    optional={
        "queue": QUEUES,
        "priority": st.integers(-1, 1),
        "run_at": st.sampled_from(["now", "1999-01-01Z", "soon"]),
        "payload": st.just({"a": 1}),
    },
).filter(bool)

CLAIM = """
select array(select j.id from unnest(b.jobs) as j), b.jobs[1].lease_id
from pgwake.claim_batch(%s, %s, %s, lease => interval '300 s', suspects => %s) as b
"""
ENQUEUE = """
select pgwake.enqueue('k', queue => %s, priority => %s, concurrency_key => %s,
  unique_key => %s, on_conflict => %s, delay => %s * interval '1 s',
  depends_on => %s::bigint[], on_parent_failure => %s)
"""
UPDATE = "select array_agg(outcome) from pgwake.update_jobs(%s, {})"
UPDATE_BY_HAND = """
with updated as (
  update pgwake.jobs as j
  set queue = coalesce(c.queue, j.queue), run_at = coalesce(c.run_at, j.run_at),
    priority = coalesce(c.priority, j.priority)
  from jsonb_to_record(%s) as c(queue text, run_at timestamptz, priority int)
  where j.id = {} and j.status in ('waiting', 'pending')
  returning 'updated by hand' as outcome
)
select array_agg(outcome) from updated
"""
# Children whose parents should have cancelled them, or that should still wait.
EARLY = """
select c.id, c.status, p.id, p.status
from pgwake.jobs as c
join pgwake.jobs as p on p.id = any (c.depends_on)
where coalesce(c.on_parent_failure, 'cancel') = 'cancel'
  and (c.status in ('running', 'completed', 'failed', 'pending')
    or c.status = 'waiting' and c.has_parents_left is null)
  and p.status <> 'completed'
"""
# Children that nobody has flagged, and rows that nobody will delete.
FORGOTTEN = """
select c.id, null
from pgwake.jobs_live as c
where c.has_parents_left
  and not exists (select from pgwake.rechecks as r where r.child_id = c.id)
  and not exists (
    select from pgwake.dependencies as d
    join pgwake.jobs_live as p on p.id = d.parent_id and p.has_children
    where d.child_id = c.id)
union all
select d.child_id, d.parent_id
from pgwake.dependencies as d
where not exists (
    select from pgwake.rechecks as r
    where r.child_id = d.child_id and r.parent_id = d.parent_id)
  and not exists (
    select from pgwake.jobs_live as p where p.id = d.parent_id and p.has_children)
"""
WENT_ON = """
select count(*) filter (where errors -> -1 ->> 'reason' = 'parent_failed'),
  count(*) filter (where status = 'running' and on_parent_failure = 'run'),
  count(*) filter (where status = 'running' and on_parent_failure is null)
from pgwake.jobs where depends_on is not null
"""
HOLDERS = """
select queue, concurrency_key, count(*) from pgwake.jobs_live
where status in ('pending', 'running') and concurrency_key is not null group by 1, 2
"""
RUNNING = """
select queue, count(*) from pgwake.jobs_live where status = 'running' group by 1
"""
FAMILIES = ["cancelled by a parent", "ran whatever became of them", "ran after all"]
REFUSED = {"55P03", "PW001", "PW002", "PW003", "PW005"}  # a lock, or a rule


# Ids of parents, and on_parent_failure.
Family: TypeAlias = tuple[Sequence[int], str | None]


def _added(family: Family) -> set[str]:
    """Where a job can be after it was added, as long as nobody claims or cancels it."""
    parents, policy = family
    return BACK | {"cancelled"} if parents and policy != "run" else BACK


@dataclass
class Job:
    """What is known of a committed job: where it can be, and under which lease."""

    states: set[str]
    lease: UUID | None = None


@dataclass
class Actor:
    """A session, and what its open transaction would make true."""

    connection: psycopg.Connection
    is_open: bool = False
    effects: list[Callable[[], None]] = field(default_factory=list)


class Lifecycle(ScheduleRules):
    """All transitions, from two sessions at once."""

    sessions: ClassVar[list[psycopg.Connection]]  # two that act, one that looks
    seen: ClassVar[Counter[str]]

    def __init__(self) -> None:
        super().__init__()
        self.jobs: dict[int, Job] = {}
        self.clock = 0
        self.key_limits: dict[str, int] = {}
        self.own_limits: dict[tuple[str, str], int] = {}
        self.max_running: dict[str, int | None] = {}
        self.key_bounds: dict[tuple[str, str], int] = defaultdict(int)
        self.running_bounds: dict[str, int] = defaultdict(int)

    @initialize()
    def begin(self) -> None:
        *acting, self.looking = self.sessions
        self.actors = [Actor(connection) for connection in acting]
        self.looking.execute(
            "truncate pgwake.jobs, pgwake.queues, pgwake.concurrency_limits,"
            " pgwake.rechecks, pgwake.rate_buckets, pgwake.key_buckets, pgwake.counts,"
            " pgwake.count_sums, pgwake.count_leaves, pgwake.dependencies,"
            " pgwake.schedules"
        )
        self._set_clock()
        for queue in ("q1", "q2"):
            self.key_limits[queue], self.max_running[queue] = 1, None
            self.looking.execute(
                "insert into pgwake.queues (name, backoff_cap, max_attempts)"
                " values (%s, '0', 3)",
                [queue],
            )
            for key in (None, "k1", "k2"):
                self.insert(0, queue, key, 3, 0, 0)

    def _set_clock(self) -> None:
        for session in self.sessions:
            session.execute(
                "select set_config('pgwake.clock_offset', %s, false)",
                [f"{self.clock} s"],
            )

    # Few rules with many arguments, since hypothesis leaves some rules out of a run.

    @rule(
        actor=ACTORS,
        what=st.sampled_from(["insert", "insert", "enqueue"]),
        queue=QUEUES,
        key=KEYS,
        count=st.integers(1, 4),
        priority=st.integers(-1, 1),
        unique=st.sampled_from(["a", "b"]),
        on_conflict=st.sampled_from(["return", "replace", "raise"]),
        delay=SECONDS,
        parents=st.lists(PICKS, max_size=3),
        policy=st.sampled_from([None, "cancel", "run"]),
    )
    def add(self, actor: int, what: str, **given: Any) -> None:
        queue, key, delay = given["queue"], given["key"], given["delay"]
        family = ([self.pick(one) for one in given["parents"]], given["policy"])
        if what == "insert":
            count, priority = given["count"], given["priority"]
            self.insert(actor, queue, key, count, priority, delay, family)
        else:
            unique, on_conflict = given["unique"], given["on_conflict"]
            self.enqueue(actor, queue, key, unique, on_conflict, delay, family)

    @rule(
        actor=ACTORS,
        what=st.sampled_from(["claim", "claim", "end", "end", "end", "release"]),
        queue=QUEUES,
        count=st.integers(1, 5),
        worker=st.sampled_from(["w1", "w2"]),
        suspects=st.sampled_from([False, False, False, True]),
        pick=PICKS,
        end=st.sampled_from(["complete", "complete", "fail", "discard", "retry_in"]),
        reason=st.sampled_from(["unstarted", "snooze", "shutdown", "unknown_kind"]),
        delay=st.sampled_from([None, 0, 60]),
    )
    def work(self, actor: int, what: str, **given: Any) -> None:
        pick = given["pick"]
        if what == "claim" or not any(job.lease for job in self.jobs.values()):
            suspects = given["suspects"]
            count, worker = given["count"], given["worker"]
            self.claim(actor, given["queue"], count, worker, suspects)
        elif what == "end":
            self.end(actor, pick, given["end"])
        else:
            self.release(actor, pick, given["reason"], given["delay"])

    @rule(
        actor=ACTORS,
        what=st.sampled_from(
            [
                *("cancel", "cancel_many", "retry", "retry_many", "lose", "lose"),
                *("update", "update_many", "update_many", "update_by_hand"),
            ]
        ),
        pick=PICKS,
        queue=QUEUES,
        key=st.sampled_from(["k1", "k2"]),
        rate=st.sampled_from([None, 1.0]),
        worker=st.sampled_from([None, None, "w1", "w2"]),
        changes=CHANGES,
        to_queue=QUEUES,
    )
    def operate(self, actor: int, what: str, **given: Any) -> None:
        match what:
            case "cancel":
                self.cancel(actor, given["pick"])
            case "cancel_many":
                self.cancel_many(actor, given["queue"], given["key"])
            case "retry":
                self.retry(actor, given["pick"])
            case "retry_many":
                self.retry_many(actor, given["queue"], given["rate"])
            case "update":
                which = f"job_ids => array[{self.pick(given['pick'])}]"
                self.update(actor, given["changes"], UPDATE.format(which))
            case "update_many":
                queue, key = given["queue"], given["key"]
                which = f"queue => '{queue}', concurrency_key => '{key}'"
                changes = {**given["changes"], "queue": given["to_queue"]}
                self.update(actor, changes, UPDATE.format(which))
            case "update_by_hand":
                job_id = self.pick(given["pick"])
                self.update(actor, given["changes"], UPDATE_BY_HAND.format(job_id))
            case "lose":
                self.lose(actor, given["worker"])

    @rule(actor=ACTORS, commits=st.sampled_from([True, True, False]))
    def open_or_close(self, actor: int, commits: bool) -> None:
        if self.actors[actor].is_open:
            self.close(actor, commits)
        else:
            self.open(actor)

    @rule(
        what=st.sampled_from(
            [
                *("limit_running", "limit_keys", "limit_key", "keep_order"),
                *("limit_rate", "pause", "upkeep", "time_passes", "time_passes"),
            ]
        ),
        queue=QUEUES,
        key=st.sampled_from(["k1", "k2"]),
        limit=st.integers(0, 3),
        flag=st.booleans(),
        rate=st.sampled_from([None, None, 0.1, 100.0]),
        seconds=st.sampled_from([1, 60, 301, 3600]),
        step=st.sampled_from(["fold", "retention", "keys", "children"]),
    )
    def govern(self, what: str, **given: Any) -> None:
        queue, limit = given["queue"], given["limit"]
        # Limits and the clock move only while nothing is open that went by the others.
        is_quiet = not any(one.is_open for one in self.actors)
        match what:
            case "keep_order":
                self.keep_order(queue, given["flag"])
            case "limit_rate":
                self.limit_rate(queue, given["rate"])
            case "pause":
                self.pause(queue, given["flag"])
            case "upkeep":
                self.upkeep(given["step"])
            case "limit_running" if is_quiet:
                self.limit_running(queue, limit or None)
            case "limit_keys" if is_quiet:
                self.limit_keys(queue, limit or 1)
            case "limit_key" if is_quiet:
                self.limit_key(queue, given["key"], limit)
            case "time_passes" if is_quiet:
                self.time_passes(given["seconds"])

    # What a session does.

    def act(self, actor: int, statement: str, *arguments: object) -> Any:
        """Run a statement; its row, or None if a lock or a rule refused it."""
        session = self.actors[actor].connection
        try:
            with session.transaction():  # a savepoint, where one is open
                row = session.execute(statement, arguments).fetchone()
        except psycopg.Error as error:
            if error.sqlstate not in REFUSED:
                raise
            self.seen[error.sqlstate] += 1
            return None
        return row

    def believe(self, actor: int, effect: Callable[[], None]) -> None:
        """Note an effect: now, or when the open transaction commits."""
        one = self.actors[actor]
        if one.is_open:
            one.effects.append(effect)
        else:
            effect()

    def becomes(
        self, actor: int, job_id: int, states: set[str], lease: UUID | None = None
    ) -> None:
        def effect() -> None:
            self.jobs.setdefault(job_id, Job(states))
            self.jobs[job_id].states, self.jobs[job_id].lease = states, lease

        self.believe(actor, effect)
        for state in states:
            self.seen[state] += 1

    def pick(self, number: int) -> int:
        ids = list(self.jobs)
        return ids[number % len(ids)] if ids else 0

    def held(self, number: int) -> tuple[int, UUID | None]:
        held = [(id_, job.lease) for id_, job in self.jobs.items() if job.lease]
        return held[number % len(held)] if held else (0, None)

    def open(self, actor: int) -> None:
        one = self.actors[actor]
        if not one.is_open:
            one.connection.execute("begin")
            one.is_open = True

    def close(self, actor: int, commits: bool) -> None:
        one = self.actors[actor]
        if not one.is_open:
            return
        one.connection.execute("commit" if commits else "rollback")
        one.is_open = False
        for effect in one.effects if commits else ():
            effect()
        one.effects.clear()
        self.seen["commit" if commits else "rollback"] += 1

    def insert(
        self,
        actor: int,
        queue: str,
        key: str | None,
        count: int,
        priority: int,
        delay: int,
        family: Family = ((), None),
    ) -> None:
        parents, policy = family
        row = self.act(
            actor,
            "with i as (insert into pgwake.jobs"
            " (kind, queue, concurrency_key, priority, run_at, depends_on,"
            " on_parent_failure)"
            " select 'k', %s, %s, %s, pgwake.now() + %s * interval '1 s',"
            " nullif(%s::bigint[], '{}'), %s"
            " from generate_series(1, %s) returning id)"
            " select array_agg(id order by id) from i",
            *(queue, key, priority, delay, list(parents), policy, count),
        )
        for job_id in row[0]:
            states = _added(family) if key or parents else {"pending"}
            self.becomes(actor, job_id, states)

    def enqueue(
        self,
        actor: int,
        queue: str,
        key: str | None,
        unique: str,
        on_conflict: str,
        delay: int,
        family: Family,
    ) -> None:
        arguments = (queue, 0, key, unique, on_conflict, delay, list(family[0]))
        row = self.act(actor, ENQUEUE, *arguments, family[1])
        if row is None:
            return
        if on_conflict == "replace" or row[0] not in self.jobs:
            self.seen["replaced"] += row[0] in self.jobs
            self.becomes(actor, row[0], _added(family))

    def claim(
        self, actor: int, queue: str, count: int, worker: str, suspects: bool
    ) -> None:
        row = self.act(actor, CLAIM, queue, count, worker, suspects)
        for job_id in row[0] if row else ():
            self.becomes(actor, job_id, {"running"}, row[1])

    def end(self, actor: int, pick: int, how: str) -> None:
        job_id, lease = self.held(pick)
        function, more = {
            "complete": ("complete_jobs", ""),
            "fail": ("fail_jobs", ""),
            "discard": ("fail_jobs", ", retryables => array[false]"),
            "retry_in": ("fail_jobs", ", retry_ins => array[interval '60 s']"),
        }[how]
        self._pair(
            actor,
            f"select pgwake.{function}(array[%s::bigint], array[%s::uuid]{more})",
            job_id,
            lease,
        )

    def release(self, actor: int, pick: int, reason: str, delay: int | None) -> None:
        job_id, lease = self.held(pick)
        self._pair(
            actor,
            "select pgwake.release_jobs(array[%s::bigint], array[%s::uuid], %s,"
            " array[%s * interval '1 s'])",
            *(job_id, lease, reason, delay),
        )

    def _pair(self, actor: int, statement: str, job_id: int, *more: object) -> None:
        if not job_id:
            return
        row = self.act(actor, statement, job_id, *more)
        outcome = row[0][0] if row else None
        if outcome in ENDED:
            self.becomes(actor, job_id, {outcome})
        elif outcome in ("retry", "released"):
            self.becomes(actor, job_id, BACK)
        elif outcome == "cancel_requested":
            self.becomes(actor, job_id, {"cancelled"})
        self.seen[str(outcome)] += 1

    def cancel(self, actor: int, pick: int) -> None:
        job_id = self.pick(pick)
        row = self.act(actor, "select pgwake.cancel_job(%s)", job_id)
        if row and row[0] == "cancelled":
            self.becomes(actor, job_id, {"cancelled"})

    def cancel_many(self, actor: int, queue: str, key: str) -> None:
        one = self.actors[actor]
        before = self._states(one.connection)
        row = self.act(
            actor,
            "select count(*) from pgwake.cancel_jobs("
            "queue => %s, concurrency_key => %s)",
            *(queue, key),
        )
        if row:
            self._changed(actor, before)

    def retry(self, actor: int, pick: int) -> None:
        job_id = self.pick(pick)
        if self.act(actor, "select pgwake.retry_job(%s)", job_id):
            self.becomes(actor, job_id, BACK)

    def retry_many(self, actor: int, queue: str, rate: float | None) -> None:
        before = self._states(self.actors[actor].connection)
        row = self.act(
            actor,
            "select count(*) from pgwake.retry_failed(queue => %s, rate => %s)",
            *(queue, rate),
        )
        if row:
            self._changed(actor, before)

    def update(self, actor: int, changes: dict[str, Any], statement: str) -> None:
        """Change jobs that wait; those with a key may lose its room, or get it."""
        if changes.get("run_at") == "soon":
            soon = datetime.now(UTC) + timedelta(seconds=self.clock + 60)
            changes = {**changes, "run_at": soon.isoformat()}
        before = self._states(self.actors[actor].connection)
        row = self.act(actor, statement, Jsonb(changes))
        if row:
            self._changed(actor, before)
            self.seen.update(row[0] or ())

    def lose(self, actor: int, worker: str | None) -> None:
        """What a dead worker had, or whose lease ran out, goes back."""
        before = self._states(self.actors[actor].connection)
        if worker is None:
            row = self.act(actor, "select pgwake.maintain('sweep')")
        else:
            call = "select count(*) from pgwake.release_worker_jobs(%s)"
            row = self.act(actor, call, worker)
        if row:
            self._changed(actor, before)

    def _states(self, session: psycopg.Connection) -> dict[int, str]:
        return dict(session.execute("select id, status from pgwake.jobs").fetchall())

    def _changed(self, actor: int, before: dict[int, str]) -> None:
        """Believe what a statement about many jobs has done in its session."""
        after = self._states(self.actors[actor].connection)
        for job_id, state in after.items():
            if before.get(job_id) != state:
                self.becomes(actor, job_id, BACK if state in BACK else {state})

    # Policy is set by the session that looks, so it holds at once.

    def limit_running(self, queue: str, limit: int | None) -> None:
        self._policy("max_running", limit, queue)
        self.max_running[queue] = limit

    def limit_keys(self, queue: str, limit: int) -> None:
        self._policy("key_limit", limit, queue)
        self.key_limits[queue] = limit

    def limit_key(self, queue: str, key: str, limit: int) -> None:
        self.looking.execute(
            "insert into pgwake.concurrency_limits values (%s, %s, %s)"
            " on conflict (queue, key) do update set max_running = %s",
            [queue, key, limit, limit],
        )
        self.own_limits[queue, key] = limit

    def keep_order(self, queue: str, keeps: bool) -> None:
        self._policy("keep_order", keeps, queue)

    def limit_rate(self, queue: str, rate: float | None) -> None:
        self._policy("rate_limit", rate, queue)

    def pause(self, queue: str, pauses: bool) -> None:
        call = "pause_queue(%s)" if pauses else "resume_queue(%s)"
        self.looking.execute(f"select pgwake.{call}", [queue])

    def _policy(self, column: str, value: object, queue: str) -> None:
        update = f"update pgwake.queues set {column} = %s where name = %s"
        self.looking.execute(update, [value, queue])

    def time_passes(self, seconds: int) -> None:
        self.clock += seconds
        self._set_clock()

    def upkeep(self, step: str) -> None:
        self.looking.execute("select pgwake.maintain(%s)", [step])

    # What must hold.

    @invariant()
    def no_job_is_lost_or_where_it_can_not_be(self) -> None:
        rows = self._states(self.looking)
        assert rows.keys() == self.jobs.keys()
        for job_id, state in rows.items():
            assert state in self.jobs[job_id].states, (job_id, self.jobs[job_id])

    @invariant()
    def no_key_has_more_than_its_limit(self) -> None:
        holders = {(q, k): n for q, k, n in self.looking.execute(HOLDERS)}
        for name in holders.keys() | self.key_bounds.keys():
            limit = self.own_limits.get(name, self.key_limits[name[0]])
            count = holders.get(name, 0)
            assert count <= max(limit, self.key_bounds[name]), name
            self.key_bounds[name] = count  # where the limit was lowered since

    @invariant()
    def no_queue_runs_more_than_its_limit(self) -> None:
        running: dict[str, int] = dict(self.looking.execute(RUNNING).fetchall())
        for queue, limit in self.max_running.items():
            count = running.get(queue, 0)
            if limit is not None:
                assert count <= max(limit, self.running_bounds[queue]), queue
            self.running_bounds[queue] = count

    @invariant()
    def no_child_comes_before_its_parents_and_none_is_forgotten(self) -> None:
        assert self.looking.execute(EARLY).fetchall() == []
        assert self.looking.execute(FORGOTTEN).fetchall() == []
        went_on = self.looking.execute(WENT_ON).fetchone() or ()
        for what, count in zip(FAMILIES, went_on, strict=True):
            self.seen[what] += count

    @invariant()
    def counts_are_those_of_the_rows(self) -> None:
        # In one statement, so that no job becomes due in between.
        both = self.looking.execute(f"select ({RECOUNTED}), ({COUNTS})").fetchone()
        assert both is not None
        assert both[0] == both[1]

    def teardown(self) -> None:
        """Let everything run: whatever was done before, every job comes to an end."""
        for one in self.actors:
            one.connection.rollback()
            one.is_open = False
        self.looking.execute(
            "update pgwake.queues set paused_until = null, rate_limit = null"
        )
        self.looking.execute("delete from pgwake.concurrency_limits")
        worker = self.actors[0].connection
        for _ in range(200):
            self.clock += 3600
            self._set_clock()
            worker.execute("select pgwake.maintain('sweep')")
            for queue in ("q1", "q2"):
                for suspects in (False, True):
                    ids, lease = worker.execute(  # type: ignore[misc]
                        CLAIM, [queue, 10, "last", suspects]
                    ).fetchone()
                    if ids:
                        worker.execute(
                            "select pgwake.complete_jobs(%s, array_fill(%s::uuid,"
                            " array[%s]))",
                            [ids, lease, len(ids)],
                        )
            if LIVE.isdisjoint(self._states(self.looking).values()):
                count = "select count(*) from pgwake.dependencies"
                assert self.looking.execute(count).fetchone() == (0,)
                return
        left = self.looking.execute("select * from pgwake.jobs_live").fetchall()
        raise AssertionError(f"jobs that nothing runs: {left}")
