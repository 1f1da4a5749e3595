"""What monitoring asks is answered on a standby too; promoted, it goes on."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from pgwake.database.embedded import EmbeddedServer
from pgwake.doctor.examine import Examination
from pgwake.settings import Settings
from support import Connect, Connection, database_url, wait_for
from support.sql.helpers import call, claim, insert, rows
from support.standby import standby_of


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

        await wait_for(has_followed)
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


async def test_a_standby_says_what_it_is_and_is_found_where_it_keeps_dead_rows(
    connect: Connect,
    own_server: EmbeddedServer,
    own_database: str,
    standby: EmbeddedServer,
) -> None:
    primary = await connect(own_database)
    await primary.execute("alter table pgwake.jobs disable trigger jobs_after_insert")
    url = database_url(standby, Path(own_database).name)

    async def has_followed() -> bool:
        examination = Examination(Settings.load(database_url=url))
        await examination.run()
        return [found.check for found in examination.findings] == [
            *("trigger_off", "read_only")
        ]

    await wait_for(has_followed)
    on_standby = await connect(database_url(standby, "postgres", role="postgres"))
    reader = await connect(url)
    await reader.execute("begin isolation level repeatable read")
    await reader.execute("select from pgwake.jobs")

    async def is_found(check: str) -> bool:
        await insert(primary)  # what it pins is told by transaction ids
        found = await rows(primary, "diagnose_pins", warn_xids=0)
        return check in [row["check_name"] for row in found]

    await on_standby.execute("alter system set wal_receiver_status_interval = 1")
    await on_standby.execute("alter system set hot_standby_feedback = on")
    await on_standby.execute("select pg_reload_conf()")
    await wait_for(lambda: is_found("standby_feedback"))
    admin = await connect(own_server.socket_url)
    await admin.execute("select pg_create_physical_replication_slot('copy')")
    await on_standby.execute("alter system set primary_slot_name = 'copy'")
    await on_standby.execute("select pg_reload_conf()")
    await wait_for(lambda: is_found("replication_slot"))
    standby.stop("immediate")  # else it takes its wish back

    async def is_idle() -> bool:
        return not await admin.fetchval("select active from pg_replication_slots")

    await wait_for(is_idle)
    found = await rows(primary, "diagnose_pins", warn_xids=0)
    (slot,) = [row for row in found if row["check_name"] == "replication_slot"]
    await admin.execute(slot["fix"])
    assert not await is_found("replication_slot")
