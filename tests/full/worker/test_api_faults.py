"""The HTTP API when the database is away, slow, or refuses; and clients that leave."""

import asyncio
import signal
from typing import Any

import pytest

from pgwake.database.embedded import EmbeddedServer
from pgwake.http.pool import Pool
from support import Connect, Connection, free_port, wait_for
from support.relay import Relay
from support.sql.helpers import insert, status
from support.worker.api import TOKEN, answers, client, problem, serving
from support.worker.processes import StartProcess

READS = (
    "/api/queue/stats",
    "/api/queue/active-tasks",
    "/api/jobs",
    "/api/jobs/1",
    "/api/failed",
    "/api/workers",
)


async def waiting_sessions(connection: Connection) -> int:
    """How many of the API's sessions wait for a lock."""
    count: int = await connection.fetchval(
        "select count(*) from pg_stat_activity where datname = current_database()"
        " and application_name like '%/http' and wait_event_type = 'Lock'"
    )
    return count


async def test_without_the_database_answers_are_503_until_it_is_back(
    spare_server: EmbeddedServer, spare_database: str
) -> None:
    async with serving(spare_database, query_timeout=2) as api:
        pushed = await api.post("/queues/q/push", json={"kind": "a"})
        assert pushed.json()["ids"] == [1]
        await asyncio.gather(*(api.get(path) for path in READS))
        await asyncio.to_thread(spare_server._halt, "immediate")
        for path in READS:
            found = await api.get(path)
            problem(found, 503, detail="the database does not answer")
            assert int(found.headers["retry-after"]) > 0
        problem(await api.post("/queues/q/push", json={"kind": "a"}), 503)
        problem(await api.get("/api/jobs?limit=0"), 422)
        assert (await api.get("/api/queue/history")).status_code == 200
        assert (await api.get("/metrics")).status_code == 200
        await asyncio.to_thread(spare_server._launch)
        for path in READS:
            assert (await api.get(path)).status_code == 200
        assert (await api.post("/queues/q/push", json={"kind": "a"})).status_code == 201


async def test_a_restart_between_two_requests_is_not_noticed(
    spare_server: EmbeddedServer, spare_database: str
) -> None:
    async with serving(spare_database) as api:
        for mode in ("fast", "immediate"):
            await asyncio.gather(*(api.get(path) for path in READS))
            await asyncio.to_thread(spare_server.restart, mode)
            found = await asyncio.gather(
                api.get("/api/workers"),
                api.get("/api/jobs"),
                api.post("/queues/q/push", json={"kind": "a"}),
            )
            assert [one.status_code for one in found] == [200, 200, 201]


async def test_a_session_that_is_ended_under_a_question_is_replaced(
    connection: Connection, connect: Connect, database: str
) -> None:
    observer = await connect()
    job_id = await insert(connection)
    async with serving(database) as api:
        async with connection.transaction():
            await connection.execute("lock table pgwake.jobs_live")
            asking = asyncio.create_task(api.get(f"/api/jobs/{job_id}"))
            await wait_for(lambda: waiting_sessions(observer))
            ended = await observer.fetch(
                "select pid, pg_terminate_backend(pid, 5000) from pg_stat_activity"
                " where datname = current_database() and application_name like '%/http'"
            )
            assert len(ended) == 1
            await wait_for(lambda: waiting_sessions(observer))
        assert (await asking).status_code == 200


async def test_what_takes_too_long_says_to_narrow_the_filter(
    connection: Connection, database: str
) -> None:
    job_id = await insert(connection)
    async with serving(database, query_timeout=1) as api:
        async with connection.transaction():
            await connection.execute("lock table pgwake.jobs_live")
            slow = await asyncio.gather(*(api.get("/api/jobs") for _ in range(6)))
            for one in slow:
                problem(one, 503)
                assert one.headers["retry-after"]
            assert any("Narrow" in one.json()["hint"] for one in slow)
            problem(await api.post(f"/api/jobs/{job_id}/cancel"), 503)
        assert (await api.get("/api/jobs")).status_code == 200
        assert await status(connection, job_id) == "pending"


async def test_a_client_that_leaves_takes_its_question_along(
    connection: Connection, connect: Connect, database: str
) -> None:
    observer = await connect()
    await insert(connection)
    async with serving(database, query_timeout=600) as api:
        async with connection.transaction():
            await connection.execute("lock table pgwake.jobs_live")
            # More than the API has connections; each leaves once its question waits.
            for _ in range(6):
                asking = asyncio.create_task(
                    api.post("/queues/q/push", json={"kind": "a"})
                )
                await wait_for(lambda: waiting_sessions(observer))
                asking.cancel()
                await asyncio.wait({asking})

                async def none_waits() -> bool:
                    return await waiting_sessions(observer) == 0

                await wait_for(none_waits)
        assert len((await api.get("/api/jobs")).json()["jobs"]) == 1


async def test_a_client_that_leaves_before_its_transaction_is_known_leaves_none(
    connection: Connection, database: str, caplog: pytest.LogCaptureFixture
) -> None:
    states = (
        "select string_agg(state, ',') from pg_stat_activity"
        " where datname = current_database() and application_name = 'leaving'"
    )

    async def has_begun() -> bool:
        return bool(await connection.fetchval(states) == "idle in transaction")

    async def ask(session: Connection) -> Any:
        return await session.fetchval("select 1")

    async with Relay.before(database) as relay:
        pool = Pool(relay.url, "leaving", 10)
        assert await pool.read(ask) == 1
        relay.block("from the server")  # so that the answer to BEGIN is not heard
        asking = asyncio.create_task(pool.read(ask))
        await wait_for(has_begun)
        asking.cancel()
        await asyncio.sleep(0)
        await relay.heal()
        await asyncio.wait({asking})
        assert await pool.read(ask) == 1
        assert await connection.fetchval(states) == "idle"
        pool.close()
    assert not caplog.records


async def test_the_api_has_at_most_four_sessions(
    connection: Connection, connect: Connect, database: str
) -> None:
    observer = await connect()
    async with serving(database) as api:

        async def sessions() -> int:
            count: int = await observer.fetchval(
                "select count(*) from pg_stat_activity where"
                " datname = current_database() and application_name like '%/http'"
            )
            return count

        await api.get("/metrics")
        assert await sessions() == 0
        async with connection.transaction():
            await connection.execute("lock table pgwake.jobs_live")
            asking = [asyncio.create_task(api.get("/api/jobs")) for _ in range(20)]

            async def four_wait() -> bool:
                return await waiting_sessions(observer) == 4

            await wait_for(four_wait)
            assert await sessions() == 4
            # What needs no database does not wait for it.
            assert (await api.get("/api/queue/history")).status_code == 200
        found = await asyncio.gather(*asking)
        assert {one.status_code for one in found} == {200}
        assert await sessions() <= 4


async def test_what_the_database_refuses_is_told_by_what_it_is(
    connection: Connection, database: str
) -> None:
    async with serving(database) as api:
        owner = await connection.fetchval("select current_user")
        await connection.execute(
            f"revoke all on function pgwake.list_workers from {owner}"
        )
        found = problem(await api.get("/api/workers"), 403, code="42501")
        assert "list_workers" in found["detail"]

        await connection.execute("drop function pgwake.list_workers")
        found = problem(await api.get("/api/workers"), 503)
        assert "pgwake init" in found["hint"]

        await connection.execute(
            "create function refuse() returns trigger language plpgsql as $$ begin"
            " raise exception 'not on a Sunday' using hint = 'Wait a day.'; end $$;"
            "create trigger refuse before insert on pgwake.queues for each row"
            " execute function refuse()"
        )
        problem(
            await api.post("/api/queues/q/pause"),
            422,
            detail="not on a Sunday",
            hint="Wait a day.",
        )

        await connection.execute(
            "create table budget (id bigint primary key, job bigint not null);"
            "create function spend() returns trigger language plpgsql as $$ begin"
            " insert into public.budget values (1, new.id); return null; end $$;"
            "create trigger spend after insert on pgwake.jobs for each row"
            " execute function spend()"
        )
        jobs = [{"kind": "a"}, {"kind": "b"}]
        found = problem(
            await api.post("/queues/q/push", json={"jobs": jobs}), 422, code="23505"
        )
        assert "budget_pkey" in found["detail"]


async def test_a_database_that_only_reads_says_so(
    connection: Connection, database: str
) -> None:
    job_id = await insert(connection)
    async with serving(database) as api:
        name = await connection.fetchval("select current_database()")
        await connection.execute(
            f"alter database {name} set default_transaction_read_only = on"
        )
        found = problem(await api.post(f"/api/jobs/{job_id}/cancel"), 503)
        assert found["detail"] == "the database is read-only now"
        assert (await api.get(f"/api/jobs/{job_id}")).status_code == 200


async def test_what_nobody_has_foreseen_is_logged_and_not_told(
    connection: Connection, start_worker: StartProcess
) -> None:
    await connection.execute(
        "create function break() returns trigger language plpgsql as $$ begin"
        " raise exception 'a secret' using errcode = 'XX000'; end $$;"
        "create trigger break before insert on pgwake.queues for each row"
        " execute function break()"
    )
    port = free_port()
    worker = await start_worker(http_port=port, api_token=TOKEN)
    async with client(port) as api:
        await answers(api)
        answer = await api.post("/api/queues/q/pause")
        problem(answer, 500)
        assert "secret" not in answer.text
    line = await worker.logged("request failed")
    assert "a secret" in line["error"]
    assert "break()" in line["where"]


async def test_what_is_no_http_harms_nobody(database: str) -> None:
    port = free_port()
    async with serving(database, http_port=port) as api:
        for data in (
            b"\x00\x01\x02\r\n\r\n",
            b"GET /api/jobs\xff HTTP/1.1\r\n\r\n",
            b"POST /queues/q/push HTTP/1.1\r\nHost: x\r\nContent-Length: 1e9\r\n\r\n",
            b"GET / HTTP/1.1\r\nHost: x\r\nA: " + b"a" * 200_000 + b"\r\n\r\n",
        ):
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(data)
            assert (await reader.readline()).startswith(b"HTTP/1.1 4")
            writer.close()
        assert (await api.get("/api/jobs")).status_code == 200


async def test_a_client_that_stops_sending_its_body_is_told_so(
    database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pgwake.http.body.BODY_SECONDS", 0.2)
    port = free_port()
    async with serving(database, http_port=port):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(
            b"POST /queues/q/push HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n"
            b"Content-Type: application/json\r\n"
            b"Authorization: Bearer " + TOKEN.encode() + b"\r\n\r\n{"
        )
        assert (await reader.readline()).startswith(b"HTTP/1.1 408")
        writer.close()


async def test_a_client_that_leaves_in_the_middle_of_its_body_is_no_fault(
    start_worker: StartProcess, connection: Connection
) -> None:
    port = free_port()
    worker = await start_worker(http_port=port, api_token=TOKEN)
    async with client(port) as api:
        await answers(api)
        _, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(
            b"POST /queues/q/push HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n"
            b"Content-Type: application/json\r\n"
            b"Authorization: Bearer " + TOKEN.encode() + b'\r\n\r\n{"kind": "a"}'
        )
        await writer.drain()
        writer.close()
        await writer.wait_closed()
        assert (await api.get("/api/jobs")).status_code == 200
    worker.send(signal.SIGTERM)
    assert await worker.exit_code() == 0
    assert not worker.log("request failed")
    assert await connection.fetchval("select count(*) from pgwake.jobs") == 0
