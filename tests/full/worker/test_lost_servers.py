"""What one session of a process finds out about its server, the others know."""

import asyncio

from structlog.testing import capture_logs

from pgwake.database.connection import Connection
from pgwake.database.session import Session
from support import wait_for
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
