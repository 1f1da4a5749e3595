"""What a Django project says of pgwake: the setting PGWAKE, and its databases."""

from collections.abc import Mapping
from typing import Any

from django.conf import settings
from django.core.exceptions import ImproperlyConfigured
from django.db import DEFAULT_DB_ALIAS


def project_settings() -> Mapping[str, Any]:
    """Return the setting PGWAKE, a dict.

    Raises:
        ImproperlyConfigured: It is none.
    """
    given = getattr(settings, "PGWAKE", {})
    if not isinstance(given, Mapping):
        raise ImproperlyConfigured(
            'PGWAKE must be a dict, such as {"DATABASE": "default"}'
        )
    return given


def alias() -> str:
    """Return the alias, of DATABASES, of the database that has the jobs."""
    return str(project_settings().get("DATABASE", DEFAULT_DB_ALIAS))
