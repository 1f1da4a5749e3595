"""How a question is asked on each kind of connection.

A connection that was given is used as it stands: its transaction is its owner's to
begin, commit and roll back. What is borrowed from a pool or an engine is committed.
"""

from pgwake.database.url import checked_url
from pgwake.errors import ConfigurationError
from pgwake.produce.drivers.base import (
    AsyncAdapter,
    AsyncTarget,
    SyncAdapter,
    SyncTarget,
)

__all__ = ["AsyncAdapter", "AsyncTarget", "SyncAdapter", "SyncTarget", "adapt"]


def adapt(target: object) -> AsyncAdapter | SyncAdapter:
    """Return the adapter for a connection, a pool, an engine or a URL.

    Drivers are imported here and not before: whose connection it is has them.

    Raises:
        ConfigurationError: It is none that is known, or no URL.
    """
    if isinstance(target, AsyncAdapter | SyncAdapter):
        return target
    if isinstance(target, str):
        from pgwake.produce.drivers import asyncpg  # noqa: PLC0415

        return asyncpg.UrlAdapter(checked_url(target))
    found: AsyncAdapter | SyncAdapter | None = None
    for package in _packages(target):
        match package:
            case "asyncpg":
                from pgwake.produce.drivers import asyncpg  # noqa: PLC0415

                found = asyncpg.adapt(target)
            case "psycopg" | "psycopg_pool":
                from pgwake.produce.drivers import psycopg  # noqa: PLC0415

                found = psycopg.adapt(target)
            case "sqlalchemy":
                from pgwake.produce.drivers import sqlalchemy  # noqa: PLC0415

                found = sqlalchemy.adapt(target)
            case "django":
                from pgwake.produce.drivers import django  # noqa: PLC0415

                found = django.adapt(target)
        if found is not None:
            return found
    raise ConfigurationError(
        f"{type(target).__module__}.{type(target).__qualname__} is no connection: use a"
        " URL; a connection or a pool of asyncpg or psycopg 3; a session, a connection"
        " or an engine of SQLAlchemy; a connection of Django"
    )


def _packages(target: object) -> list[str]:
    """The packages that its class and the classes above it come from."""
    classes = type(target).__mro__
    return list(dict.fromkeys(one.__module__.partition(".")[0] for one in classes))
