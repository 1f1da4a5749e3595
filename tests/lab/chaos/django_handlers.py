"""What the workers run whose jobs end in a transaction on Django's connection.

A thread keeps its connection for a while; an async handler's is closed at its end.
"""

import os
import time
from typing import Any

import django
from asgiref.sync import sync_to_async
from django.conf import settings
from django.db import connection, transaction
from psycopg.conninfo import conninfo_to_dict

from pgwake import Job, job

from .handlers import SCHEMA, note_execution
from .run import ASYNC_DJANGO_KIND, DJANGO_KIND, django_application_name

_database: dict[str, Any] = conninfo_to_dict(os.environ["PGWAKE_DATABASE_URL"])
_database["application_name"] = django_application_name(str(SCHEMA), os.getpid())
settings.configure(
    INSTALLED_APPS=["pgwake.django"],
    DATABASES={
        "default": {
            "ENGINE": "django.db.backends.postgresql",
            "NAME": _database.pop("dbname"),
            "CONN_MAX_AGE": 10,
            "CONN_HEALTH_CHECKS": True,
            "OPTIONS": _database,
        }
    },
)
django.setup()
_EFFECT = f"insert into {SCHEMA}.effects (job_id, lease_id) values (%s, %s)"


@job(DJANGO_KIND)
def chaos_django(
    seconds: float, serial: int, *, has_effect: bool = False, job: Job
) -> None:
    """Take that long in a transaction that ends the job.

    Args:
        seconds: How long.
        serial: As of chaos().
        has_effect: A row of its own is committed with the job's end.
        job: The job.
    """
    note_execution(job, serial)
    _work(seconds, job, has_effect=has_effect)


@job(ASYNC_DJANGO_KIND)
async def chaos_django_async(
    seconds: float, serial: int, *, has_effect: bool = False, job: Job
) -> None:
    """Do the same in an async handler, whose thread outlives it when it is stopped."""
    note_execution(job, serial)
    await sync_to_async(_work)(seconds, job, has_effect=has_effect)


def _work(seconds: float, job: Job, *, has_effect: bool) -> None:
    with transaction.atomic():
        if has_effect:
            with connection.cursor() as cursor:
                cursor.execute(_EFFECT, [job.id, job.lease_id])
        time.sleep(seconds)
        job.complete(connection)
