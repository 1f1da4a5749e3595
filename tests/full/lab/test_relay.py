"""Each way in which the relay lets the network go bad."""

import asyncio
from collections.abc import AsyncIterator

import asyncpg
import pytest

from pgwake.database.embedded import EmbeddedServer
from pgwake.errors import ConfigurationError
from support import Connection, wait_for
from support.relay import Relay

QUESTION = "select 1"
SILENCE_SECONDS = 0.3


@pytest.fixture
async def relay(database: str) -> AsyncIterator[Relay]:
    async with Relay.before(database) as relay:
        yield relay


@pytest.fixture
async def through(relay: Relay) -> AsyncIterator[Connection]:
    connection = await asyncpg.connect(relay.url)
    assert await connection.fetchval(QUESTION) == 1
    yield connection
    connection.terminate()


async def hears_nothing(connection: Connection) -> bool:
    try:
        await connection.fetchval(QUESTION, timeout=SILENCE_SECONDS)
    except TimeoutError:
        return True
    return False


async def test_a_half_open_connection_hears_nothing_and_stays_so_when_others_go_on(
    relay: Relay, through: Connection
) -> None:
    relay.freeze()
    newcomer = asyncio.ensure_future(asyncpg.connect(relay.url))

    assert await hears_nothing(through)
    assert not through.is_closed(), "nobody has closed anything"
    assert not newcomer.done(), "it is taken, and waits"
    await relay.heal()
    connection = await newcomer
    assert await connection.fetchval(QUESTION) == 1
    assert not through.is_closed()
    await connection.close()


async def test_the_server_is_told_of_a_half_open_connection_when_it_is_over(
    relay: Relay, through: Connection, connection: Connection
) -> None:
    pid = through.get_server_pid()
    relay.freeze()
    await relay.heal()

    async def is_gone() -> bool:
        return not await connection.fetchval(
            "select exists (select from pg_stat_activity where pid = $1)", pid
        )

    await wait_for(is_gone)


async def test_the_client_is_told_of_a_half_open_connection_in_the_end(
    relay: Relay, through: Connection
) -> None:
    relay.client_seconds = SILENCE_SECONDS
    relay.freeze()
    await relay.heal()

    with pytest.raises((asyncpg.PostgresConnectionError, ConnectionError)):
        await through.fetchval(QUESTION)


async def test_what_goes_to_the_server_is_held_and_arrives_late(
    relay: Relay, through: Connection, connection: Connection
) -> None:
    await connection.execute("create table notes (note text)")
    relay.block("to the server")
    writing = asyncio.ensure_future(
        through.execute("insert into notes values ('late')")
    )
    await asyncio.wait({writing}, timeout=SILENCE_SECONDS)

    assert not writing.done()
    assert await connection.fetchval("select count(*) from notes") == 0
    await relay.heal()
    assert await writing == "INSERT 0 1"


async def test_what_comes_from_the_server_is_held_though_it_has_done_its_work(
    relay: Relay, through: Connection, connection: Connection
) -> None:
    await connection.execute("create table notes (note text)")
    relay.block("from the server")
    writing = asyncio.ensure_future(
        through.execute("insert into notes values ('unheard')")
    )

    async def is_written() -> bool:
        return bool(await connection.fetchval("select count(*) from notes"))

    await wait_for(is_written)
    assert not writing.done()
    await relay.heal()
    assert await writing == "INSERT 0 1"


async def test_a_slow_network_delays_each_way_and_carries_so_much(
    relay: Relay, through: Connection
) -> None:
    loop = asyncio.get_running_loop()
    relay.slow(0.1, 100_000)
    began = loop.time()
    await through.fetchval("select repeat('x', 50000)")

    assert loop.time() - began >= 0.1 + 0.1 + 0.5


async def test_a_cut_resets_all_connections_and_takes_new_ones(
    relay: Relay, through: Connection
) -> None:
    relay.cut()

    with pytest.raises((asyncpg.PostgresConnectionError, ConnectionError)):
        await through.fetchval(QUESTION)
    connection = await asyncpg.connect(relay.url)
    assert await connection.fetchval(QUESTION) == 1
    await connection.close()


async def test_who_is_refused_comes_in_when_that_is_over_and_others_go_on(
    relay: Relay, through: Connection
) -> None:
    relay.refuse()

    with pytest.raises(ConnectionRefusedError):
        await asyncpg.connect(relay.url)
    assert await through.fetchval(QUESTION) == 1
    await relay.heal()
    connection = await asyncpg.connect(relay.url)
    assert await connection.fetchval(QUESTION) == 1
    await connection.close()


async def test_a_server_that_is_not_there_is_refused_through_the_relay_too() -> None:
    async with Relay.before("postgresql://postgres@127.0.0.1:1/postgres") as relay:
        with pytest.raises((asyncpg.PostgresConnectionError, ConnectionError)):
            await asyncpg.connect(relay.url)


async def test_a_unix_socket_is_reached_through_it(server: EmbeddedServer) -> None:
    async with Relay.before(server.socket_url) as relay:
        assert "host=" not in relay.url
        reader, writer = await asyncio.open_connection(
            "127.0.0.1", int(relay.url.partition("127.0.0.1:")[2].partition("/")[0])
        )
        writer.write(b"\0\0\0\x08\x04\xd2\x16\x2f")  # SSLRequest
        assert await reader.readexactly(1) == b"N"
        writer.close()


def test_a_certificate_is_checked_without_its_name() -> None:
    relay = Relay("postgresql://me@db.example.org/x?sslmode=verify-full")

    assert relay.url.endswith("/x?sslmode=verify-ca")


def test_several_hosts_are_refused_since_it_could_not_choose() -> None:
    with pytest.raises(ConfigurationError, match="name one host"):
        Relay("postgresql://me@one,two/x")
