"""Nothing that a test leaves in its module's database reaches the next test."""

from collections.abc import AsyncIterator

import asyncpg
import psycopg
import pytest

from pgwake.database.embedded import EmbeddedServer
from support import Connect
from support.sql.fixtures import fixture
from support.sql.shared import SharedDatabase

CLEARED = [
    "insert into pgwake.jobs (kind, concurrency_key) values ('a', null), ('b', 'k')",
    "insert into pgwake.queues (name, paused_until) values ('default', 'infinity')",
    "select setval('pgwake.jobs_id_seq', 99)",
    "truncate pgwake.jobs; analyze pgwake.jobs_live",
    "update pgwake.ring_slots set tried_at = now()",
    "create temp table mine (a int)",
    "set pgwake.clock_offset = '1 hour'; set search_path = nowhere",
    "select pg_advisory_lock(1), pgwake.park('default'), pgwake.watch()",
    "listen pgwake",
]
CHANGED = [
    "create table public.mine (a int)",
    "create function public.mine() returns int language sql as 'select 1'",
    "create schema mine",
    "alter table pgwake.jobs_live set (fillfactor = 60)",
    "alter table pgwake.jobs disable trigger jobs_after_insert",
    "alter table pgwake.rechecks alter column queue drop not null",
    "alter function pgwake.now() cost 7",
    "drop index pgwake.jobs_lease_idx",
    "drop function pgwake.purge",
    "grant select on pgwake.jobs to public",
    "comment on table pgwake.jobs is null",
    "update pgwake.installation set width = 2",
    "update pgwake.schema_version set version = 99",
    (
        "do $$ begin execute format("
        "'alter database %I set work_mem = 64', current_database()); end $$"
    ),
    "drop schema pgwake cascade",
]
AS_NEW = """
select nextval('pgwake.jobs_id_seq') = 1
  and not exists (select from pgwake.jobs) and not exists (select from pgwake.queues)
  and not exists (select from pgwake.rechecks) and not exists (select from
  pgwake.counts) and not exists (select from pgwake.ring_slots where tried_at <>
  '-infinity') and not exists (select from pg_locks where pid = pg_backend_pid()
    and locktype = 'advisory')
  and not exists (select from pg_listening_channels())
  and to_regclass('pg_temp.mine') is null and pgwake.now() = now()
  and current_setting('search_path') = '"$user", public'
"""


@fixture
async def one(
    server: EmbeddedServer, admin: psycopg.Connection, template: str
) -> AsyncIterator[SharedDatabase]:
    one = SharedDatabase(server, admin, template)
    yield one
    await one.close()


@pytest.mark.parametrize("left", CLEARED)
async def test_rows_and_what_a_session_has_set_are_cleared_away(
    one: SharedDatabase, left: str
) -> None:
    url = one.open()
    session = await asyncpg.connect(url)
    await session.execute(left)
    await one.give_back(session)
    one.clean()

    assert one.open() == url
    assert one.take() is session
    assert await session.fetchval(AS_NEW)
    await session.close()


@pytest.mark.parametrize("left", CHANGED)
async def test_after_any_other_change_the_next_test_has_another_clone(
    one: SharedDatabase, connect: Connect, left: str
) -> None:
    url = one.open()
    session = await connect(url)
    await session.execute(left)
    await one.give_back(session)
    one.clean()

    assert one.open() != url
    assert one.take() is None
    assert await (await connect(one.url)).fetchval(AS_NEW)


@pytest.mark.parametrize("end", ["select", "prepare transaction 'left'"])
async def test_an_open_or_prepared_transaction_is_rolled_back(
    one: SharedDatabase, connect: Connect, end: str
) -> None:
    session = await connect(one.open())
    await session.execute("set pgwake.notify = off; begin")
    await session.execute("insert into pgwake.jobs (kind) values ('a')")
    await session.execute(end)
    await one.give_back(session)
    one.clean()

    assert await (await connect(one.open())).fetchval(AS_NEW)


async def test_who_stays_is_sent_away(one: SharedDatabase) -> None:
    stranger = await asyncpg.connect(one.open())
    await stranger.execute("begin; lock table pgwake.jobs")
    one.clean()

    with pytest.raises((asyncpg.PostgresError, asyncpg.InterfaceError, OSError)):
        await stranger.execute("select")
