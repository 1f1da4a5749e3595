"""GET /api/events: changes of status as server-sent events."""

import asyncio
import json
import signal
import socket
from typing import Any

import pytest

from pgwake.http import events
from support import Connection, free_port, wait_for
from support.relay import Relay
from support.sql.helpers import insert
from support.worker.api import TOKEN, client, problem, serving
from support.worker.helpers import ended
from support.worker.pgbouncer import pgbouncer
from support.worker.processes import StartProcess
from support.worker.registries import quick
from support.worker.streams import Stream

# So many events, n from 1 on, in one statement; a name is as long as may be.
SEND = """
select count(pg_notify('job_status_changed', json_build_object(
  'id', n, 'queue', rpad('q', 128, 'q'), 'kind', rpad('k', 128, 'k'),
  'old_status', null, 'new_status', 'pending')::text))
from generate_series(1, $1::int) as n
"""
WATCHERS = """
select a.pid from pg_locks as l join pg_stat_activity as a on a.pid = l.pid
where l.locktype = 'advisory' and l.classid = 1885828973 and l.mode = 'ShareLock'
  and l.granted and a.datname = current_database()
"""


async def watchers(connection: Connection) -> list[int]:
    return [row[0] for row in await connection.fetch(WATCHERS)]


async def watched_by(connection: Connection, count: int) -> None:
    async def is_so() -> bool:
        return len(await watchers(connection)) == count

    await wait_for(is_so)


def ask_for_events(port: int) -> socket.socket:
    """A connection on which the events are, with little room for what is not read."""
    asking = socket.socket()
    asking.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    asking.settimeout(20)
    asking.connect(("127.0.0.1", port))
    head = f"GET /api/events HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {TOKEN}\r\n"
    asking.sendall(f"{head}\r\n".encode())
    return asking


def read_until(asking: socket.socket, text: bytes) -> None:
    read = b""
    while text not in read:
        more = asking.recv(65536)
        assert more, "the stream has ended"
        read = read[-100:] + more


async def test_each_change_of_a_job_is_told_in_order(
    connection: Connection, database: str
) -> None:
    async with serving(database, quick()) as api, Stream.of(api) as stream:
        await stream.has("reset")
        job_id = await insert(connection, "quick")
        await ended(connection, job_id)
        await stream.has("job_status_changed", 3, id=job_id)

    first, *changes = stream.events
    assert (first.event, first.data) == ("reset", "{}")
    told = [json.loads(change.data) for change in changes]
    job = {"id": job_id, "queue": "default", "kind": "quick"}
    assert told == [
        {**job, "old_status": None, "new_status": "pending"},
        {**job, "old_status": "pending", "new_status": "running"},
        {**job, "old_status": "running", "new_status": "completed"},
    ]
    ids = [event.id or "" for event in stream.events]
    epoch = ids[0].partition("-")[0]
    assert ids == [f"{epoch}-{number}" for number in range(4)]


async def test_one_session_watches_for_all_clients_and_none_where_there_are_none(
    connection: Connection, database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(events, "LINGER_SECONDS", 0.1)
    async with serving(database) as api:
        assert await watchers(connection) == []
        async with Stream.of(api) as one, Stream.of(api) as other:
            await one.has("reset")
            await other.has("reset")
            assert len(await watchers(connection)) == 1
        await watched_by(connection, 0)
        async with Stream.of(api) as again:
            await again.has("reset")
            assert len(await watchers(connection)) == 1


async def test_who_comes_back_soon_is_told_what_it_has_missed(
    connection: Connection, database: str
) -> None:
    async with serving(database) as api:
        async with Stream.of(api) as before:
            await before.has("reset")
            first = await insert(connection, "seen")
            last_id = (await before.has("job_status_changed", id=first)).id
        second = await insert(connection, "missed")
        third = await insert(connection, "missed")
        async with Stream.of(api, last_id) as after:
            await after.has("job_status_changed", id=third)

    told = [json.loads(event.data)["id"] for event in after.events]
    assert told == [second, third]


@pytest.mark.parametrize("is_soon", [True, False])
async def test_who_comes_back_too_late_reads_anew(
    connection: Connection,
    database: str,
    monkeypatch: pytest.MonkeyPatch,
    is_soon: bool,
) -> None:
    monkeypatch.setattr(events, "LINGER_SECONDS", 30 if is_soon else 0)
    async with serving(database) as api:
        async with Stream.of(api) as before:
            last_id = (await before.has("reset")).id
        if is_soon:  # the session is there still, but more came than the ring holds
            async with Stream.of(api) as witness:
                await witness.has("reset")
                await connection.fetch(SEND, events.RING + 1)
                await witness.until(lambda: witness.number == events.RING + 1)
        else:
            await watched_by(connection, 0)
            await insert(connection, "missed")
        async with Stream.of(api, last_id) as after:
            reset = await after.has("reset")
            assert after.events[0] == reset
            assert reset.id != last_id


async def test_an_id_that_is_none_of_this_process_means_to_read_anew(
    database: str,
) -> None:
    strange = ["", "7", "0123abcd-5", "0123abcd-", "-1", f"0123abcd-{17 * '9'}", "*"]
    async with serving(database) as api, Stream.of(api) as known:
        reset = await known.has("reset")
        epoch = (reset.id or "").partition("-")[0]
        for given in (*strange, f"{epoch}-999"):
            async with Stream.of(api, given) as stream:
                assert await stream.has("reset") == stream.events[0], given


async def test_a_lost_session_is_told_and_its_successor_too(
    connection: Connection, database: str
) -> None:
    async with serving(database) as api, Stream.of(api) as stream:
        before = await stream.has("reset")
        (pid,) = await watchers(connection)
        await connection.fetch("select pg_terminate_backend($1)", pid)
        poll = await stream.has("poll")
        assert (poll.id, poll.data) == (None, '{"reason": "database"}')
        after = await stream.has("reset", 2)
        assert (before.id or "")[:8] != (after.id or "")[:8]
        job_id = await insert(connection, "later")
        await stream.has("job_status_changed", id=job_id)


async def test_a_half_open_session_is_found_out_and_told(
    connection: Connection, database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pgwake.database.status_listener.PING_SECONDS", 0.2)
    monkeypatch.setattr("pgwake.database.status_listener.TIMEOUT_SECONDS", 1)
    async with (
        Relay.before(database) as relay,
        serving(database, listen_url=relay.url) as api,
        Stream.of(api) as stream,
    ):
        await stream.has("reset")
        relay.freeze()
        await stream.has("poll")
        await relay.heal()
        await stream.has("reset", 2)
        job_id = await insert(connection, "later")
        await stream.has("job_status_changed", id=job_id)


async def test_behind_a_transaction_pooler_clients_are_told_to_poll(
    database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pgwake.database.pooler.DELIVERY_SECONDS", 0.5)
    with pgbouncer(database, "transaction") as pooled:
        async with serving(database, listen_url=pooled) as api:
            async with Stream.of(api) as stream:
                assert (await stream.has("poll")).data == '{"reason": "pooler"}'
            async with Stream.of(api) as later:
                assert await later.has("poll") == later.events[0]


async def test_a_client_may_follow_one_queue(
    connection: Connection, database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(events, "HEARTBEAT_SECONDS", 0.3)
    async with serving(database) as api, Stream.of(api, queue="mine") as stream:
        await stream.has("reset")
        # What is not told does not keep the heartbeat away.
        while not stream.comments:
            await insert(connection, "other", queue="others")
        job_id = await insert(connection, "own", queue="mine")
        await stream.has("job_status_changed", id=job_id)

    assert [event.event for event in stream.events] == ["reset", "job_status_changed"]


async def test_notifications_that_are_none_of_ours_are_dropped(
    connection: Connection, database: str
) -> None:
    good = {"id": 1, "queue": "q", "kind": "k", "old_status": None}
    changes: list[dict[str, Any]] = [
        {"id": "1"},
        {"id": True},
        {"id": 1e400},
        {"queue": None},
        {"queue": ["q"]},
        {"queue": "q" * 129},
        {"kind": {}},
        {"kind": "\ud800"},
        {"kind": "ü" * 65},
        {"new_status": "gone"},
        {"new_status": []},
        {"old_status": 1},
    ]
    strange = [
        "",
        "no json",
        "[" * 7000,
        "9" * 5000,
        "[]",
        "null",
        json.dumps(good),
        *(json.dumps({**good, "new_status": "pending", **c}) for c in changes),
    ]
    ours = {
        **good,
        "queue": "a\nevent: reset\r\n\n\u2028",
        "new_status": "pending",
        "more": "x",
    }
    async with serving(database) as api, Stream.of(api) as stream:
        await stream.has("reset")
        for payload in [*strange, json.dumps(ours)]:
            await connection.execute(
                "select pg_notify('job_status_changed', $1)", payload
            )
        told = await stream.has("job_status_changed")

    ours.pop("more")
    assert json.loads(told.data) == ours
    assert len(stream.events) == 2


async def test_a_client_that_does_not_read_is_told_to_read_anew_and_harms_nobody(
    connection: Connection, database: str
) -> None:
    port = free_port()
    async with serving(database, http_port=port) as api, Stream.of(api) as stream:
        await stream.has("reset")
        with ask_for_events(port) as slow:
            read_until(slow, b"event: reset")
            for number in range(1, 6):  # more than all buffers on its way hold
                await connection.fetch(SEND, 5000)
                # The other one gets all, or is told that it does not.
                await stream.until(lambda sent=5000 * number: stream.number == sent)
            assert (await api.get("/healthz")).status_code == 200
            await asyncio.to_thread(read_until, slow, b"event: reset")


async def test_more_clients_than_may_be_are_sent_away_until_one_leaves(
    database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(events, "MAX_CLIENTS", 1)
    async with serving(database) as api:
        async with Stream.of(api) as stream:
            await stream.has("reset")
            answer = await api.get("/api/events")
            problem(answer, 503)
            assert int(answer.headers["retry-after"]) > 0

        async def is_let_in() -> bool:
            async with api.stream("GET", "/api/events") as answer:
                return answer.status_code == 200

        await wait_for(is_let_in)


async def test_only_who_has_the_token_may_follow(database: str) -> None:
    async with serving(database) as api:
        head = await api.head("/api/events")
        assert head.headers["content-type"].startswith("text/event-stream")
        problem(await api.get("/api/events", params={"queue": "q" * 129}), 422)
        async with client(api.base_url.port or 0, None) as stranger:
            problem(await stranger.get("/api/events"), 401)


async def test_open_streams_end_with_the_worker(
    connection: Connection,
    start_worker: StartProcess,
) -> None:
    port = free_port()
    worker = await start_worker(http_port=port, api_token=TOKEN)
    async with client(port) as api, Stream.of(api) as stream:
        await stream.has("reset")
        # One that does not read does not hold it up either.
        stuck = ask_for_events(port)
        await connection.fetch(SEND, 20_000)
        worker.send(signal.SIGTERM)
        assert await worker.exit_code() == 0
        await stream.until(lambda: stream.has_ended)
        stuck.close()

    assert not worker.log("process ended", code=-9)
