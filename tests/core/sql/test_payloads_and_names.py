"""What may stand in a job: sizes, hostile names, and what PostgreSQL itself refuses."""

import json
from typing import Any

import pytest

from support import Connection
from support.sql.helpers import call, claim, insert, job, pair, refused, rows, set_queue

MIB = 1048576
AROUND = len('{"a": ""}')

NAMES = [
    "MyQueue",
    "my-queue",
    "my queue",
    " ",
    'quote"inside',
    "apo'strophe",
    "semi;colon--",
    "'; drop table pgwake.jobs; --",
    "back\\slash",
    "%s %(name)s {name} $1",
    'x"; drop table pgwake.jobs; -- %I %L',
    "U&'\\0027; drop table pgwake.jobs; --' $$",
    "schema.with.dots",
    "1 leading digit",
    "tab\tand\nnewline",
    "\x01\x7f",
    "emoji \N{ELEPHANT}",
    "\N{RIGHT-TO-LEFT OVERRIDE}reversed",
    "caf\u00e9",
    "cafe\u0301",
    "\N{ELEPHANT}" * 32,  # 128 bytes
]


@pytest.mark.parametrize("name", NAMES)
async def test_any_name_goes_through_the_whole_life_of_a_job(
    db: Connection, name: str
) -> None:
    await call(db, "enqueue", kind=name, queue=name, unique_key=name)
    await set_queue(db, name, max_attempts=3)
    (claimed,) = await claim(db, queue=name, worker=name)
    assert (claimed["kind"], claimed["queue"]) == (name, name)
    assert await call(db, "fail_job", **pair(claimed), error=name) == "retry"
    await call(db, "cancel_job", job_id=claimed["id"])

    (stats,) = await rows(db, "get_queue_stats", queue=name)
    assert (stats["queue"], stats["cancelled_count"]) == (name, 1)
    ended = await call(db, "get_job", job_id=claimed["id"])
    assert ended["errors"][0]["worker"] == ended["errors"][0]["message"] == name


async def test_composed_and_decomposed_letters_are_two_queues(db: Connection) -> None:
    composed = await insert(db, queue="caf\u00e9")
    decomposed = await insert(db, queue="cafe\u0301")

    assert [j["id"] for j in await claim(db, 9, "caf\u00e9")] == [composed]
    assert [j["id"] for j in await claim(db, 9, "cafe\u0301")] == [decomposed]


@pytest.mark.parametrize(
    "name", ["x" * 128, "é" * 64], ids=["128 letters", "64 letters of two bytes"]
)
async def test_a_name_of_128_bytes_is_taken(db: Connection, name: str) -> None:
    assert await insert(db, name, queue=name)


@pytest.mark.parametrize("size", [1000, 7900, 8000, MIB - AROUND])
async def test_a_payload_of_up_to_1_mib_is_taken_and_given_back(
    db: Connection, size: int
) -> None:
    payload = {"a": "x" * size}
    await insert(db, payload=payload)

    (claimed,) = await claim(db)
    assert claimed["payload"] == payload


@pytest.mark.parametrize("size", [MIB - AROUND + 1, 50 * MIB])
async def test_a_larger_payload_is_refused_by_name(db: Connection, size: int) -> None:
    with refused("23514", by="jobs_payload_is_at_most_1_mib"):
        await insert(db, payload={"a": "x" * size})


async def test_a_payload_that_is_stored_compressed_elsewhere_counts_in_full(
    db: Connection,
) -> None:
    await db.execute("create table outbox (payload jsonb)")
    await db.execute("insert into outbox values ($1)", {"a": "x" * 2 * MIB})

    with refused("23514", by="jobs_payload_is_at_most_1_mib"):
        await db.execute(
            "insert into pgwake.jobs (kind, payload) select 'a', payload from outbox"
        )


async def test_a_payload_that_is_short_in_jsonb_and_long_as_text_counts_as_text(
    db: Connection,
) -> None:
    numbers = "1e131071, " * 8 + "1"
    with refused("23514", by="jobs_payload_is_at_most_1_mib"):
        await db.execute(
            "insert into pgwake.jobs (kind, payload)"
            f""" values ('a', '{{"a": [{numbers}]}}')"""
        )


@pytest.mark.parametrize(
    "payload",
    [
        {},
        {"": ""},
        {"nested": [{"a": [None, True, 1.5, "\N{ELEPHANT}"]}]},
        {"big": 2**80, "exact": 0.1},
        {"quote": "'; drop table pgwake.jobs; --", "back": "\\u0041 \\\\ \\n"},
    ],
)
async def test_a_payload_comes_back_as_it_was(
    db: Connection, payload: dict[str, Any]
) -> None:
    job_id = await call(db, "enqueue", kind="a", payload=payload)

    assert (await job(db, job_id))["payload"] == payload


async def test_a_thousand_keys_of_a_batch_are_no_matter_to_notify(
    db: Connection,
) -> None:
    keys = [f"{n:0512}" for n in range(1000)]
    inserted = await db.execute(
        "insert into pgwake.jobs (kind, unique_key) select 'a', unnest($1::text[])",
        keys,
    )
    assert inserted == "INSERT 0 1000"


@pytest.mark.parametrize("column", ["kind", "queue", "unique_key"])
async def test_postgresql_refuses_nul_in_a_name(db: Connection, column: str) -> None:
    with refused("22021"):
        await insert(db, **{column: "a\0b"})


@pytest.mark.parametrize("payload", [{"a": "x\0y"}, {"x\0y": 1}])
async def test_postgresql_refuses_nul_in_json(
    db: Connection, payload: dict[str, Any]
) -> None:
    with refused("22P05"):
        await insert(db, payload=payload)


@pytest.mark.parametrize("text", ['{"a": NaN}', '{"a": "\\ud800"}', "{'a': 1}"])
async def test_postgresql_refuses_what_is_not_json(db: Connection, text: str) -> None:
    with refused("22P02"):
        await db.execute(
            "insert into pgwake.jobs (kind, payload) values ('a', $1::text::jsonb)",
            text,
        )


async def test_postgresql_refuses_nul_in_a_worker_and_in_an_error(
    db: Connection,
) -> None:
    await insert(db)
    with refused("22021"):
        await claim(db, worker="a\0b")
    (claimed,) = await claim(db)
    with refused("22021"):
        await call(db, "fail_job", **pair(claimed), error="a\0b")

    assert await call(db, "fail_job", **pair(claimed), error="ab") == "retry"


async def test_a_result_with_nul_is_refused_and_the_job_goes_on(db: Connection) -> None:
    await insert(db)
    (claimed,) = await claim(db)
    with refused("22P05"):
        await call(db, "complete_job", **pair(claimed), result={"a": "\0"})

    outcome = await call(db, "fail_job", **pair(claimed), error=json.dumps({"a": "\0"}))
    assert outcome == "retry"
