"""Handlers that lose their session, beside those of tests/examples/django_shop."""

from asgiref.sync import sync_to_async
from django.db import connection

import pgwake.django.handlers  # noqa: F401, sets Django up first
from pgwake import job

_LOSE = "select pg_terminate_backend(pg_backend_pid())"


@job("lose_session", max_attempts=1)
def lose_session() -> None:
    with connection.cursor() as cursor:
        cursor.execute(_LOSE)


@job("alose_session", max_attempts=1)
async def alose_session() -> None:
    await sync_to_async(lose_session)()


@job("lose_session_apart", max_attempts=1, process=True)
def lose_session_apart() -> None:
    lose_session()


@job("look_apart", process=True)
def look_apart() -> int:
    with connection.cursor() as cursor:
        cursor.execute("select 1")
        (one,) = cursor.fetchone()
    return int(one)
