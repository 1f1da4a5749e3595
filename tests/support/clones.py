"""Databases cloned from the template, each dropped one test after its own."""

import contextlib
import itertools
from collections.abc import Iterator

import psycopg

from pgwake.database.embedded import EmbeddedServer
from support import OWNER, database_url

_serial = itertools.count(1)
_left: list[str] = []  # the database of the test before, to be dropped


@contextlib.contextmanager
def cloned(
    server: EmbeddedServer, admin: psycopg.Connection, template: str
) -> Iterator[str]:
    """Clone the template; the URL of the clone, for its owner, who is no superuser."""
    name = f"pgwake_test_{next(_serial)}"
    # Copied as files (before 15 always): with fsync off four times as fast as by WAL.
    strategy = "strategy file_copy" if admin.info.server_version >= 150000 else ""
    admin.execute(
        f"create database {name} template {template} owner {OWNER} {strategy}"
    )
    yield database_url(server, name)
    roll_back_prepared(server, admin, name)
    # Not its own: for sessions that the test has just closed, but that have not ended
    # yet, the server would wait a tenth of a second.
    while _left:
        admin.execute(f"drop database {_left.pop()} with (force)")
    _left.append(name)


def roll_back_prepared(
    server: EmbeddedServer, admin: psycopg.Connection, database: str
) -> None:
    """Roll back what would keep the database from being dropped."""
    rollbacks = admin.execute(
        "select format('rollback prepared %%L', gid) from pg_prepared_xacts"
        " where database = %s",
        [database],
    ).fetchall()
    if not rollbacks:
        return
    # Only a session of the same database may.
    url = database_url(server, database, role="postgres")
    with psycopg.connect(url, autocommit=True) as connection:
        for (rollback,) in rollbacks:
            connection.execute(rollback)
