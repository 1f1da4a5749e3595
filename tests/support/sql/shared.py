"""A database that a module's tests use one after another, with sessions that are kept.

After a test all rows are deleted, sequences begin anew, and whoever is not kept has to
be gone. What a test did to anything else, be it a function or a setting of the
database, shows in the catalogs: then the next test has another clone.

A clone costs ten times as much, and a new session, which plans everything for the first
time, more than most tests themselves.
"""

import contextlib
import time
from collections.abc import Sequence

import asyncpg
import psycopg

from pgwake.database.embedded import EmbeddedServer
from support import Connection, database_url
from support.clones import cloned, roll_back_prepared

# Their rows are the template's: if the first two change, the database is thrown away.
TEMPLATES_OWN = ["schema_version", "installation", "ring_slots"]

# A row of a catalog that was added or changed has a new xmin, one that went is missed
# by the count. Of pg_class what truncate and analyze do not change.
CATALOGS = """
pg_attrdef pg_attribute pg_constraint pg_db_role_setting pg_default_acl pg_depend
pg_description pg_event_trigger pg_extension pg_index pg_inherits pg_policy pg_proc
pg_publication pg_rewrite pg_trigger pg_type
"""
FINGERPRINT = " union all ".join(
    [
        f"select '{name} ' || count(*) || ' ' || coalesce(max(xmin::text::bigint), 0)"
        f" from {name}"
        for name in CATALOGS.split()
    ]
    + [
        """
        select string_agg(n::text, ' ' order by n.oid) from pg_namespace as n
        where n.nspname !~ '^pg_(toast_)?temp_'
        union all
        select string_agg(row(c.oid, c.relname, c.relnamespace, c.relowner, c.relkind,
          c.relpersistence, c.relacl, c.reloptions, c.relam, c.reltablespace,
          c.relhasrules, c.relhastriggers, c.relrowsecurity, c.relreplident)::text, ' '
          order by c.oid)
        from pg_class as c where c.oid >= 16384
        union all
        select i::text from pgwake.installation as i
        union all
        select v::text from pgwake.schema_version as v
        """
    ]
)
TABLES = """
select c.relkind::text, c.oid::regclass::text from pg_class as c
where c.relnamespace = 'pgwake'::regnamespace and c.relkind in ('r', 'S')
  and c.relname <> all (%s)
"""
OTHERS = """
select pid from pg_stat_activity
where datname = current_database() and backend_type = 'client backend'
  and pid <> pg_backend_pid() and pid <> all (%s)
"""

BROKEN = (asyncpg.PostgresError, asyncpg.InterfaceError, OSError, TimeoutError)


class SharedDatabase:
    """The clone, its cleaner, and the sessions that are kept for the next test."""

    def __init__(
        self, server: EmbeddedServer, admin: psycopg.Connection, template: str
    ) -> None:
        self._server, self._admin, self._template = server, admin, template
        self._held = contextlib.ExitStack()
        self._idle: list[Connection] = []
        self._given_up: list[Connection] = []
        self.url = ""

    def open(self) -> str:
        """Return the URL of a database as the template is."""
        if self.url:
            return self.url
        self.url = self._held.enter_context(
            cloned(self._server, self._admin, self._template)
        )
        self._name = self.url.rpartition("/")[2]
        self._cleaner = self._held.enter_context(
            psycopg.connect(
                database_url(self._server, self._name, role="postgres"), autocommit=True
            )
        )
        self._cleaner.execute("set session_replication_role = replica")  # no triggers
        kinds = self._cleaner.execute(TABLES, [TEMPLATES_OWN]).fetchall()
        self._tables = [name for kind, name in kinds if kind == "r"]
        self._sequences = [name for kind, name in kinds if kind == "S"]
        self._fingerprint = self._look()
        return self.url

    def clean(self) -> None:
        """Make it as it was; throw it away if more than rows has changed."""
        self._wait_for_others()
        roll_back_prepared(self._server, self._admin, self._name)
        if self._look() != self._fingerprint:
            self._held.close()
            self._given_up += self._idle
            self._idle.clear()
            self.url = ""
            return
        filled = ", ".join(f"exists (select from {table})" for table in self._tables)
        found = self._cleaner.execute(f"select {filled}").fetchone() or ()
        statements = [
            f"delete from {table}"
            for table, is_filled in zip(self._tables, found, strict=True)
            if is_filled
        ]
        statements += [f"select setval('{s}', 1, false)" for s in self._sequences]
        statements.append(
            "update pgwake.ring_slots set tried_at = '-infinity'"
            " where tried_at <> '-infinity'"
        )
        self._cleaner.execute("; ".join(statements))

    def _look(self) -> object:
        try:
            return self._cleaner.execute(FINGERPRINT).fetchall()
        except psycopg.Error:  # no schema any more
            return None

    def _wait_for_others(self) -> None:
        """A session that is being closed may still hold locks."""
        kept = [connection.get_server_pid() for connection in self._idle]
        deadline = time.monotonic() + 1
        while others := self._others(kept):
            if time.monotonic() > deadline:
                for (pid,) in others:
                    self._cleaner.execute("select pg_terminate_backend(%s)", [pid])
            time.sleep(0.001)

    def _others(self, kept: Sequence[int]) -> Sequence[tuple[int]]:
        while True:
            try:
                return self._cleaner.execute(OTHERS, [kept]).fetchall()
            except psycopg.errors.OutOfMemory:
                # All locks are in use while a session drops its temporary objects.
                time.sleep(0.01)

    def take(self) -> "Connection | None":
        """A session that an earlier test has given back, if there is one."""
        while self._idle:
            connection = self._idle.pop()
            if not connection.is_closed():
                return connection
        return None

    async def give_back(self, connection: Connection) -> None:
        """Keep a session for the next test, unless it is in a transaction."""
        try:
            if connection.is_in_transaction():
                await connection.close(timeout=2)
            else:
                await connection.reset(timeout=5)
                await connection.execute(
                    "reset session authorization; discard sequences; discard temp"
                )
                self._idle.append(connection)
        except BROKEN:
            connection.terminate()

    async def close(self) -> None:
        """Close the sessions and drop the database."""
        for connection in self._idle + self._given_up:
            with contextlib.suppress(*BROKEN):
                await connection.close(timeout=2)
        self._held.close()
