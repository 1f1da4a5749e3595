"""What a Django project says of pgwake: the setting PGWAKE, and its databases."""

import os
from collections.abc import Mapping
from typing import Any
from urllib.parse import quote, urlencode

from django.conf import settings
from django.db import DEFAULT_DB_ALIAS, connections

from pgwake.errors import ConfigurationError
from pgwake.settings import Settings

HANDLERS = "pgwake.django.handlers"
# What a URL can say of what Django passes to the driver; the rest is the driver's.
_PARAMETERS = (
    *("host", "port", "passfile", "service", "options", "target_session_attrs"),
    *("sslmode", "sslrootcert", "sslcert", "sslkey", "sslpassword", "sslcrl"),
)


def project_settings() -> Mapping[str, Any]:
    """Return the setting PGWAKE, a dict.

    Raises:
        ConfigurationError: It is none.
    """
    given = getattr(settings, "PGWAKE", {})
    if not isinstance(given, Mapping):
        raise ConfigurationError(
            'PGWAKE must be a dict, such as {"DATABASE": "default"}'
        )
    return given


def alias() -> str:
    """Return the alias, of DATABASES, of the database that has the jobs."""
    return str(project_settings().get("DATABASE", DEFAULT_DB_ALIAS))


def database_url(name: str) -> str:
    """Return the URL of a database of DATABASES, for connections of the worker's own.

    Raises:
        ConfigurationError: It is no PostgreSQL.
    """
    connection = connections[name]
    if connection.vendor != "postgresql":
        raise ConfigurationError(
            f"DATABASES[{name!r}] is no PostgreSQL: name another in PGWAKE['DATABASE']"
        )
    given = connection.get_connection_params()
    login = quote(given.get("user", ""), safe="")
    if password := given.get("password"):
        login += ":" + quote(password, safe="")
    query = {name: str(given[name]) for name in _PARAMETERS if given.get(name)}
    path = quote(given.get("dbname", ""), safe="")
    at = "@" if login else ""
    return f"postgresql://{login}{at}/{path}?{urlencode(query, quote_via=quote)}"


def worker_settings(**flags: Any) -> Settings:
    """Return a worker's settings: flags, before PGWAKE_* variables, before PGWAKE.

    The database is that of the alias, unless PGWAKE_DATABASE_URL says otherwise. The
    handlers are those of each app's jobs.py, and of the modules in IMPORTS.

    Args:
        flags: Fields of Settings; None: not given.

    Raises:
        ConfigurationError: A setting is unknown, or can't be used.
    """
    given = {}
    for name, value in project_settings().items():
        if name == "DATABASE":
            continue
        if name != name.upper() or name.lower() not in Settings.model_fields:
            raise ConfigurationError(
                f"PGWAKE[{name!r}] is no setting: use DATABASE, or a worker's, such as"
                " QUEUES and PROCESSES for PGWAKE_QUEUES and PGWAKE_PROCESSES"
            )
        if f"PGWAKE_{name}" not in os.environ:
            given[name.lower()] = value
    if "PGWAKE_DATABASE_URL" not in os.environ:
        given.setdefault("database_url", database_url(alias()))
    given |= {name: value for name, value in flags.items() if value is not None}
    settings = Settings.load(**given)
    return settings.model_copy(update={"imports": (HANDLERS, *settings.imports)})
