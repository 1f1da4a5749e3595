"""What monitoring asks is answered on a standby too; promoted, it goes on."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from pgwake.embedded import EmbeddedServer
from sql.helpers import call, claim, insert, rows
from standby import standby_of
from support import Connect, Connection, database_url, wait_for


@pytest.fixture
def standby(own_server: EmbeddedServer) -> Iterator[EmbeddedServer]:
    """A hot standby, which follows."""
    with standby_of(own_server) as standby:
        yield standby


async def test_statistics_and_metrics_are_answered_and_after_promotion_claims(
    connect: Connect, own_database: str, standby: EmbeddedServer
) -> None:
    primary = await connect(own_database)
    await call(primary, "adopt")
    await insert(primary, queue="mail")
    place = await primary.fetchval("select pg_current_wal_lsn()::text")

    async def follow(url: str) -> Connection:
        reader = await connect(url)

        async def has_followed() -> bool:
            return bool(
                await reader.fetchval(
                    "select pg_last_wal_replay_lsn() >= $1::text::pg_lsn", place
                )
            )

        await wait_for(has_followed, 10)
        return reader

    # The database may be newer than the standby.
    admin = await follow(database_url(standby, "postgres", role="postgres"))
    reader = await follow(database_url(standby, Path(own_database).name))
    assert len(await rows(reader, "get_queue_stats")) == 1
    assert await reader.fetchval("select pg_is_in_recovery()")
    _, of_queue = await rows(reader, "get_metrics")
    assert (of_queue["queue"], of_queue["pending_count"]) == ("mail", 1)

    assert await admin.fetchval("select pg_promote()")
    assert len(await claim(reader, queue="mail")) == 1
