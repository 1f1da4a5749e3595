"""Installs the schema with `migrate`, on Django's own connection.

Before each `migrate`, and not as a migration of its own: the name of one is recorded,
and a newer schema would need another in each release that only replaces functions; and
TEST = {"MIGRATE": False} runs none. So the migrations of other apps find the queue.
"""

import sys
import time
from time import monotonic
from typing import Any, TextIO

from django.db import DatabaseError, connections
from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.backends.base.creation import TEST_DATABASE_PREFIX

from pgwake.database.connection import backoff
from pgwake.database.install import (
    LEAST_SECONDS,
    PASSING,
    install_script,
    schema_problem,
)
from pgwake.database.statements.install import (
    HAS_ROLES,
    SCHEMA_OF_DATABASE,
    STANDARD_STRINGS,
    Schema,
    patient,
)
from pgwake.django.config import alias
from pgwake.errors import ConfigurationError
from pgwake.produce.drivers.refusals import said_by_server

_HAS_SCHEMA = "select to_regclass('pgwake.schema_version') is not null"
_MAY_REPLACE = """
select pg_has_role(n.nspowner, 'member')
from pg_namespace as n
where n.nspname = 'pgwake'
"""
# Parallel tests run on clones of a test database, whose jobs shall run too.
_LET_CLONES_RUN = "select pgwake.adopt(guard => false)"


def migrate_schema(
    using: str, verbosity: int = 1, stdout: TextIO | None = None, **_: Any
) -> None:
    """Install the schema on a connection that is being migrated; see pre_migrate.

    Only where the jobs are: on the alias of PGWAKE["DATABASE"], and in tests on the
    one of which that is a mirror.
    """
    connection = connections[using]
    if connection.vendor != "postgresql":
        return  # a system check says so
    is_test = _is_test_database(connection)
    mirrored = connections[alias()].settings_dict["TEST"]["MIRROR"]
    if alias() != using and not (is_test and mirrored == using):
        return
    before = install(connection)
    after = installed_schema(connection)
    if verbosity >= 1 and before != after and after is not None:
        print(f"Installed pgwake schema {after.version}", file=stdout or sys.stdout)
    if before is None and is_test:
        _execute(connection, _LET_CLONES_RUN)


def installed_schema(connection: BaseDatabaseWrapper) -> Schema | None:
    """Return which schema a database has; None: it has none."""
    with connection.cursor() as cursor:
        cursor.execute(_HAS_SCHEMA)
        (exists,) = cursor.fetchone()
        if not exists:
            return None
        cursor.execute(SCHEMA_OF_DATABASE)
        row = cursor.fetchone()
    return Schema(*row) if row else None


def install(connection: BaseDatabaseWrapper, timeout: float = 60.0) -> Schema | None:
    """Install the schema, or bring it up to date; what was installed before.

    As pgwake.database.install.install, in a transaction of its own. Where it is
    another role's, and new enough, it is left as it is.

    Args:
        connection: Not in an atomic block.
        timeout: Seconds in which to try again what passes: a table that somebody
            holds, another installer.

    Raises:
        ConfigurationError: The connection is in an atomic block, and the schema is
            not new enough.
        DatabaseError: What the server refused; its hint says what to do.
    """
    before = installed_schema(connection)
    problem = schema_problem(before)
    if connection.in_atomic_block and problem is not None:
        raise ConfigurationError(f"{problem}; not in an atomic block")
    if problem is None and (
        connection.in_atomic_block or not _value(connection, _MAY_REPLACE)
    ):
        return before
    give_up_at = monotonic() + timeout
    while True:
        left = give_up_at - monotonic()
        try:
            _run_installer(connection, left / 3)
        except DatabaseError as error:
            connection.rollback()
            said = said_by_server(error)
            left = give_up_at - monotonic()
            if said is None or said.sqlstate not in PASSING or left < LEAST_SECONDS:
                raise
            time.sleep(backoff(1))
        else:
            return before


def _run_installer(connection: BaseDatabaseWrapper, patience: float) -> None:
    _execute(connection, STANDARD_STRINGS)
    _execute(connection, patient(install_script(), patience))
    if _value(connection, HAS_ROLES):
        _execute(connection, install_script(name="roles.sql"))


def _execute(connection: BaseDatabaseWrapper, script: str) -> None:
    """Run statements with transactions of their own; Django logs no such text."""
    connection.ensure_connection()
    with connection.wrap_database_errors, connection.connection.cursor() as cursor:
        cursor.execute(script)


def _value(connection: BaseDatabaseWrapper, question: str) -> Any:
    with connection.cursor() as cursor:
        cursor.execute(question)
        return cursor.fetchone()[0]


def _is_test_database(connection: BaseDatabaseWrapper) -> bool:
    settings = connection.settings_dict
    name = str(settings["NAME"])
    return name == settings["TEST"]["NAME"] or name.startswith(TEST_DATABASE_PREFIX)
