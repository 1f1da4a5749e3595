"""Handlers that lose their session, beside those of tests/examples/django_shop."""

from asgiref.sync import sync_to_async
from django.db import connection, transaction
from django.db.models import F

import pgwake.django.handlers  # noqa: F401, sets Django up first
from pgwake import Job, job
from shop.models import Order  # type: ignore[import-not-found]
from shop.tasks import charge  # type: ignore[import-not-found]

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


@job("bill_once", backoff_base=0.1)
def bill_once(job: Job, order: int) -> None:
    """Count a receipt and enqueue a task: one commit with the end of the job."""
    with transaction.atomic():
        Order.objects.filter(id=order).update(receipts=F("receipts") + 1)
        charge.enqueue(declines=0)
        with connection.cursor() as cursor:
            cursor.execute("select pg_sleep(0.1)")
        job.complete(connection)


@job("abill_once", backoff_base=0.1)
async def abill_once(job: Job, order: int) -> None:
    await sync_to_async(bill_once)(job, order)


@job("bill_apart", process=True, backoff_base=0.1)
def bill_apart(job: Job, order: int) -> None:
    bill_once(job, order)
