"""Installing: twice, at once, beside running jobs, over a newer schema."""

import asyncio
import itertools
import re
from collections.abc import Iterator
from typing import Any

import psycopg
import pytest

from pgwake.database.embedded import EmbeddedServer
from pgwake.database.install import install, install_script
from pgwake.version import SCHEMA_VERSION
from support import CHECKOUT, OWNER, Connect, Connection, database_url, psql
from support.sql.helpers import call, claim, insert, insert_many, pairs, refused

pytestmark = pytest.mark.own_database  # changes the schema

INSTALL = str(CHECKOUT / "sql" / "install.sql")

# Everything that the installer makes, told apart by what it is and not by its number.
CATALOG = """
select 'schema', n.nspname, concat_ws('|', n.nspowner::regrole, n.nspacl,
  obj_description(n.oid))
from pg_namespace as n where n.nspname = 'pgwake'
union all
select 'object', pg_describe_object(d.classid, d.objid, d.objsubid), ''
from pg_depend as d
where d.refclassid = 'pg_namespace'::regclass
  and d.refobjid = 'pgwake'::regnamespace
union all
select 'function', p.oid::regprocedure::text, concat_ws('|', pg_get_functiondef(p.oid),
  obj_description(p.oid), p.proacl, p.proowner::regrole)
from pg_proc as p where p.pronamespace = 'pgwake'::regnamespace
union all
select 'relation', c.oid::regclass::text, concat_ws('|', c.relkind, c.reloptions,
  c.relacl, obj_description(c.oid), pg_get_expr(c.relpartbound, c.oid),
  pg_get_partkeydef(c.oid), c.relowner::regrole, m.amname, c.relpersistence,
  c.relreplident, c.relrowsecurity, c.relforcerowsecurity, t.reloptions,
  case when c.relkind = 'v' then pg_get_viewdef(c.oid) end)
from pg_class as c
left join pg_class as t on t.oid = c.reltoastrelid
left join pg_am as m on m.oid = c.relam
where c.relnamespace = 'pgwake'::regnamespace
union all
select 'column', a.attrelid::regclass || '.' || a.attname, concat_ws('|',
  row_number() over (partition by a.attrelid order by a.attnum),
  format_type(a.atttypid, a.atttypmod), a.attnotnull, a.attcollation::regcollation,
  pg_get_expr(d.adbin, d.adrelid), a.attstorage, a.attcompression,
  nullif(a.attstattarget, -1), a.attidentity, a.attgenerated,
  a.attislocal, a.attinhcount, a.attacl, col_description(a.attrelid, a.attnum))
from pg_attribute as a
join pg_class as c on c.oid = a.attrelid
left join pg_attrdef as d on d.adrelid = a.attrelid and d.adnum = a.attnum
where c.relnamespace = 'pgwake'::regnamespace and a.attnum > 0 and not a.attisdropped
union all
select 'type', t.oid::regtype::text, concat_ws('|', t.typtype, t.typnotnull,
  format_type(t.typbasetype, t.typtypmod), t.typcollation::regcollation, t.typdefault,
  t.typacl, t.typowner::regrole, obj_description(t.oid))
from pg_type as t where t.typnamespace = 'pgwake'::regnamespace
union all
select 'constraint', concat(nullif(n.conrelid, 0)::regclass,
  nullif(n.contypid, 0)::regtype, '.', n.conname), concat_ws('|',
  pg_get_constraintdef(n.oid), n.convalidated, n.conislocal, n.coninhcount,
  n.connoinherit, obj_description(n.oid))
from pg_constraint as n where n.connamespace = 'pgwake'::regnamespace
union all
select 'index', i.indexrelid::regclass::text, concat_ws('|',
  pg_get_indexdef(i.indexrelid), i.indisvalid, i.indisclustered, i.indisreplident)
from pg_index as i join pg_class as c on c.oid = i.indrelid
where c.relnamespace = 'pgwake'::regnamespace
union all
select 'sequence', s.seqrelid::regclass::text, concat_ws('|', s.seqtypid::regtype,
  s.seqstart, s.seqincrement, s.seqmax, s.seqmin, s.seqcache, s.seqcycle)
from pg_sequence as s join pg_class as c on c.oid = s.seqrelid
where c.relnamespace = 'pgwake'::regnamespace
union all
select 'trigger', t.tgrelid::regclass || '.' || t.tgname, concat_ws('|',
  pg_get_triggerdef(t.oid), t.tgenabled, obj_description(t.oid))
from pg_trigger as t join pg_class as c on c.oid = t.tgrelid
where c.relnamespace = 'pgwake'::regnamespace
union all
select 'statistics', x.stxname, pg_get_statisticsobjdef(x.oid)
from pg_statistic_ext as x where x.stxnamespace = 'pgwake'::regnamespace
union all
select 'policy', y.polname, concat_ws('|', y.polrelid::regclass, y.polcmd, y.polroles,
  pg_get_expr(y.polqual, y.polrelid), pg_get_expr(y.polwithcheck, y.polrelid))
from pg_policy as y join pg_class as c on c.oid = y.polrelid
where c.relnamespace = 'pgwake'::regnamespace
union all
select 'version', v.version::text, v.serves_from::text from pgwake.schema_version as v
union all
select 'installation', i.width::text, coalesce(i.environment, '')
from pgwake.installation as i
union all
select 'slot', r.slot::text, r.tried_at::text from pgwake.ring_slots as r
"""
# What tells that a thing was made anew.
IDENTITY = """
select p.proname, p.oid::bigint, 0::bigint from pg_proc as p
where p.pronamespace = 'pgwake'::regnamespace
union all
select c.relname, c.oid::bigint, c.relfilenode::bigint from pg_class as c
where c.relnamespace = 'pgwake'::regnamespace
"""

_serial = itertools.count(1)


@pytest.fixture
def empty_database(server: EmbeddedServer, admin: psycopg.Connection) -> Iterator[str]:
    """The URL of a database without pgwake, for its owner."""
    name = f"pgwake_empty_{next(_serial)}"
    admin.execute(f"create database {name} owner {OWNER}")
    yield database_url(server, name)
    admin.execute(f"drop database {name} with (force)")


def without_its_transaction(script: str) -> str:
    """As a tool runs it that has a transaction of its own."""
    bare, count = re.subn(
        r"^(begin isolation level .*|commit);$", "", script, flags=re.MULTILINE
    )
    assert count == 2
    return bare


async def contents(db: Connection, query: str) -> set[tuple[Any, ...]]:
    return {tuple(row) for row in await db.fetch(query)}


async def test_a_second_run_changes_nothing(
    server: EmbeddedServer, database: str, db: Connection
) -> None:
    await insert_many(db, 5)
    before = [await contents(db, query) for query in (CATALOG, IDENTITY)]
    psql(server, database, "-f", INSTALL)

    assert before == [await contents(db, query) for query in (CATALOG, IDENTITY)]
    assert len(await claim(db, 9)) == 5


async def test_a_second_run_mends_what_was_broken(
    server: EmbeddedServer, database: str, db: Connection
) -> None:
    before = await contents(db, CATALOG)
    await db.execute(
        "drop function pgwake.get_job;"
        " grant execute on function pgwake.cancel_job to public;"
        " comment on table pgwake.jobs is null"
    )
    psql(server, database, "-f", INSTALL)

    assert await contents(db, CATALOG) == before


async def test_the_python_installer_and_psql_make_the_same(
    connect: Connect, db: Connection, empty_database: str
) -> None:
    assert await install(empty_database) == (None, SCHEMA_VERSION)
    assert await install(empty_database) == (SCHEMA_VERSION, SCHEMA_VERSION)

    other = await connect(empty_database)
    assert await contents(other, CATALOG) == await contents(db, CATALOG)


@pytest.mark.parametrize("way", ["psql", "python"])
async def test_twelve_installers_at_the_same_instant_all_succeed(
    server: EmbeddedServer,
    connect: Connect,
    db: Connection,
    empty_database: str,
    way: str,
) -> None:
    def run() -> Any:
        if way == "psql":
            return asyncio.to_thread(psql, server, empty_database, "-f", INSTALL)
        return install(empty_database)

    await asyncio.gather(*(run() for _ in range(12)))

    other = await connect(empty_database)
    assert await contents(other, CATALOG) == await contents(db, CATALOG)
    assert await insert(other)


async def test_it_does_not_wait_for_open_transactions_of_the_queues_users(
    server: EmbeddedServer, database: str, db: Connection, other: Connection
) -> None:
    await insert_many(db, 3)
    async with db.transaction(), other.transaction():
        await insert(db, unique_key="k")
        held = await claim(db, 2)
        await call(db, "complete_jobs", **pairs(held[0]))
        await call(db, "fail_jobs", **pairs(held[1]), retryables=[False])
        await call(db, "maintain")
        await db.execute("insert into pgwake.queues (name) values ('q')")
        await other.fetch("select * from pgwake.jobs, pgwake.counts")
        await asyncio.to_thread(psql, server, database, "-f", INSTALL)


async def test_the_queues_users_do_not_wait_for_an_open_installation(
    connect: Connect, db: Connection
) -> None:
    other = await connect(server_settings={"lock_timeout": "1s"})
    script = without_its_transaction(install_script())
    async with db.transaction():
        await db.execute(script)
        await insert_many(other, 3)
        a, b, c = await claim(other, 3)
        await call(other, "complete_jobs", **pairs(a))
        await call(other, "fail_jobs", **pairs(b), retryables=[False])
        await call(other, "cancel_job", job_id=c["id"])
        await call(other, "retry_job", job_id=b["id"])
        await call(other, "maintain")
        await call(other, "maintain", step="retention")
        assert len(await other.fetch("select * from pgwake.jobs")) == 3


@pytest.mark.parametrize(
    "newer",
    [
        "select",
        (
            "drop function pgwake.retry_delay;"
            " create function pgwake.retry_delay(attempt int) returns int"
            " language sql as 'select 1'"
        ),
        "drop table pgwake.installation cascade",
    ],
    ids=["as it is", "with another signature", "without a table"],
)
async def test_a_newer_schema_is_left_alone(
    database: str, db: Connection, newer: str
) -> None:
    await db.execute(f"update pgwake.schema_version set version = 99; {newer}")
    before = await contents(db, IDENTITY)

    with refused("PW004"):
        await install(database)
    assert await contents(db, IDENTITY) == before


async def test_psql_stops_at_a_newer_schema(
    server: EmbeddedServer, database: str, db: Connection
) -> None:
    await db.execute("update pgwake.schema_version set version = 99")

    with pytest.raises(AssertionError, match="PW004"):
        psql(server, database, "-v", "VERBOSITY=verbose", "-f", INSTALL)


async def test_the_version_is_written_only_when_it_changes(
    database: str, db: Connection
) -> None:
    row = "select version, installed_at, updated_at, xmin::text from pgwake."
    row += "schema_version"
    before = tuple(await db.fetchrow(row) or ())
    await install(database)
    assert tuple(await db.fetchrow(row) or ()) == before

    await db.execute("update pgwake.schema_version set version = 0")
    await install(database)
    after = tuple(await db.fetchrow(row) or ())
    assert after[:2] == before[:2]
    assert after[2] > before[2]


async def test_who_may_not_create_a_schema_is_told_and_leaves_nothing(
    server: EmbeddedServer, admin: psycopg.Connection
) -> None:
    with refused("42501"):
        await install(database_url(server, "postgres"))
    schemas = admin.execute("select from pg_namespace where nspname = 'pgwake'")
    assert schemas.fetchall() == []


@pytest.mark.parametrize("encoding", ["LATIN1", "SQL_ASCII"])
async def test_a_database_that_is_not_utf8_is_refused(
    server: EmbeddedServer, admin: psycopg.Connection, encoding: str
) -> None:
    name = f"pgwake_{encoding.lower()}"
    admin.execute(
        f"create database {name} template template0 encoding '{encoding}'"
        " lc_collate 'C' lc_ctype 'C'"
    )
    try:
        url = database_url(server, name, role="postgres")
        with refused("0A000") as caught:
            await install(url)
        assert f"has the encoding {encoding}" in str(caught.value.message)
        assert "encoding 'UTF8'" in str(caught.value.hint)
        with pytest.raises(AssertionError, match="pgwake needs UTF8"):
            psql(server, url, "-f", INSTALL)
    finally:
        admin.execute(f"drop database {name}")
