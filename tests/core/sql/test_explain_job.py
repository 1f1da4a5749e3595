"""explain_job in words: each sentence, of a job that was brought there."""

import json
import re
from datetime import timedelta
from typing import Any

import asyncpg
import pytest

from support import Connection
from support.sql.helpers import (
    Row,
    call,
    claim,
    claim_batch,
    insert,
    insert_many,
    job,
    job_in,
    pair,
    pairs,
    running,
    set_clock,
    set_kind,
    set_queue,
    sweep,
)

NO_WORKER = "No worker is live: none has reported itself within 30 seconds."


async def explain(db: Connection, job_id: int) -> str:
    text: str = await call(db, "explain_job", job_id=job_id)
    return text


async def test_what_it_waits_for_and_until_when(db: Connection) -> None:
    held = other = await running(db)
    hour = timedelta(hours=1)
    for function, arguments, line in (
        ("await_event", {"event": "order:42", "timeout": hour}, 'event "order:42"'),
        ("await_job", {"other_id": other["id"]}, f"the end of job {other['id']}"),
    ):
        held = await running(db)
        await call(db, function, **pair(held), **arguments)
        text = await explain(db, held["id"])
        until = "until " if "timeout" in arguments else "without a time-out."
        assert f"It waits for {line} since " in text
        assert f"Z (0 ms ago), {until}" in re.sub(r"\([^)]* ago\)", "(0 ms ago)", text)
    await call(db, "complete_job", **pair(other))
    assert "ago), and is woken: the next claim" in await explain(db, held["id"])
    (held,) = await claim(db)
    until = await db.fetchval("select now() + interval '1 hour'")
    await call(db, "sleep_job", **pair(held), name="nap", until=until)
    assert 'It sleeps (step "nap") until 20' in await explain(db, held["id"])


async def report(
    db: Connection,
    worker: str = "w1",
    queues: tuple[str, ...] = ("default",),
    kinds: tuple[str, ...] = ("noop",),
) -> None:
    await call(
        db,
        "report_worker",
        worker=worker,
        host="h",
        pid=1,
        queues=list(queues),
        kinds=list(kinds),
    )


async def limit_key(db: Connection, key: str, limit: int) -> None:
    await db.execute(
        "insert into pgwake.concurrency_limits values ('default', $1, $2)", key, limit
    )


async def holding(db: Connection, **columns: Any) -> int:
    """A pending job with a concurrency key, as if the key had let it in."""
    job_id = await insert(db, concurrency_key="k", **columns)
    await db.execute("update pgwake.jobs set status = 'pending' where id = $1", job_id)
    return job_id


async def test_it_says_what_the_job_is_and_what_comes_first(db: Connection) -> None:
    job_id = await insert(db, "mail", queue="post", priority=7)
    text = await explain(db, job_id)

    assert text.startswith(
        f'Job {job_id} is pending. Kind "mail", queue "post", priority 7, created 20'
    )


async def test_a_job_that_is_next_is_said_to_be(db: Connection) -> None:
    await report(db)
    job_id = await insert(db)

    assert (await explain(db, job_id)).splitlines()[1] == (
        "It is the next of its queue: whoever claims next takes it."
    )


async def test_a_job_that_is_not_due_says_until_when(db: Connection) -> None:
    job_id = await call(db, "enqueue", kind="noop", delay=timedelta(minutes=5))
    text = await explain(db, job_id)

    assert "It is not due until " in text
    assert "(in 5 min)" in text
    assert "next of its queue" not in text

    await set_clock(db, "6 min")
    assert "not due" not in await explain(db, job_id)


async def test_a_paused_queue_says_until_when(db: Connection) -> None:
    job_id = await insert(db, queue="it's")
    await call(db, "pause_queue", queue="it's")
    assert (
        "Its queue is paused until somebody calls pgwake.resume_queue('it''s')."
        in await explain(db, job_id)
    )

    now = await call(db, "now")
    await call(db, "pause_queue", queue="it's", until=now + timedelta(hours=3))
    assert "Its queue is paused until 20" in await explain(db, job_id)
    assert "(in 3 h)" in await explain(db, job_id)

    await call(db, "resume_queue", queue="it's")
    assert "paused" not in await explain(db, job_id)


async def test_a_key_at_its_limit_names_who_holds_it(db: Connection) -> None:
    held = await holding(db)
    (claimed,) = await claim(db, worker="w7")
    assert claimed["id"] == held
    job_id = await insert(db, concurrency_key="k")

    assert (
        'Its concurrency key "k" is at its limit of 1 (key_limit of the queue):'
        f' job {held} (running on "w7" since 20' in await explain(db, job_id)
    )


async def test_a_key_with_a_limit_of_its_own_says_so_and_names_five(
    db: Connection,
) -> None:
    await limit_key(db, "k", 6)
    holders = [await holding(db) for _ in range(6)]
    job_id = await insert(db, concurrency_key="k")
    text = await explain(db, job_id)

    assert 'key "k" is at its limit of 6 (pgwake.concurrency_limits): job' in text
    assert f"job {holders[4]} (pending, due 20" in text
    assert f"job {holders[5]}" not in text
    assert " and 1 more." in text


async def test_another_keys_jobs_and_another_queues_hold_nothing(
    db: Connection,
) -> None:
    await set_queue(db, key_limit=1)
    await holding(db, queue="other")
    job_id = await insert(db, concurrency_key="k")

    text = await explain(db, job_id)
    assert 'Its concurrency key "k" has room (0 of 1 taken): the next claim' in text


async def test_a_key_whose_limit_is_0_is_closed(db: Connection) -> None:
    await limit_key(db, "k", 0)
    job_id = await insert(db, concurrency_key="k")

    assert (
        'Its concurrency key "k" is closed: its limit in pgwake.concurrency_limits is 0'
        in await explain(db, job_id)
    )


async def test_jobs_that_come_before_it_for_its_key_are_counted(db: Connection) -> None:
    first = await insert(db, concurrency_key="k", priority=1)
    await insert(db, concurrency_key="k")
    job_id = await insert(db, concurrency_key="k")
    await insert(db, concurrency_key="k", priority=-1)
    later = timedelta(hours=1)
    await call(db, "enqueue", kind="noop", concurrency_key="k", priority=2, delay=later)

    sentence = 'Its concurrency key "k" has room (0 of 1 taken). Due jobs that'
    assert sentence in await explain(db, job_id)
    assert "wait for it and come first: 2." in await explain(db, job_id)
    assert "(0 of 1 taken): the next claim" in await explain(db, first)


async def test_a_job_that_waits_for_others_names_those_that_are_left(
    db: Connection,
) -> None:
    parents = [await insert(db, priority=-n) for n in range(8)]
    (job,) = await claim(db)
    assert job["id"] == parents[0]
    job_id = await insert(db, depends_on=parents)

    text = await explain(db, job_id)
    assert (
        f"It waits for 8 of the 8 jobs that it depends on: job {parents[0]} (running"
        in text
    )
    assert f"job {parents[4]} (pending, due " in text
    assert f"job {parents[5]} " not in text
    assert "and 3 more." in text

    await call(db, "complete_jobs", **pairs(job))
    assert "It waits for 7 of the 8 jobs" in await explain(db, job_id)
    await db.execute("delete from pgwake.jobs_live where id = any ($1)", parents)
    assert "The jobs that it depends on have ended" in await explain(db, job_id)


async def test_a_job_that_a_parent_has_cancelled_names_it(db: Connection) -> None:
    parent = await insert(db)
    job_id = await insert(db, depends_on=[parent])
    await call(db, "cancel_job", job_id=parent)
    await claim(db)

    text = await explain(db, job_id)
    assert f"Job {job_id} is cancelled." in text
    assert f'parent_failed, "parent {parent} did not complete"' in text


async def test_a_queue_at_its_max_running_names_who_runs(db: Connection) -> None:
    await set_queue(db, max_running=2)
    first, second = await insert(db), await insert(db)
    await claim(db, 1, worker="w1")
    job_id = await insert(db)
    assert "max_running" not in await explain(db, job_id)
    await claim(db, 1, worker="w2")

    text = await explain(db, job_id)
    assert "Its queue runs 2 at once (max_running), and as many run: job" in text
    assert f'job {first} (running on "w1"' in text
    assert f'job {second} (running on "w2"' in text


async def test_a_rate_that_is_used_up_says_when_the_next_token_comes(
    db: Connection,
) -> None:
    await set_queue(db, rate_limit=0.01)
    job_id = await insert(db)
    assert "rate limit" not in await explain(db, job_id)
    await db.execute(
        "insert into pgwake.rate_buckets values ('default', 0.5, pgwake.now())"
    )
    text = await explain(db, job_id)

    assert "Its queue's rate limit (0.01 claims a second) is used up; the next" in text
    # half a token short at one in 100 seconds, less what these statements took
    assert re.search(r"\(in (50|4\d)(\.\d)? s\)", text)

    await set_clock(db, "100 s")
    assert "rate limit" not in await explain(db, job_id)


async def test_a_key_that_has_used_its_rate_says_when_it_goes_on(
    db: Connection,
) -> None:
    await set_queue(db, key_rate=0.01)
    await running(db, concurrency_key="other")
    job_id = await insert(db, concurrency_key="k")
    assert "rate" not in await explain(db, job_id)
    await db.execute(
        "insert into pgwake.key_buckets"
        " values ('default', 'k', pgwake.now() + interval '50 s')"
    )
    text = await explain(db, job_id)

    assert 'key "k" has used its rate (0.01 starts a second); the next can be' in text
    assert re.search(r"\(in (50|4\d)(\.\d)? s\)", text)

    await set_clock(db, "51 s")
    assert "rate" not in await explain(db, job_id)


async def test_jobs_before_it_are_counted_in_the_order_of_claims(
    db: Connection,
) -> None:
    first = await insert(db)
    higher = await insert(db, priority=5)
    job_id = await insert(db)
    await insert(db, priority=-5)
    await insert(db, queue="other")
    await call(db, "enqueue", kind="noop", priority=9, delay=timedelta(hours=1))

    assert "then id): 2." in await explain(db, job_id)
    assert "then id): 1." in await explain(db, first)
    assert "It is the next of its queue" in await explain(db, higher)


async def test_the_place_is_the_one_in_which_it_is_claimed(db: Connection) -> None:
    ids = [
        await insert(db, priority=priority) for priority in (0, 3, -2, 3, 0, 100, -100)
    ]
    places = {}
    for job_id in ids:
        text = await explain(db, job_id)
        last = text.splitlines()[-2]
        places[job_id] = 0 if "is the next" in last else int(last[:-1].split()[-1])

    claimed = (await claim_batch(db, 10))["ids"]
    assert [places[job_id] for job_id in claimed] == list(range(7))


async def test_the_count_of_those_before_it_stops_at_10000(db: Connection) -> None:
    await insert_many(db, 10_001)
    job_id = await insert(db)

    assert (
        "come first (priority, then run_at, then id): 10000 or more."
        in await explain(db, job_id)
    )


async def test_without_any_worker_it_says_so(db: Connection) -> None:
    job_id = await insert(db)
    assert NO_WORKER in await explain(db, job_id)

    await report(db)
    assert NO_WORKER not in await explain(db, job_id)
    await set_clock(db, "31 s")
    assert NO_WORKER in await explain(db, job_id)


async def test_a_queue_that_nobody_works_on_is_told_with_those_who_live(
    db: Connection,
) -> None:
    await report(db, "w1", queues=("a", "b"))
    job_id = await insert(db)

    assert (
        'No live worker works on queue "default". Live are: "w1" on "a, b".'
        in await explain(db, job_id)
    )


async def test_a_kind_that_nobody_handles_is_told_with_who_could(
    db: Connection,
) -> None:
    await report(db, "w1", kinds=("other",))
    job_id = await insert(db)
    sentence = 'No live worker of queue "default" handles kind "noop". On the queue'
    text = await explain(db, job_id)
    assert f'{sentence} are: "w1".\n' in text

    await report(db, "w2", queues=("elsewhere",))
    text = await explain(db, job_id)
    assert f'{sentence} are: "w1". It is handled by "w2" on "elsewhere".' in text

    await report(db, "w3")
    assert "handle" not in await explain(db, job_id)


async def test_many_workers_are_told_as_five(db: Connection) -> None:
    for n in range(1, 8):
        await report(db, f"w{n}", kinds=("other",))
    job_id = await insert(db)
    text = await explain(db, job_id)

    assert '"w5" and 2 more.' in text
    assert "w6" not in text


async def test_a_crash_says_how_it_will_be_claimed(db: Connection) -> None:
    job_id = await insert(db)
    await claim(db)
    await sweep(db, "1 hour")
    assert "It has crashed once: a claim takes only one" in await explain(db, job_id)
    await claim(db)
    await sweep(db, "2 hours")
    text = await explain(db, job_id)

    assert "It has crashed 2 times, so it is a suspect and runs alone: " in text
    assert "It is the next of its queue" in text
    assert text.count(": crashed, ") == 2


async def test_a_suspect_waits_behind_suspects_alone(db: Connection) -> None:
    first, second = await insert(db), await insert(db)
    for offset in ("1 hour", "2 hours"):
        for _ in range(2):
            assert await claim(db)
        await sweep(db, offset)
    await insert(db, priority=9)

    assert "It is the next of its queue" in await explain(db, first)
    assert "then id): 1." in await explain(db, second)


async def test_bounces_are_told_of_the_job_and_of_its_kind(db: Connection) -> None:
    held = await running(db)
    await call(db, "release_jobs", **pairs(held), reason="unknown_kind")
    text = await explain(db, held["id"])
    assert "It was given back unfinished once: by workers that don't know" in text

    other = await running(db)
    await call(db, "release_jobs", **pairs(other), reason="unknown_kind")
    text = await explain(db, held["id"])
    assert (
        'don\'t know kind "noop" have given back 2 of its jobs, the last at 2' in text
    )


async def test_a_running_job_says_who_and_since_when_and_until_when(
    db: Connection,
) -> None:
    held = await running(db)
    text = await explain(db, held["id"])
    assert f"Job {held['id']} is running." in text
    assert 'It was claimed by "w1" at 20' in text
    assert "ago), for attempt 1." in text
    assert "That worker does not report itself." in text
    assert "Its lease lasts until 20" in text
    assert "(in 5 min), if it is not renewed." in text

    await report(db)
    assert "That worker is live, seen at 20" in await explain(db, held["id"])


async def test_a_running_job_whose_lease_ran_out_says_who_gives_it_back(
    db: Connection,
) -> None:
    await report(db)
    held = await running(db)
    await set_clock(db, "10 min")
    text = await explain(db, held["id"])

    assert "That worker may be dead: it was last seen at 20" in text
    assert "Its lease ran out at 20" in text
    assert "select pgwake.maintain('sweep')" in text


async def test_a_job_to_be_cancelled_says_since_when_and_who_holds_it(
    db: Connection,
) -> None:
    held = await running(db)
    await call(db, "cancel_job", job_id=held["id"])
    text = await explain(db, held["id"])

    assert "It is to be cancelled since 20" in text
    assert 'ago); "w1" hears of it' in text


async def test_a_completed_job_says_when_and_by_whom(db: Connection) -> None:
    job_id = await job_in(db, "completed")
    text = await explain(db, job_id)

    assert 'run by "w1" in ' in text
    assert text.endswith("ms, attempt 1.")
    assert "Policy" not in text


async def test_a_dead_letter_says_what_happened_and_how_to_run_it_again(
    db: Connection,
) -> None:
    held = await running(db)
    error = "the disk is full\nand a second line"
    await call(db, "fail_job", **pair(held), error=error, retryable=False)
    text = await explain(db, held["id"])

    assert "It failed for good at 20" in text
    assert "Attempts: 1, crashes: 0." in text
    assert f"select pgwake.retry_job({held['id']})." in text
    (attempt,) = text.split("Failed attempts:\n")[1].splitlines()
    assert attempt.startswith("  attempt 1 at 20")
    assert attempt.endswith(' on "w1": failed, "the disk is full"')

    await call(db, "retry_job", job_id=held["id"])
    assert "the disk is full" in await explain(db, held["id"])


async def test_a_cancelled_job_says_so(db: Connection) -> None:
    job_id = await insert(db)
    await call(db, "cancel_job", job_id=job_id)
    text = await explain(db, job_id)
    assert "It was cancelled at 20" in text
    assert "ago), before it was run." in text
    assert f"select pgwake.retry_job({job_id})." in text

    job_id = await job_in(db, "cancelled")
    assert ", asked for at 20" in await explain(db, job_id)


@pytest.mark.parametrize("of", ["default", "queue", "kind", "operator", "job"])
async def test_each_value_of_the_policy_names_its_source_and_is_the_one_that_holds(
    db: Connection, of: str
) -> None:
    policy: dict[str, Any] = {
        "max_attempts": 3,
        "backoff_base": timedelta(seconds=7),
        "backoff_cap": timedelta(minutes=7),
        "backoff_jitter": 0.25,
        "timeout": timedelta(seconds=70),
        "lease": timedelta(minutes=9),
    }
    # each level gets what the ones before it would have, and what it adds itself
    if of != "default":
        other = {**policy, "max_attempts": 9} if of != "queue" else policy
        await set_queue(db, **other, max_crashes=2)
    declared = {f"declared_{name}": value for name, value in policy.items()}
    if of == "kind":
        await set_kind(db, **declared)
    elif of in ("operator", "job"):
        declared["declared_max_attempts"] = 9
        await set_kind(db, **declared, **policy)
    own = {"max_attempts": 5} if of == "job" else {}
    job_id = await insert(db, **own)

    lines = await db.fetchval(
        "select pgwake.explain_policy(j) from pgwake.jobs_live as j where id = $1",
        job_id,
    )
    row = await db.fetchrow("select * from pgwake.get_policy('default', 'noop')")
    assert row is not None
    holds = {**dict(row), **own}
    for line in lines:
        name, _, rest = line.partition(" ")
        shown, source = rest.removesuffix(")").split(" (")
        text = await db.fetchval(f"select {_literal(name)}", holds[name])
        assert shown == (text or "none"), name
        level = "operator" if of == "job" and name != "max_attempts" else of
        if name == "max_crashes":
            level = "default" if of == "default" else "queue"
        assert source == level, line
    assert f"Policy: attempt 0, crash 0; {', '.join(lines)}." in await explain(
        db, job_id
    )


def _literal(name: str) -> str:
    kind = {"max_attempts": "int", "max_crashes": "int", "backoff_jitter": "float8"}
    return f"$1::{kind.get(name, 'interval')}::text"


async def test_names_can_not_pass_for_lines_nor_drive_a_terminal(
    db: Connection,
) -> None:
    kind = "a\nJob 1 is completed.\x1b[31m\x9b"
    job_id = await insert(db, kind, queue="q\x07", concurrency_key="k\r")
    text = await explain(db, job_id)

    assert not [c for c in text if not c.isprintable() and c != "\n"]
    assert "\nJob 1 is completed" not in text
    assert '"a?Job 1 is completed.?[31m?"' in text


async def test_a_long_name_is_clipped(db: Connection) -> None:
    held = await running(db)
    await call(db, "fail_job", **pair(held), error="x" * 2000)

    text = await explain(db, held["id"])
    assert '"' + "x" * 200 + '..."' in text
    assert "x" * 201 not in text


@pytest.mark.parametrize(
    "errors", [[{}], [1, None, "x"], [{"at": "never", "message": 1}], [[]]]
)
async def test_errors_written_by_hand_break_nothing(
    db: Connection, errors: Any
) -> None:
    job_id = await insert(db, errors=errors)
    assert "Failed attempts:" in await explain(db, job_id)

    job_id = await insert(db, errors={"no": "list"})
    assert "Failed attempts:" not in await explain(db, job_id)


async def test_any_time_that_a_job_may_have_can_be_said(db: Connection) -> None:
    times = await db.fetch(
        "insert into pgwake.jobs (kind, run_at, created_at) values"
        " ('a', '0001-01-02 00:00+00', '0001-01-02 00:00+00'),"
        " ('a', '9999-12-30 00:00+00', '9999-12-30 00:00+00') returning id"
    )
    old, new = [await explain(db, row["id"]) for row in times]
    assert "created 0001-01-02 00:00:00Z (" in old
    assert "It is not due until 9999-12-30 00:00:00Z (in " in new


async def test_times_are_said_in_utc_whatever_the_session_has(db: Connection) -> None:
    job_id = await insert(db)
    told = await explain(db, job_id)
    await db.execute("set timezone = 'Pacific/Kiritimati'")
    created = (await job(db, job_id))["created_at"]

    assert f"created {created:%Y-%m-%d %H:%M:%S}Z" in told
    assert f"created {created:%Y-%m-%d %H:%M:%S}Z" in await explain(db, job_id)


async def test_it_reads_only_so_that_a_standby_may_answer(db: Connection) -> None:
    jobs = [
        await insert(db),
        await insert(db, concurrency_key="k"),
        *[await job_in(db, s, queue=s) for s in ("running", "failed")],
        await job_in(db, "completed", queue="completed"),
    ]
    async with db.transaction(readonly=True):
        for job_id in jobs:
            assert await explain(db, job_id)
        with pytest.raises(asyncpg.ReadOnlySQLTransactionError):
            await insert(db)


async def test_it_waits_for_nobodys_lock(db: Connection, other: Connection) -> None:
    job_id = await insert(db)
    async with other.transaction():
        await other.execute("select from pgwake.jobs_live for update")
        assert await explain(db, job_id)


@pytest.mark.own_database
async def test_a_long_queue_costs_no_more_than_a_short_one(db: Connection) -> None:
    await insert_many(db, 30_000)
    await db.execute(
        "insert into pgwake.jobs (kind, concurrency_key)"
        " select 'noop', 'k' from generate_series(1, 30000)"
    )
    await db.execute("vacuum pgwake.jobs_live")
    plain = await insert(db)
    waiting = await insert(db, concurrency_key="k")
    alone = await insert(db, queue="alone")

    small = await buffers(db, alone)
    # 10,000 entries of an index lie on so many pages; 30,000 on three times as many
    assert await buffers(db, plain) < small + 400
    assert await buffers(db, waiting) < small + 100


async def buffers(db: Connection, job_id: int) -> int:
    await explain(db, job_id)
    text: str = await db.fetchval(
        "explain (analyze, buffers, timing off, format json)"
        f" select pgwake.explain_job({job_id})"
    )
    top: Row = json.loads(text)[0]["Plan"]
    hits: int = top["Shared Hit Blocks"]
    reads: int = top["Shared Read Blocks"]
    return hits + reads
