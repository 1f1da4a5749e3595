"""System checks: what would keep the queue from working, said by manage.py check."""

import sys
from collections.abc import Sequence
from importlib import import_module
from typing import Any

from django.core.checks import CheckMessage, Error, Warning  # noqa: A004, Django's name
from django.db import DatabaseError, connections
from django.utils.connection import ConnectionDoesNotExist

from pgwake.database.install import schema_problem
from pgwake.django.config import HANDLERS, alias, worker_settings
from pgwake.django.discovery import import_handlers
from pgwake.django.schema import installed_schema
from pgwake.errors import ConfigurationError


def check_settings(**_: Any) -> list[CheckMessage]:
    """E001: there is no such database, or a setting can't be used."""
    try:
        worker_settings()
    except ConnectionDoesNotExist as error:
        return [Error(str(error), hint="Set PGWAKE['DATABASE'].", id="pgwake.E001")]
    except ConfigurationError as error:
        return [Error(str(error), id="pgwake.E001")]
    return []


def check_handlers(**_: Any) -> list[CheckMessage]:
    """E002: a module with handlers can't be imported."""
    if check_settings():
        return []  # E001
    try:
        import_handlers()
        for module in worker_settings().imports:
            if module != HANDLERS:  # which sets Django up, as it is
                import_module(module)
    except Exception as error:  # noqa: BLE001, a user's module
        return [
            Error(
                f"handlers can't be imported: {type(error).__name__}: {error}",
                hint="See where: python -c 'import pgwake.django.handlers'",
                id="pgwake.E002",
            )
        ]
    return []


def check_schema(
    databases: Sequence[str] | None = None, **_: Any
) -> list[CheckMessage]:
    """W001: the schema is missing, or not of this version; migrate needs not hear it.

    No error: that would keep migrate from installing it.
    """
    mends = sys.argv[1:2] == ["migrate"]
    if mends or alias() not in (databases or ()) or check_settings():
        return []
    try:
        problem = schema_problem(installed_schema(connections[alias()]))
    except DatabaseError as error:
        problem = f"the schema can't be read: {error}"
    if problem is None:
        return []
    hint = f"manage.py migrate --database {alias()} installs it."
    return [Warning(problem.partition(":")[0], hint=hint, id="pgwake.W001")]
