"""Copies of a test's database, made as an operator makes them."""

import itertools
import subprocess
from pathlib import Path

import psycopg

from pgwake.database.embedded import EmbeddedServer
from support import OWNER, database_url

_serial = itertools.count(1)


def clone(server: EmbeddedServer, admin: psycopg.Connection, original: str) -> str:
    """Clone a database, to which nobody may be connected; the URL of the clone."""
    name = f"pgwake_clone_{next(_serial)}"
    template = Path(original).name
    admin.execute(f"create database {name} template {template} owner {OWNER}")
    return database_url(server, name)


def restore(
    server: EmbeddedServer, admin: psycopg.Connection, original: str, *, way: str
) -> str:
    """Dump a database and restore the dump, by psql or pg_restore; the URL."""
    name = f"pgwake_restored_{next(_serial)}"
    admin.execute(f"create database {name} owner {OWNER}")
    url = database_url(server, name)
    kind = "plain" if way == "psql" else "custom"
    dump = subprocess.run(
        [server.binaries / "pg_dump", "--format", kind, "--dbname", original],
        check=True,
        capture_output=True,
    ).stdout
    options = {
        "psql": ["-X", "-q", "-o", "/dev/null", "-v", "ON_ERROR_STOP=1"],
        "pg_restore": ["--exit-on-error"],
    }
    done = subprocess.run(
        [server.binaries / way, *options[way], "--dbname", url],
        input=dump,
        check=False,
        capture_output=True,
    )
    assert (done.returncode, done.stderr) == (0, b""), done.stderr.decode()
    return url
