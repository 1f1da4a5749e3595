"""POST /queues/{name}/push: all jobs of a request, or none."""

import asyncio
import contextlib
import json
import tracemalloc
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from typing import Any

import httpx
import pytest
import structlog

from pgwake import Registry
from support import Connection
from support.sql.helpers import insert, job, job_in, running, set_queue
from support.worker.api import problem, serving
from support.worker.helpers import ended

JSON = {"Content-Type": "application/json"}


async def push(api: httpx.AsyncClient, text: str | bytes) -> httpx.Response:
    return await api.post("/queues/q/push", content=text, headers=JSON)


async def jobs_there(connection: Connection) -> int:
    count: int = await connection.fetchval("select count(*) from pgwake.jobs")
    return count


async def test_a_job_is_pushed_and_run(connection: Connection, database: str) -> None:
    registry = Registry()

    @registry.job("add")
    async def add(a: int, b: int) -> int:
        return a + b

    async with serving(database, registry) as api:
        body = {"kind": "add", "payload": {"a": 1, "b": 2}}
        answer = await api.post("/queues/default/push", json=body)
        assert answer.status_code == 201
        (job_id,) = answer.json()["ids"]
        assert answer.json() == {
            "ids": [job_id],
            "jobs": [{"id": job_id, "is_new": True}],
        }
        assert (await ended(connection, job_id))["result"] == 3


@pytest.mark.usefixtures("connection")
async def test_at_debug_level_what_is_pushed_is_a_line(database: str) -> None:
    async with serving(database) as api:
        with structlog.testing.capture_logs() as lines:
            ids = (await push(api, '{"kind": "a", "payload": {"b": 1}}')).json()["ids"]
            await push(api, '{"jobs": [{"kind": "a"}, {"kind": "b"}]}')

    assert [line for line in lines if line["log_level"] == "debug"] == [
        {"event": "job enqueued", "job": ids[0], "kind": "a", "queue": "q"}
        | {"log_level": "debug"},
        {"event": "jobs enqueued", "count": 2, "queue": "q", "log_level": "debug"},
    ]


async def test_all_that_enqueue_takes_is_taken(
    connection: Connection, database: str
) -> None:
    parent = await insert(connection)
    body = {
        "kind": "x",
        "payload": {"a": [None, True, "\N{SNOWMAN}"]},
        "priority": -7,
        "run_at": "2099-01-01T12:00:00+02:00",
        "max_attempts": 3,
        "unique_key": "u",
        "on_conflict": "raise",
        "metadata": {"by": "me"},
        "concurrency_key": "c",
        "depends_on": [parent],
        "on_parent_failure": "run",
        "webhook": "https://example.org/hook",
        "expires_at": "2099-01-02T12:00:00+02:00",
        "unique_until": "2099-01-02T12:00:00+02:00",
    }
    async with serving(database) as api:
        answer = await api.post("/queues/q/push", json=body)
        (job_id,) = answer.json()["ids"]
        row = await job(connection, job_id)
        del body["on_conflict"]
        times = {name: row[name] for name in ("run_at", "expires_at", "unique_until")}
        assert row | body | times == row
        assert row["queue"] == "q"
        assert row["run_at"] == datetime(2099, 1, 1, 10, tzinfo=UTC)
        assert answer.json()["jobs"] == [{"id": job_id, "is_new": True}]
        assert (
            row["expires_at"]
            == row["unique_until"]
            == datetime(2099, 1, 2, 10, tzinfo=UTC)
        )

        answer = await api.post(
            "/queues/q/push", json={"kind": "y", "delay_seconds": 90.5}
        )
        row = await job(connection, answer.json()["ids"][0])
        assert row["run_at"] - row["created_at"] == timedelta(seconds=90.5)
        assert row["payload"] == {}

        nulls = dict.fromkeys(body) | {"kind": "z", "payload": {}}
        row = await job(
            connection, (await api.post("/queues/q/push", json=nulls)).json()["ids"][0]
        )
    assert (row["priority"], row["unique_key"], row["metadata"]) == (0, None, None)


async def test_a_payload_comes_back_to_the_last_digit(database: str) -> None:
    numbers = (
        "1e400",
        "123456789012345678901234567890",
        "0.1000000000000000055511151231257827",
        "-0.0",
        "1E-400",
    )
    odd = [
        "</script>",
        "\x7f\u2028\u202e",
        "'; drop table x; --",
        "\\u0041",
        "\U0001f600",
    ]
    payload = f'{{"n": [{",".join(numbers)}], "s": {json.dumps(odd)}}}'
    text = f'{{"kind": "x", "payload": {payload}}}'
    async with serving(database) as api:
        answer = await push(api, text)
        assert answer.status_code == 201, answer.text
        shown = (await api.get(f"/api/jobs/{answer.json()['ids'][0]}")).text
    given = json.loads(text, parse_float=str, parse_int=str)["payload"]
    found = json.loads(shown, parse_float=str, parse_int=str)["payload"]
    assert found["s"] == given["s"] == odd
    assert found["n"][1:3] == list(numbers[1:3])
    assert found["n"][0] == "1" + 400 * "0"


async def test_a_key_that_is_live_gives_that_jobs_id(
    connection: Connection, database: str
) -> None:
    live = await running(connection, kind="x", unique_key="k")
    pending = await insert(connection, kind="y", unique_key="k")
    async with serving(database) as api:
        jobs: list[dict[str, Any]] = [
            {"kind": "x", "unique_key": "k"},
            {"kind": "z", "unique_key": "k"},
            {"kind": "z", "unique_key": "k", "payload": {"a": 2}},
            {"kind": "y", "unique_key": "k", "on_conflict": "replace", "priority": 1},
            {"kind": "z"},
        ]
        found = (await api.post("/queues/q/push", json={"jobs": jobs})).json()
        assert found["ids"] == [one["id"] for one in found["jobs"]]
        is_new = [one["is_new"] for one in found["jobs"]]
        assert is_new == [False, True, False, False, True]
        assert found["ids"][0] == live["id"]
        assert found["ids"][1] == found["ids"][2]
        assert found["ids"][3] == pending
        assert (await job(connection, pending))["priority"] == 1

        # Of a running job it takes the key away.
        replacing = {"kind": "x", "unique_key": "k", "on_conflict": "replace"}
        (one,) = (await api.post("/queues/q/push", json=replacing)).json()["jobs"]
        assert one["is_new"]
        assert one["id"] != live["id"]

        jobs = [{"kind": "a"}, {"kind": "y", "unique_key": "k", "on_conflict": "raise"}]
        before = await jobs_there(connection)
        answer = await api.post("/queues/q/push", json={"jobs": jobs})
        found = problem(answer, 409, code="PW005", index=1)
        assert f"job {pending}" in found["detail"]
        assert await jobs_there(connection) == before

        await set_queue(connection, "full", max_pending=1)
        await api.post("/queues/full/push", json={"kind": "x"})
        answer = await api.post("/queues/full/push", json={"kind": "x"})
        assert "queue full is full" in problem(answer, 429, code="PW007")["detail"]
        assert answer.headers["Retry-After"] == "5"


async def test_of_pushes_of_one_key_at_once_one_is_new(
    connection: Connection, database: str
) -> None:
    async with serving(database) as api:
        body = {"jobs": [{"kind": "x", "unique_key": key} for key in "ba"]}
        answers = await asyncio.gather(
            *(api.post("/queues/q/push", json=body) for _ in range(20))
        )
    assert {answer.status_code for answer in answers} == {201}
    assert len({tuple(answer.json()["ids"]) for answer in answers}) == 1
    new = [one["is_new"] for answer in answers for one in answer.json()["jobs"]]
    assert sum(new) == 2
    assert await jobs_there(connection) == 2


async def test_the_order_of_the_answer_is_that_of_the_request(
    connection: Connection, database: str
) -> None:
    jobs = [
        {
            "kind": "x",
            "unique_key": str(9999 - n) if n % 3 else None,
            "payload": {"n": n},
        }
        for n in range(3000)
    ]
    async with serving(database) as api:
        ids = (await api.post("/queues/q/push", json={"jobs": jobs})).json()["ids"]
    rows = await connection.fetch("select id, payload ->> 'n' as n from pgwake.jobs")
    place = {row["id"]: int(row["n"]) for row in rows}
    assert [place[job_id] for job_id in ids] == list(range(3000))


BAD_JOBS: dict[str, str] = {
    '{"kind": "a", "priority": 101}': "priority",
    '{"kind": "a", "priority": 1.5}': "priority",
    '{"kind": "a", "priority": "1"}': "priority",
    '{"kind": "a", "priority": true}': "priority",
    '{"kind": ""}': "kind",
    '{"kind": 7}': "kind",
    '{"kind": null}': "kind",
    "{}": "kind",
    '{"payload": {}}': "kind",
    f'{{"kind": "{129 * "k"}"}}': "kind",
    f'{{"kind": "{65 * "ü"}"}}': "kind",
    r'{"kind": "\u0000"}': "kind",
    r'{"kind": "\ud800"}': "kind",
    '{"kind": "a", "queue": "b"}': "queue",
    '{"kind": "a", "id": 7}': "id",
    '{"kind": "a", "payload": []}': "payload",
    '{"kind": "a", "payload": null}': "payload",
    r'{"kind": "a", "payload": {"b": ["\u0000"]}}': "payload.b[0]",
    r'{"kind": "a", "payload": {"b": "\udead"}}': "payload.b",
    r'{"kind": "a", "payload": {"\u0000": 1}}': "payload.\N{REPLACEMENT CHARACTER}",
    '{"kind": "a", "payload": {"b": {"c": 1, "c": 1}}}': "payload.b",
    '{"kind": "a", "payload": {"b": 1e1001}}': "payload.b",
    '{"kind": "a", "payload": {"b": 1e99999999999999999999}}': "payload.b",
    f'{{"kind": "a", "payload": {{"b": {5000 * "9"}}}}}': "payload.b",
    '{"kind": "a", "run_at": "2099-01-01"}': "run_at",
    '{"kind": "a", "run_at": "2099-01-01T00:00:00"}': "run_at",
    '{"kind": "a", "run_at": 1}': "run_at",
    '{"kind": "a", "delay_seconds": -1}': "delay_seconds",
    '{"kind": "a", "delay_seconds": 1e999}': "delay_seconds",
    '{"kind": "a", "delay_seconds": 1, "run_at": "2099-01-01T00:00:00Z"}': "",
    '{"kind": "a", "max_attempts": 0}': "max_attempts",
    '{"kind": "a", "unique_key": ""}': "unique_key",
    f'{{"kind": "a", "unique_key": "{513 * "k"}"}}': "unique_key",
    '{"kind": "a", "on_conflict": "ignore"}': "on_conflict",
    '{"kind": "a", "metadata": 7}': "metadata",
    '{"kind": "a", "depends_on": [0]}': "depends_on[0]",
    '{"kind": "a", "depends_on": [9223372036854775808]}': "depends_on[0]",
    '{"kind": "a", "on_parent_failure": "shrug"}': "on_parent_failure",
    '{"kind": "a", "webhook": "ftp://example.org"}': "webhook",
    "[]": "",
    "7": "",
    "null": "",
    '"a"': "",
}


async def test_a_bad_job_is_named_and_nothing_is_added(
    connection: Connection, database: str
) -> None:
    async with serving(database) as api:
        for text, field in BAD_JOBS.items():
            found = problem(await push(api, text), 422)
            assert found["errors"][0]["field"] == field, text
            assert "index" not in found
            good = '{"kind": "a"}'
            batch = f'{{"jobs": [{good}, {good}, {text}, {good}]}}'
            found = problem(await push(api, batch), 422, index=2)
            where = f"jobs[2].{field}" if field else "jobs[2]"
            assert found["errors"][0]["field"] == where, text
            assert found["detail"].startswith(where)
    assert await jobs_there(connection) == 0


async def test_what_only_the_database_refuses_is_named_by_its_place_too(
    connection: Connection, database: str
) -> None:
    await connection.execute(
        "insert into pgwake.kinds (name, check_payload, declared_schema) values"
        ' (\'x\', true, \'{"type": "object", "required": ["to"]}\')'
    )
    failed = await job_in(connection, "failed")
    big = {"kind": "a", "payload": {"x": 2**19 * "'"}, "metadata": {"y": 70_000 * "y"}}
    cases: list[tuple[dict[str, Any], str]] = [
        ({"kind": "x"}, "to is missing"),
        ({"kind": "a", "depends_on": [failed, 10**9]}, "does not exist"),
        (
            {"kind": "a", "run_at": "0001-01-01T00:00:00Z"},
            "run at is in years 1 to 9999",
        ),
        ({"kind": "a", "depends_on": [7] * 10_001}, "at most 10000 items"),
        (big, "metadata is at most 64 kib"),
    ]
    before = await jobs_there(connection)
    async with serving(database, http_max_body=2**22) as api:
        for bad, words in cases:
            for place in (0, 1, 6):
                jobs = [{"kind": "a"}] * place + [bad] + [{"kind": "b"}] * (6 - place)
                answer = await api.post("/queues/q/push", json={"jobs": jobs})
                found = problem(answer, 422, index=place)
                assert words in found["detail"]
                assert len(found["detail"]) < 500
            assert (
                words
                in problem(await api.post("/queues/q/push", json=bad), 422)["detail"]
            )
    assert await jobs_there(connection) == before


async def test_what_is_no_json_is_a_problem(
    connection: Connection, database: str
) -> None:
    async with serving(database) as api:
        for text in (
            "",
            "{",
            "{'kind': 'a'}",
            '{"kind": "a",}',
            '{"kind": "a"} {}',
            '{"kind": "a", "payload": {"x": NaN}}',
            '{"kind": "a", "payload": {"x": -Infinity}}',
            '{"kind": "a", "payload": {"x": 01}}',
            '{"kind": "a\n"}',
            "\ufeff{}",
        ):
            problem(await push(api, text), 400)
        for data in (
            b'{"kind": "\xff"}',
            '{"kind": "a"}'.encode("utf-16"),
            b"\xed\xa0\x80",
        ):
            assert "UTF-8" in problem(await push(api, data), 400)["detail"]
        problem(await push(api, '{"kind": "a", "kind": "b"}'), 422)
        problem(await push(api, '{"jobs": [], "jobs": []}'), 422)
        problem(await push(api, '{"jobs": []}'), 422)
        problem(await push(api, '{"jobs": {}}'), 422)
        problem(await push(api, '{"jobs": [], "more": 1}'), 422)
        jobs = json.dumps({"jobs": [{"kind": "a"}] * 10_001})
        problem(await push(api, jobs), 422)
    assert await jobs_there(connection) == 0


async def test_payloads_are_nested_at_most_500_levels_deep(database: str) -> None:
    async with serving(database) as api:
        for opened, closed in (('{"a":', "}"), ('{"[{\\"":[', "]}")):
            for depth in (500, 50_000):
                levels = depth // len(closed)
                nested = opened * levels + "1" + closed * levels
                text = f'{{"kind": "a", "payload": {nested}}}'
                assert "nested" in problem(await push(api, text), 422)["detail"]
            levels = 499 // len(closed)
            nested = opened * levels + "1" + closed * levels
            answer = await push(api, f'{{"kind": "a", "payload": {nested}}}')
            assert answer.status_code == 201
            shown = (await api.get(f"/api/jobs/{answer.json()['ids'][0]}")).json()
            assert shown["payload"] == json.loads(nested)
        # Brackets in a text are no levels.
        answer = await push(
            api, json.dumps({"kind": "a", "payload": {"a": "[{" * 999}})
        )
        assert answer.status_code == 201


async def test_what_is_pushed_costs_time_and_memory_by_its_length(
    database: str,
) -> None:
    """A mebibyte that was 24 s for each 80 KB of it, and one that was gigabytes."""
    no_end = '{"kind":"' + r"\"" * 500_000
    long_paths = json.dumps({"a" * 20_000: [1] * 20_000, "b": "\0"})
    async with serving(database) as api:
        problem(await push(api, no_end), 400)
        tracemalloc.start()
        try:
            found = problem(
                await push(api, f'{{"kind":"a","payload":{long_paths}}}'), 422
            )
            assert tracemalloc.get_traced_memory()[1] < 50e6
        finally:
            tracemalloc.stop()
        assert found["errors"][0]["field"] == "payload.b"


async def test_a_body_that_is_not_declared_as_json_is_refused(database: str) -> None:
    async with serving(database) as api:
        for media_type in (
            "",
            "text/plain",
            "application/json; charset=latin-1",
            "json",
        ):
            headers = {"Content-Type": media_type}
            answer = await api.post(
                "/queues/q/push", content='{"kind": "a"}', headers=headers
            )
            problem(answer, 415)
        headers = {**JSON, "Content-Encoding": "gzip"}
        answer = await api.post("/queues/q/push", content=b"x", headers=headers)
        problem(answer, 415)
        headers = {"Content-Type": 'Application/JSON; charset="UTF-8"'}
        answer = await api.post(
            "/queues/q/push", content='{"kind": "a"}', headers=headers
        )
        assert answer.status_code == 201


async def test_a_body_that_is_too_large_is_refused_while_it_comes(
    connection: Connection, database: str
) -> None:
    sent = 0

    async def endless() -> AsyncIterator[bytes]:
        nonlocal sent
        yield b'{"kind": "a", "payload": {"x": "'
        while sent < 2**26:
            sent += 2**16
            yield b"x" * 2**16

    async with serving(database, http_max_body=100_000) as api:
        answer = await push(
            api, json.dumps({"kind": "a", "payload": {"x": "x" * 100_000}})
        )
        found = problem(answer, 413)
        assert "PGWAKE_HTTP_MAX_BODY" in found["hint"]
        text = '{"kind": "a", "payload": {"x": "%s"}}'
        fits = text % ("x" * (100_000 - len(text) + 2))
        assert len(fits) == 100_000
        assert (await push(api, fits)).status_code == 201
        problem(await push(api, fits + " "), 413)
        # It may be closed while it is being written.
        with contextlib.suppress(httpx.TransportError):
            answer = await api.post("/queues/q/push", content=endless(), headers=JSON)
            problem(answer, 413)
    assert sent < 2**26
    assert await jobs_there(connection) == 1


async def test_the_span_of_a_request_is_carried_in_its_jobs_metadata(
    connection: Connection, database: str
) -> None:
    parent = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
    own = {"traceparent": "00-" + "1" * 32 + "-" + "2" * 16 + "-00"}
    jobs = [{"metadata": given} for given in ({"a": 1}, own, {"a": "x" * 40_000}, None)]
    body = {"jobs": [{"kind": "x"}, *({"kind": "x", **job} for job in jobs)]}
    headers = {"traceparent": parent, "tracestate": "vendor=1"}
    carried = {"traceparent": parent, "tracestate": "vendor=1"}
    async with serving(database) as api:
        answer = await api.post("/queues/q/push", json=body, headers=headers)
        found = [
            (await job(connection, job_id))["metadata"]
            for job_id in answer.json()["ids"]
        ]
        odd = {"traceparent": "00-none", "tracestate": "vendor=1"}
        answer = await api.post("/queues/q/push", json={"kind": "x"}, headers=odd)
        (without,) = answer.json()["ids"]
    assert found == [carried, {"a": 1, **carried}, own, {"a": "x" * 40_000}, carried]
    assert (await job(connection, without))["metadata"] is None
