"""Upgrades from each version to the next: the catalog, and the jobs that were there."""

import asyncio
import gzip
import re
from contextlib import suppress
from pathlib import Path

import psycopg
import pytest

from full.sql.test_install import (
    CATALOG,
    INSTALL,
    contents,
    empty_database,
    without_its_transaction,
)
from pgwake.database.embedded import EmbeddedServer
from pgwake.database.install import install, install_script, sql_directory
from pgwake.database.statements.install import installed_schema
from pgwake.version import SCHEMA_VERSION
from support import OWNER, Connect, Connection, database_url, psql
from support.sql import release
from support.sql.fixtures import fixture
from support.sql.helpers import call, claim, insert, insert_many, pairs, refused
from support.sql.next_schema import NEXT_VERSION, next_schema

pytestmark = pytest.mark.own_database  # changes the schema

__all__ = ["empty_database", "next_schema"]

versions = pytest.mark.parametrize("version", release.VERSIONS)
# Of what a newer version may have more.
CONTRACT = """
select 'function ' || p.proname || '(' || pg_get_function_arguments(p.oid) || ')',
  pg_get_function_result(p.oid)
from pg_proc as p where p.pronamespace = 'pgwake'::regnamespace
  and p.prorettype <> 'trigger'::regtype
union all
select 'column ' || c.oid::regclass || '.' || a.attname,
  format_type(a.atttypid, a.atttypmod)
from pg_attribute as a join pg_class as c on c.oid = a.attrelid
where c.relnamespace = 'pgwake'::regnamespace and c.relkind in ('r', 'p', 'v')
  and a.attnum > 0 and not a.attisdropped
union all
select 'type ' || t.oid::regtype, format_type(t.typbasetype, t.typtypmod)
from pg_type as t where t.typnamespace = 'pgwake'::regnamespace and t.typtype = 'd'
union all
select 'type ' || c.oid::regclass, string_agg(
  a.attname || ' ' || format_type(a.atttypid, a.atttypmod), ', ' order by a.attnum)
from pg_class as c join pg_attribute as a on a.attrelid = c.oid
where c.relnamespace = 'pgwake'::regnamespace and c.relkind = 'c'
group by c.oid
"""
TABLES = """
select * from (%s) as c(what, name, text)
where what in ('object', 'relation', 'column', 'type', 'constraint', 'index',
  'sequence', 'statistics') and name not like 'function %%'
"""


@fixture
async def fresh(db: Connection, next_schema: Path) -> Connection:
    """A connection to a database in which the next version was installed at once."""
    await db.execute("drop schema pgwake cascade")
    await db.execute(install_script(next_schema))
    return db


@versions
async def test_an_upgrade_makes_the_same_as_a_fresh_installation(
    connect: Connect, fresh: Connection, empty_database: str, version: int
) -> None:
    old = await connect(empty_database)
    await old.execute(release.script(version))

    assert await install(empty_database) == (version, NEXT_VERSION)
    upgraded, made = await contents(old, CATALOG), await contents(fresh, CATALOG)
    assert upgraded ^ made == set()


@pytest.mark.parametrize("is_nested", [False, True], ids=["alone", "nested"])
@versions
async def test_a_next_version_comes_from_each_before_it(
    connect: Connect,
    empty_database: str,
    fresh: Connection,
    next_schema: Path,
    version: int,
    is_nested: bool,
) -> None:
    script = install_script(next_schema)
    old = await connect(empty_database)
    await old.execute(release.script(version))
    for kind in ("a", "b"):
        await insert(old, kind, unique_key="k")
    if is_nested:
        async with old.transaction():
            await old.execute(without_its_transaction(script))
            await insert(old, "c", note="in the very transaction")
    else:
        await old.execute(script)
        await insert(old, "c", note="after it")

    installed = await installed_schema(old)
    assert installed is not None
    assert installed.version == NEXT_VERSION
    upgraded, made = await contents(old, CATALOG), await contents(fresh, CATALOG)
    assert upgraded ^ made == set()
    assert len(await claim(old, 9)) == 3


@versions
async def test_what_a_worker_of_a_served_version_uses_stays_as_it_was(
    connect: Connect, fresh: Connection, empty_database: str, version: int
) -> None:
    schema = await installed_schema(fresh)
    assert schema is not None
    if schema.serves_from > version:
        return
    old = await connect(empty_database)
    await old.execute(release.script(version))

    kept = await contents(fresh, CONTRACT)
    used = await contents(old, CONTRACT)
    assert used
    assert used - kept == set()


async def test_other_tables_than_the_releases_need_a_new_version(
    connect: Connect, db: Connection, empty_database: str
) -> None:
    for version in release.VERSIONS[:-1]:
        assert release.path(version).exists(), "python -m tests.support.sql.release"
    released = await connect(empty_database)
    await released.execute(release.script(SCHEMA_VERSION))
    query = TABLES % CATALOG
    assert await contents(released, query) == await contents(db, query)


def test_a_release_is_kept_by_the_same_bytes_each_time() -> None:
    kept = release.packed(install_script())
    assert kept == release.packed(install_script())
    assert release.packed(gzip.decompress(kept).decode()) == kept


def migrations(directory: Path) -> tuple[list[int], list[int]]:
    """The versions that files migrate to, and those that install.sql includes."""
    found = {int(p.stem) for p in directory.glob("migrations/*")}
    included = re.findall(
        r"^\\ir migrations/(\d+)\.sql$",
        (directory / "install.sql").read_text(),
        re.MULTILINE,
    )
    return sorted(found), list(map(int, included))


def test_each_version_has_its_migration(next_schema: Path) -> None:
    all_of_the_tree = list(range(2, SCHEMA_VERSION + 1))
    assert migrations(sql_directory()) == (all_of_the_tree, all_of_the_tree)
    with_the_next = list(range(2, NEXT_VERSION + 1))
    assert migrations(next_schema) == (with_the_next, with_the_next)


async def old_schema(connect: Connect, url: str) -> Connection:
    """A connection to a database with schema 1."""
    old = await connect(url)
    await old.execute(release.script(1))
    return old


@pytest.mark.timeout(600)  # --upgrade-rounds 50
async def test_six_upgrades_at_the_same_instant_are_one(
    server: EmbeddedServer,
    connect: Connect,
    empty_database: str,
    next_schema: Path,
    pytestconfig: pytest.Config,
) -> None:
    script = str(next_schema / "install.sql")
    old = await connect(empty_database)
    for _ in range(pytestconfig.getoption("--upgrade-rounds")):
        await old.execute("drop schema if exists pgwake cascade")
        await old.execute(release.script(1))
        await insert_many(old, 50)
        last = await old.fetchval("select max(id) from pgwake.jobs")
        await old.execute(
            "create table if not exists upgrades (version int);"
            " truncate upgrades;"
            " create or replace function note_upgrade() returns trigger"
            " language plpgsql as $$begin"
            " insert into public.upgrades values (new.version); return null; end$$;"
            " create trigger note after insert or update on pgwake.schema_version"
            " for each row execute function note_upgrade()"
        )

        done = await asyncio.gather(
            *(install(empty_database) for _ in range(3)),
            *(
                asyncio.to_thread(psql, server, empty_database, "-f", script)
                for _ in range(3)
            ),
        )

        assert {answer[1] for answer in done[:3]} == {NEXT_VERSION}
        assert await contents(old, "select version from pgwake.schema_version") == {
            (NEXT_VERSION,)
        }
        assert [tuple(r) for r in await old.fetch("table upgrades")] == [
            (NEXT_VERSION,)
        ]
        assert await insert(old) > last


async def test_hooks_and_grants_of_users_are_kept(
    server: EmbeddedServer,
    admin: psycopg.Connection,
    connect: Connect,
    empty_database: str,
    next_schema: Path,
) -> None:
    old = await old_schema(connect, empty_database)
    role = "pgwake_tests_grantee"
    admin.execute(f"create role {role}")
    try:
        await old.execute(
            f"grant usage on schema pgwake to {role};"
            f" grant select, insert on pgwake.jobs to {role};"
            f" grant execute on function pgwake.cancel_job to {role};"
            " create table ends (id bigint, status text);"
            " create function note_end() returns trigger language plpgsql"
            " set search_path = '' as $$begin"
            " insert into public.ends values (new.id, new.status); return null; end$$;"
            " create trigger hook after insert on pgwake.jobs_finished"
            " for each row execute function note_end();"
            " create trigger hook after insert on pgwake.jobs_failed"
            " for each row execute function note_end();"
            " alter table pgwake.jobs_failed disable trigger hook"
        )
        grants = (
            "select p.oid::regprocedure::text, p.proacl::text from pg_proc as p"
            f" where p.proacl::text like '%{role}%' union all"
            " select c.oid::regclass::text, c.relacl::text from pg_class as c"
            f" where c.relacl::text like '%{role}%' union all"
            " select tgrelid::regclass::text || tgname, tgenabled::text from pg_trigger"
            " where tgname = 'hook' union all"
            " select nspname, nspacl::text from pg_namespace where nspname = 'pgwake'"
        )
        before = await contents(old, grants)
        psql(server, empty_database, "-f", INSTALL)
        assert await install(empty_database) == (SCHEMA_VERSION, NEXT_VERSION)
        psql(server, empty_database, "-f", str(next_schema / "install.sql"))
        assert await contents(old, grants) == before
        await insert_many(old, 2)
        done, dead = await claim(old, 2)
        await call(old, "complete_jobs", **pairs(done))
        await call(old, "fail_jobs", **pairs(dead), retryables=[False])
        assert [tuple(row) for row in await old.fetch("table ends")] == [
            (done["id"], "completed")
        ]
    finally:
        await old.execute("drop schema pgwake cascade")
        admin.execute(f"drop role {role}")


async def test_all_belongs_to_the_schemas_owner_whoever_upgrades(
    server: EmbeddedServer, connect: Connect, fresh: Connection, empty_database: str
) -> None:
    old = await old_schema(connect, empty_database)
    name = empty_database.rpartition("/")[2]
    url = database_url(server, name, role="postgres")
    assert await install(url) == (1, NEXT_VERSION)
    assert await contents(old, CATALOG) == await contents(fresh, CATALOG)


async def test_who_does_not_own_the_schema_is_told_who_does(
    admin: psycopg.Connection, database: str
) -> None:
    admin.execute("create role pgwake_tests_stranger login password 'stranger'")
    try:
        url = database.replace(f"{OWNER}:owner@", "pgwake_tests_stranger:stranger@")
        with refused("42501") as caught:
            await install(url)
        assert OWNER in str(caught.value.message)
        assert OWNER in str(caught.value.hint)
    finally:
        admin.execute("drop role pgwake_tests_stranger")


ROLE_SETTINGS = {
    "default_transaction_isolation": "serializable",
    "default_transaction_read_only": "on",
    "statement_timeout": "200ms",
    "lock_timeout": "10ms",
    "idle_in_transaction_session_timeout": "500ms",
    "transaction_timeout": "400ms",  # from PostgreSQL 17 on
    "standard_conforming_strings": "off",
    "check_function_bodies": "off",
    "search_path": "nowhere",
}


async def test_what_a_role_or_a_database_sets_does_not_reach_an_upgrade(
    server: EmbeddedServer,
    admin: psycopg.Connection,
    connect: Connect,
    fresh: Connection,
    empty_database: str,
    next_schema: Path,
) -> None:
    script = str(next_schema / "install.sql")
    old = await old_schema(connect, empty_database)
    name = empty_database.rpartition("/")[2]
    for setting, value in ROLE_SETTINGS.items():
        known = admin.execute("select from pg_settings where name = %s", [setting])
        if known.rowcount:
            # PostgreSQL 19 knows standard_conforming_strings, and refuses "off".
            with suppress(psycopg.errors.FeatureNotSupported):
                admin.execute(
                    f"alter role {OWNER} in database {name} set {setting} = '{value}'"
                )
    made = await contents(fresh, CATALOG)

    # Each waits for the other's turn, longer than the time-outs.
    await asyncio.gather(
        install(empty_database),
        asyncio.to_thread(psql, server, empty_database, "-f", script),
        asyncio.to_thread(psql, server, empty_database, "-f", script),
    )
    assert await contents(old, CATALOG) == made
    await old.execute("drop schema pgwake cascade")
    psql(server, empty_database, "-f", script)
    assert await contents(old, CATALOG) == made


# What sessions and statements under way hold by number: see sql/MIGRATIONS.md.
NUMBERS = """
select 'function ' || p.oid::regprocedure, p.oid
from pg_proc as p where p.pronamespace = 'pgwake'::regnamespace
union all
select 'type ' || t.oid::regtype, t.oid
from pg_type as t where t.typnamespace = 'pgwake'::regnamespace
union all
select 'relation ' || c.oid::regclass, c.oid
from pg_class as c
where c.relnamespace = 'pgwake'::regnamespace and c.relkind not in ('i', 'I')
"""


@versions
@pytest.mark.usefixtures("next_schema")
async def test_nothing_is_dropped_and_made_anew_under_a_running_worker(
    connect: Connect, empty_database: str, version: int
) -> None:
    old = await connect(empty_database)
    await old.execute(release.script(version))
    before = await contents(old, NUMBERS)
    assert before
    assert await install(empty_database) == (version, NEXT_VERSION)
    schema = await installed_schema(old)
    assert schema is not None
    if schema.serves_from <= version:
        assert before - await contents(old, NUMBERS) == set()
