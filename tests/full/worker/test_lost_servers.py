"""What one session of a process finds out about its server, the others know."""

import asyncio

import pytest
from structlog.testing import capture_logs

from pgwake.database import session as sessions
from pgwake.database.connection import Connection
from pgwake.database.session import Session
from support import PATIENCE, wait_for
from support.relay import Relay


async def ask(connection: Connection) -> str:
    answer: str = await connection.execute("select 1")
    return answer


async def test_when_one_session_has_lost_its_server_the_others_connect_anew(
    database: str,
) -> None:
    async with Relay.before(database) as relay:
        first, second = (
            Session(relay.url, "pgwake:test", role, timeout=1)
            for role in ("first", "second")
        )

        try:
            for session in (first, second):
                await session.call(ask)

            relay.freeze()
            asked = asyncio.create_task(first.call(ask))
            await wait_for(lambda: first.fault is not None)
            await relay.heal()  # what comes now is answered, what came before is dead
            await asked

            with capture_logs() as logs:
                assert await second.call(ask) == "SELECT 1"
            assert logs == [], "it has not waited for the dead one"
        finally:
            first.close()
            second.close()


async def test_claims_open_the_session_of_the_ends_that_has_yet_to_try_again(
    database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sessions, "backoff", lambda _: 3600.0)
    async with Relay.before(database) as relay:
        ends = Session(relay.url, "pgwake:test", "ends", timeout=PATIENCE)
        claims = Session(relay.url, "pgwake:test", "claims", PATIENCE, after=ends)
        try:
            relay.refuse()
            ended = asyncio.create_task(ends.call(ask))
            await wait_for(lambda: ends.fault is not None)
            await relay.heal()

            async with asyncio.timeout(PATIENCE):
                assert await claims.call(ask) == "SELECT 1"
                assert await ended == "SELECT 1", "its wait is cut short"
        finally:
            claims.close()
            ends.close()
