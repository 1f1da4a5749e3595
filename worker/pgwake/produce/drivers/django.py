"""Django: django.db.connection, or one of django.db.connections."""

from collections.abc import Iterable, Sequence
from typing import Any

from django.db.backends.base.base import BaseDatabaseWrapper
from django.utils.connection import ConnectionProxy

from pgwake.errors import ConfigurationError
from pgwake.produce import drivers as adapters
from pgwake.produce.drivers.base import SyncAdapter


class ConnectionAdapter(SyncAdapter):
    """Asks on a connection, in its atomic block, or at once where there is none."""

    def __init__(self, connection: Any) -> None:
        self._connection = connection

    def ask(self, sql: str, argument: str | None) -> str:
        """Run a statement."""
        with self._connection.cursor() as cursor:
            cursor.execute(sql.replace("$1", "%s"), [argument] * sql.count("$1"))
            return str(cursor.fetchone()[0])

    def fetch(self, sql: str, *arguments: Any) -> Sequence[Any]:
        """Run a statement, even where Django takes the transaction for broken."""
        return self._driver().fetch(sql, *arguments)

    def copy(self, chunks: Iterable[str]) -> None:
        """COPY text."""
        driver = self._driver()
        with self._connection.wrap_database_errors:
            driver.copy(chunks)

    def check_transaction(self) -> None:
        """Look whether it is in an atomic block."""
        if self._connection.get_autocommit():
            raise ConfigurationError(
                "there is no transaction: open one by transaction.atomic()"
            )

    def _driver(self) -> SyncAdapter:
        self._connection.ensure_connection()
        try:
            driver = adapters.adapt(self._connection.connection)
        except ConfigurationError:
            driver = None
        if not isinstance(driver, SyncAdapter):
            raise ConfigurationError(
                "copy works through psycopg 3: install it, or use enqueue_many"
            )
        return driver


def adapt(target: object) -> SyncAdapter | None:
    """Return the adapter, or None for what is no connection.

    Raises:
        ConfigurationError: It leads to another database than PostgreSQL.
    """
    if not isinstance(target, BaseDatabaseWrapper | ConnectionProxy):
        return None
    vendor = getattr(target, "vendor", None)
    if vendor != "postgresql":
        raise ConfigurationError(
            f"Django's connection leads to {vendor}, no PostgreSQL"
        )
    return ConnectionAdapter(target)
