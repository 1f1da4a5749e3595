"""The upkeep is one worker's at a time, and the database says which steps are due."""

from typing import Any

import pytest

from support import Connection
from support.sql.helpers import call, refused, rows, set_clock
from support.sql.plans import buffers

EACH_TURN = ["schedules", "sweep", "children"]
EACH_MINUTE = ["retention", "analyze", "ids"]
W1 = {"worker": "w1", "may_sweep": True, "done": []}
ALL = [*EACH_TURN, "fold", "keys", *EACH_MINUTE, "recount"]


async def take(
    db: Connection, worker: Any = "w1", may_sweep: Any = True, done: Any = ()
) -> list[str]:
    (turn,) = await rows(
        db, "take_upkeep", worker=worker, may_sweep=may_sweep, done=done
    )
    steps: list[str] = turn["steps"]
    return steps


async def test_one_worker_has_it_until_it_does_not_come_back(db: Connection) -> None:
    assert await take(db, "w1") == ALL
    assert await take(db, "w2") == []
    await set_clock(db, "2 s")
    assert set(EACH_TURN) <= set(await take(db, "w1"))
    await set_clock(db, "4 s")
    assert await take(db, "w2") == []
    await set_clock(db, "6 s")
    assert set(EACH_TURN) <= set(await take(db, "w2"))
    assert await take(db, "w1") == []
    await set_clock(db, "-1 h")  # a clock that was put back is no reason to rest
    assert await take(db, "w1") == ALL


async def test_each_step_comes_as_often_as_it_should(db: Connection) -> None:
    async with db.transaction():  # in which the time stands
        await take(db)
        turns = await db.fetch("""
            select s.step, count(*)
            from generate_series(5, 7200, 5) as n
            cross join lateral
              set_config('pgwake.clock_offset', n || ' s', true) as clock
            cross join lateral
              pgwake.take_upkeep(left('w1', length(clock)), true, '{}') as t
            cross join lateral unnest(t.steps) as s(step)
            group by s.step
        """)

    assert {turn["step"]: turn["count"] for turn in turns} == {
        **dict.fromkeys([*EACH_TURN, "fold"], 1440),
        "keys": 720,
        **dict.fromkeys(EACH_MINUTE, 120),
        "recount": 2,
    }


async def test_the_next_worker_begins_with_all_but_the_recount(db: Connection) -> None:
    await take(db, "w1")
    await call(db, "forget_worker", worker="w1")
    assert await take(db, "w2") == ALL[:-1]
    assert await call(db, "forget_worker", worker="w1") is False
    assert await take(db, "w3") == []  # w2 has it
    assert not await db.fetch("select * from pgwake.release_worker_jobs('w2')")
    assert await take(db, "w3") == ALL[:-1]


async def test_who_may_not_sweep_yet_lets_others_before(db: Connection) -> None:
    assert await take(db, "young", may_sweep=False) == ALL
    assert await take(db, "younger", may_sweep=False) == []
    assert await take(db, "old") == ALL[:-1]
    assert await take(db, "young", may_sweep=False) == []


async def test_everybody_hears_when_a_step_was_last_done(db: Connection) -> None:
    await take(db, "w1")
    await set_clock(db, "1 s")
    await take(db, "w1", done=["sweep"])
    await set_clock(db, "3 s")
    await take(db, "w1", done=["fold"])
    await call(db, "forget_worker", worker="w1")

    for worker in ("w2", "w3"):
        (turn,) = await rows(db, "take_upkeep", worker=worker, may_sweep=True, done=[])
        assert {k: round(v) for k, v in turn["done_ago"].items()} == {
            "sweep": 2,
            "fold": 0,
        }


async def test_a_look_at_what_another_does_writes_nothing(
    db: Connection, other: Connection
) -> None:
    await take(db, "w1")
    async with other.transaction(readonly=True):
        assert await take(other, "w2") == []
        with refused("25006"):
            await take(other, "w1")


async def test_two_at_once_do_not_both_have_it(
    db: Connection, other: Connection
) -> None:
    async with db.transaction():
        assert await take(db, "w1") == ALL
        await other.execute("set lock_timeout = 1")
        with refused("55P03"):
            await take(other, "w2")
    assert await take(other, "w2") == []


async def test_under_an_old_snapshot_a_turn_costs_the_same(
    db: Connection, other: Connection
) -> None:
    await take(db)

    before = await buffers(db, "take_upkeep", **W1)
    async with other.transaction(isolation="repeatable_read"):
        await other.fetchval("select count(*) from pgwake.upkeep_turns")
        for _ in range(1000):
            await take(db)
        assert await buffers(db, "take_upkeep", **W1) < before + 20


@pytest.mark.parametrize(
    ("worker", "may_sweep", "done"),
    [
        *[("", True, []), (None, True, []), ("w", None, [])],
        *[("w", True, None), ("w", True, [None]), ("w", True, ["nothing"])],
    ],
)
async def test_what_can_not_be_meant_is_refused(
    db: Connection, worker: Any, may_sweep: Any, done: Any
) -> None:
    with refused("PW003"):
        await take(db, worker, may_sweep, done)
