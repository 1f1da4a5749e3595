"""The account of a run: what its jobs' rows say, held against what was seen of them.

Three tell the same story, or a job is not accounted for. The producers know what was
acknowledged. The handlers' journal knows each execution, and outlives whatever dies.
The rows know how each job ended, and in `errors`, `crash_count`, `bounce_count` and
`attempt` how each execution before that did.

For each job the executions in the journal are exactly

- the one that completed it, under the row's lease, if it is completed,
- one for each entry of `errors`, by the same process in the same attempt,
- one for each time that it was released at a stop (`bounce_count`: it has no entry).

What is left over on the journal's side is an execution without a reason. On the row's
side it may be the crash of a claim whose handler had not begun, and nothing else. Each
crash, and each failure that was not on purpose (the handler's own transaction was cut
off), must have a strike to blame: one that had its worker among its victims, or hit
everybody, from when it began until a minute after it was over.

A job with steps runs again after each sleep and wait, and its counts begin anew: of its
executions there are at least so many. What it has heard of its steps is what is
recorded; no function of a step is called by an execution that began after its record;
and it is woken in time, see _WAKES. All by the clock of this machine.

Of the jobs of one concurrency key none was started before the one before had ended.
"""

from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import anyio

from pgwake.database.connection import Connection

from .crew import POLL_SECONDS
from .run import DJANGO_KINDS, ON_PURPOSE, STEPS_KIND, Run, Strike

# A lease has to run out and be found; a supervisor has to reach the database again.
AFTERMATH_SECONDS = 60
HELD_UP_SECONDS = 2.0  # a process, by a busy machine

_TABLES = """
drop table if exists
  executions, calls, strikes, jobs, ends, sums, steps, wakes;
create temporary table executions
  (job_id bigint, attempt int, lease_id uuid, pid int, began_at float8, serial bigint);
create temporary table calls (job_id bigint, lease_id uuid);
create temporary table strikes
  (fault text, began_at timestamptz, healed_at timestamptz, victims text[]);
create temporary table jobs
  (id bigint, status text, attempt int, crash_count int, bounce_count int,
   lease_id uuid, errors jsonb, serial bigint, fails int, is_doomed boolean,
   has_effect boolean, has_steps boolean, created_at float8, finished_at float8,
   result jsonb, is_in_django boolean, key text, started_at float8);
create temporary table ends
  (job_id bigint, number int, at timestamptz, attempt int, pid int, reason text,
   fault text, has_run boolean, is_last boolean);
create temporary table sums
  (job_id bigint, crashes bigint, failures bigint, purposeful bigint, passing bigint,
   ran bigint);
create temporary table steps
  (job_id bigint, name text, result jsonb, since float8, due_at float8, at float8);
create temporary table wakes
  (job_id bigint, due_at float8, begun_at float8, overtaken float8,
   is_excused boolean);
"""
_JOBS = """
insert into jobs
select j.id, j.status, j.attempt, j.crash_count, j.bounce_count, j.lease_id, j.errors,
  (j.payload ->> 'serial')::bigint, coalesce((j.payload ->> 'fails')::int, 0),
  j.payload ? 'is_doomed', j.payload ? 'has_effect', j.kind = $2,
  extract(epoch from j.created_at), extract(epoch from j.finished_at), j.result,
  j.kind = any ($3), j.concurrency_key, extract(epoch from j.started_at)
from pgwake.jobs as j
where j.queue = $1
"""
# The entries of errors, each with the latest strike that may be to blame. One has run
# if there is an execution left for it; those that have not are crashes, hence last.
_ENDS = """
insert into ends
with told as (
  select j.id as job_id, j.status, u.number, (u.entry ->> 'at')::timestamptz as at,
    (u.entry ->> 'attempt')::int as attempt,
    split_part(u.entry ->> 'worker', ':', 2)::int as pid,
    case
      when u.entry ->> 'reason' = 'crashed'
        then split_part(u.entry ->> 'message', ';', 1)
      when u.entry ->> 'message' like '%' || $1
        then (u.entry ->> 'reason') || ' on purpose'
      else (u.entry ->> 'reason') || ' in passing'
    end as reason,
    (
      select s.fault
      from strikes as s
      where (u.entry ->> 'at')::timestamptz
          between s.began_at and s.healed_at + make_interval(secs => $2)
        and (s.victims = '{}' or u.entry ->> 'worker' = any (s.victims))
      order by s.victims = '{}', s.began_at desc
      limit 1
    ) as fault
  from jobs as j
  cross join jsonb_array_elements(j.errors) with ordinality as u(entry, number)
), ran as (
  select x.job_id, x.pid, x.attempt, count(*) as count
  from executions as x
  join jobs as j on j.id = x.job_id
  where j.status <> 'completed' or j.lease_id <> x.lease_id
  group by x.job_id, x.pid, x.attempt
), placed as (
  select t.*, coalesce(ran.count, 0) >= row_number() over (
    partition by t.job_id, t.pid, t.attempt order by t.reason like 'the %', t.number
  ) as has_run
  from told as t
  left join ran using (job_id, pid, attempt)
)
select p.job_id, p.number, p.at, p.attempt, p.pid, p.reason,
  case when p.reason not like '% on purpose' then p.fault end, p.has_run,
  p.status = 'failed' and p.number = max(p.number) over (partition by p.job_id)
from placed as p
"""
_SUMS = """
insert into sums
select e.job_id, count(*) filter (where e.reason like 'the %'),
  count(*) filter (where e.reason not like 'the %'),
  count(*) filter (where e.reason = 'failed on purpose'),
  count(*) filter (where e.reason like '% in passing'),
  count(*) filter (where e.has_run)
from ends as e
group by e.job_id
"""
# What jobs have recorded, and from when on each answer was there: not before the job
# was done with the step before.
_STEPS = """
insert into steps
with told as (
  select j.id as job_id, s.place, s.name, s.kind, s.result, s.until, s.at
  from jobs as j
  cross join pgwake.get_steps(j.id) as s
  where j.has_steps
)
select t.job_id, t.name, t.result, t.since, greatest(t.since,
    case when t.name = 'end' then c.finished_at
      else extract(epoch from coalesce(t.until, e.at)) end),
  extract(epoch from t.at)
from (
  select t.*, lag(extract(epoch from greatest(t.at, t.until)))
    over (partition by t.job_id order by t.place) as since
  from told as t
) as t
join jobs as j on j.id = t.job_id
left join jobs as c on c.serial = -j.serial
left join pgwake.events as e on e.name = '{0}:' || j.serial and t.name = 'event'
"""
# The executions that sleeps' ends and answers have begun; an answer that came before
# the job asked has begun none. overtaken: for so many seconds jobs were begun that were
# enqueued after the answer was there. is_excused: a fault was made meanwhile, or had
# cut an attempt of the job short since its step before.
_WAKES = """
insert into wakes
with begun as (
  select s.job_id, s.since, s.due_at, min(x.began_at) as begun_at
  from steps as s
  join executions as x on x.job_id = s.job_id and x.began_at >= s.due_at
  where s.name in ('nap', 'event', 'end') and (s.name = 'nap' or x.began_at <= s.at)
  group by s.job_id, s.name, s.since, s.due_at
), woken as (
  select b.job_id, min(b.since) as since, min(b.due_at) as due_at, b.begun_at
  from begun as b
  group by b.job_id, b.begun_at
), moments as (
  select min(x.began_at) as began_at, j.created_at as due_at, null::bigint as job_id,
    null::float8 as since, null::float8 as begun_at
  from jobs as j
  join executions as x on x.job_id = j.id
  where not j.has_steps
  group by j.id, j.created_at
  union all
  select null, w.due_at, w.job_id, w.since, w.begun_at from woken as w
), seen as (
  select m.*, min(m.began_at) over (order by m.due_at desc) as overtaken_at
  from moments as m
)
select s.job_id, s.due_at, s.begun_at, greatest(s.begun_at - s.overtaken_at, 0),
  exists (
    select from strikes as k
    where extract(epoch from k.began_at) <= s.begun_at
      and extract(epoch from k.healed_at) >= s.due_at
  ) or exists (
    select from ends as e
    where e.job_id = s.job_id
      and extract(epoch from e.at) between s.since and s.begun_at)
from seen as s
where s.job_id is not null
"""
_FIGURES = """
select
  count(*) filter (where j.status = 'completed') as completed,
  count(*) filter (where j.status = 'failed' and l.reason = 'discarded on purpose')
    as failed_on_purpose,
  count(*) filter (where j.status = 'failed' and l.reason like 'the %') as crashed_out,
  (select count(*) from ends as e where not e.has_run) as unbegun,
  (select count(*) from {0}.effects) as effects,
  count(*) filter (where j.has_steps and j.status = 'completed') as stepped,
  count(*) filter (where j.is_in_django and j.status = 'completed') as in_django,
  count(*) filter (where j.key is not null and j.status = 'completed') as keyed,
  (select count(*) from wakes as w) as wakes,
  (select count(*) from wakes as w where not w.is_excused) as judged_wakes,
  (select coalesce(max(w.overtaken), 0) from wakes as w where not w.is_excused)
    as latest_wake,
  (select count(*) from executions) as executions,
  (select count(*) from (
    select from executions as x join jobs as j on j.id = x.job_id
    where not j.has_steps
    group by x.job_id having count(*) > 1) as r
  ) as ran_again
from jobs as j
left join ends as l on l.job_id = j.id and l.is_last
"""
# How executions ended that were followed by another claim.
_REPEATS = """
select e.reason, count(*)
from ends as e
where e.has_run and not e.is_last
group by e.reason
union all
select 'released at a stop', sum(j.bounce_count) as count
from jobs as j
having sum(j.bounce_count) > 0
"""
_BLAMED = "select e.fault, count(*) from ends as e where e.fault is not null group by 1"

# What must not be: a sentence, and the ids of which it is true ({0}: the run's schema,
# {1}: how many jobs are enqueued, {2}: how late one may be woken).
_LOST = {
    "acknowledged, and without a row (serials)": """
select s.serial as id from generate_series(1, {1}) as s(serial)
except
select j.serial from jobs as j""",
    "acknowledged, and not ended": """
select j.id from jobs as j where j.status not in ('completed', 'failed')""",
}
_DOUBLED_EFFECTS = {
    "with an effect more than once": """
select e.job_id as id from {0}.effects as e group by e.job_id having count(*) > 1""",
}
_WRONG = {
    "enqueued twice (serials)": """
select j.serial as id from jobs as j group by j.serial having count(*) > 1""",
    "with a row that nobody has enqueued": """
select j.id
from jobs as j
left join jobs as p on p.serial = -j.serial
left join steps as s on s.job_id = p.id and s.name = 'child'
where (j.serial between 1 and {1}) is not true
  and (s.result = to_jsonb(j.id)) is not true""",
    "completed without the effect of that execution": """
select j.id
from jobs as j
left join {0}.effects as e on e.job_id = j.id and e.lease_id = j.lease_id
where j.status = 'completed' and j.has_effect and e.job_id is null""",
    "with an effect, and not completed by it": """
select e.job_id as id
from {0}.effects as e
left join jobs as j
  on j.id = e.job_id and j.lease_id = e.lease_id and j.status = 'completed'
where j.id is null""",
    "completed, though to fail": """
select j.id from jobs as j where j.status = 'completed' and j.is_doomed""",
    "failed, neither on purpose nor by five crashes": """
select j.id
from jobs as j
left join ends as l on l.job_id = j.id and l.is_last
where j.status = 'failed' and (
  l.reason like 'the %' or (j.is_doomed and l.reason = 'discarded on purpose')
) is not true""",
    "with other errors than its counts say": """
select j.id
from jobs as j
left join sums as s on s.job_id = j.id
where j.status in ('completed', 'failed') and not j.has_steps and (
  j.crash_count <> coalesce(s.crashes, 0)
  or j.attempt <> (j.status = 'completed')::int + coalesce(s.failures, 0)
    + greatest(j.crash_count - 2, 0) + greatest(j.bounce_count - 19, 0))""",
    "failed on purpose more or less often than it should": """
select j.id
from jobs as j
left join sums as s on s.job_id = j.id
where j.status = 'completed' and (
  coalesce(s.purposeful, 0) > j.fails
  or (coalesce(s.purposeful, 0) < j.fails
    and j.crash_count <= 2 and coalesce(s.passing, 0) = 0))""",
    "executed though there is no row": """
select x.job_id as id from executions as x left join jobs as j on j.id = x.job_id
where j.id is null""",
    "executed twice under one lease": """
select x.job_id as id from executions as x
group by x.job_id, x.lease_id having count(*) > 1""",
    "completed without an execution under its lease": """
select j.id
from jobs as j
left join executions as x on x.job_id = j.id and x.lease_id = j.lease_id
where j.status = 'completed' and x.job_id is null""",
    "executed more or less often than its row says": """
select j.id
from jobs as j
left join (select x.job_id, count(*) from executions as x group by x.job_id) as x
  on x.job_id = j.id
left join sums as s on s.job_id = j.id
cross join lateral (
  select coalesce(x.count, 0)
    - (j.status = 'completed')::int - coalesce(s.ran, 0) - j.bounce_count as left_over
) as l
where j.status in ('completed', 'failed')
  and (l.left_over < 0 or (l.left_over > 0 and not j.has_steps))""",
    "failed by an execution that is not in the journal": """
select e.job_id as id
from ends as e where not e.has_run and e.reason not like 'the %'""",
    "crashed or failed in passing, with no fault to blame": """
select e.job_id as id
from ends as e where e.fault is null and e.reason not like '% on purpose'""",
    "completed, and what they heard of their steps is not what is recorded": """
select j.id
from jobs as j
left join (
  select s.job_id, jsonb_object_agg(s.name, coalesce(s.result, 'null')) as results
  from steps as s group by s.job_id
) as s on s.job_id = j.id
where j.has_steps and j.status = 'completed' and s.results is distinct from j.result""",
    "started while another of their key was running": """
select j.id
from (
  select j.id, j.started_at, max(j.finished_at) over (
    partition by j.key order by j.started_at, j.id
    rows between unbounded preceding and 1 preceding) as busy_until
  from jobs as j
  where j.key is not null
) as j
where j.started_at < j.busy_until""",
    "with a step of which no call is known": """
select s.job_id as id
from steps as s
left join calls as c on c.job_id = s.job_id and to_jsonb(c.lease_id) = s.result
where s.name = 'call' and c.job_id is null""",
    "with a step that was called though it was recorded": """
select s.job_id as id
from steps as s
join calls as c on c.job_id = s.job_id
join executions as x on x.job_id = c.job_id and x.lease_id = c.lease_id
where s.name = 'call' and x.began_at > s.at""",
    "with a step called twice under one lease": """
select c.job_id as id
from calls as c group by c.job_id, c.lease_id having count(*) > 1""",
    "that have heard another event, or completed without it": """
select j.id
from jobs as j
left join pgwake.events as e on e.name = '{0}:' || -j.serial
left join jobs as p on p.serial = -j.serial
left join steps as s on s.job_id = p.id and s.name = 'event'
where j.serial < 0 and j.status = 'completed'
  and (e.payload = to_jsonb(j.lease_id) and (s.result <> e.payload) is not true)
    is not true""",
    "ended, and their steps or waits left over": """
select j.id
from jobs as j
where j.status in ('completed', 'failed') and j.has_steps and (
  exists (select from pgwake.steps as s where s.job_id = j.id)
  or exists (select from pgwake.waits as w where w.job_id = j.id))""",
    "woken later than by a poll": """
select w.job_id as id from wakes as w
where not w.is_excused and w.overtaken > {2}""",
}
_LATE_SECONDS = POLL_SECONDS + HELD_UP_SECONDS
_COUNT = """
select count(*) as count, (array_agg(p.id order by p.id))[:5] as first from ({0}) as p
"""


@dataclass(frozen=True, slots=True)
class Account:
    """What came of a run.

    Attributes:
        enqueued: Jobs whose INSERT was acknowledged, or found to be committed when its
            answer was lost.
        settled: INSERTs, of some jobs each, whose answer was lost.
        completed: Jobs that are completed.
        failed_on_purpose: Jobs that their handlers failed for good, as they should.
        crashed_out: Jobs that failed since they had crashed too often, each time by a
            fault.
        executions: How often a handler began.
        ran_again: Jobs without steps that were executed more than once.
        repeats: Why: how executions ended that were followed by another claim.
        unbegun: Crashes of claims whose handler had not begun.
        blamed: By fault, the crashes and passing failures that it explains.
        effects: Rows that handlers have committed with the end of their job.
        stepped: Jobs with steps that are completed.
        in_django: Jobs that a transaction of Django's has completed.
        keyed: Jobs with a concurrency key that are completed.
        wakes: How often a sleep's end, an event or a job's end has begun an execution.
        judged_wakes: Those that no fault met.
        latest_wake: Of these, for how many seconds at most younger jobs were begun,
            that were enqueued after the answer was there.
        lost: Jobs that were acknowledged and have no row, or have not ended.
        doubled_effects: Jobs whose effect is there more than once.
        problems: Why not every job is accounted for; each names the first five.
    """

    enqueued: int
    settled: int
    completed: int
    failed_on_purpose: int
    crashed_out: int
    executions: int
    ran_again: int
    repeats: dict[str, int]
    unbegun: int
    blamed: dict[str, int]
    effects: int
    stepped: int
    in_django: int
    keyed: int
    wakes: int
    judged_wakes: int
    latest_wake: float
    lost: int
    doubled_effects: int
    problems: tuple[str, ...]

    @property
    def accounts_for_every_job(self) -> bool:
        """Whether nothing is lost, doubled or unexplained."""
        return not self.problems


async def account(
    connection: Connection,
    run: Run,
    enqueued: int,
    settled: int,
    strikes: Sequence[Strike],
) -> Account:
    """Draw it up, when nothing of the run goes on any more.

    Args:
        connection: A session for its temporary tables.
        run: The run.
        enqueued: How many jobs its load has inserted, with the serials from 1 on.
        settled: As the load says.
        strikes: What was done to it.
    """
    await _gather(connection, run, strikes)
    problems: list[str] = []

    async def count(sets: dict[str, str]) -> int:
        total = 0
        for sentence, ids in sets.items():
            query = _COUNT.format(ids.format(run.schema, enqueued, _LATE_SECONDS))
            row = await connection.fetchrow(query)
            if row is not None and row["count"]:
                total += row["count"]
                first = ", ".join(map(str, row["first"]))
                problems.append(f"jobs {sentence}: {row['count']} ({first})")
        return total

    async def counts(query: str) -> dict[str, int]:
        return {row[0]: int(row[1]) for row in await connection.fetch(query)}

    lost = await count(_LOST)
    doubled_effects = await count(_DOUBLED_EFFECTS)
    await count(_WRONG)
    figures = await connection.fetchrow(_FIGURES.format(run.schema))
    return Account(
        **dict(figures or {}),
        enqueued=enqueued,
        settled=settled,
        repeats=await counts(_REPEATS),
        blamed=await counts(_BLAMED),
        lost=lost,
        doubled_effects=doubled_effects,
        problems=tuple(problems),
    )


async def _gather(connection: Connection, run: Run, strikes: Sequence[Strike]) -> None:
    """Bring all together in temporary tables, so that it is joined and not asked."""
    await connection.execute(_TABLES)
    await connection.copy_to_table("executions", source=_read(run.journal))
    await connection.copy_records_to_table(
        "strikes",
        records=[(s.fault, s.began_at, s.healed_at, list(s.victims)) for s in strikes],
    )
    await connection.copy_to_table("calls", source=_read(run.calls))
    await connection.execute(_JOBS, run.queue, STEPS_KIND, DJANGO_KINDS)
    await connection.execute("analyze executions; analyze calls; analyze jobs")
    await connection.execute(_ENDS, ON_PURPOSE, AFTERMATH_SECONDS)
    await connection.execute(_SUMS)
    await connection.execute(_STEPS.format(run.schema))
    await connection.execute("analyze ends; analyze sums; analyze steps")
    await connection.execute(_WAKES)


async def _read(journal: Path) -> AsyncIterator[bytes]:
    """Yield the lines of all processes; one torn by a kill had begun nothing."""
    async for path in anyio.Path(journal).glob("*"):
        lines = await path.read_bytes()
        yield lines[: lines.rfind(b"\n") + 1]
