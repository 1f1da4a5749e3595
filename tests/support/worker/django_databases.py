"""Tests by manage.py, where the queue has a connection of its own."""

from typing import Any

from django.conf import settings
from django.db import connections, transaction
from django.test import TestCase, TransactionTestCase

from pgwake.django.models import Job
from shop.jobs import send_receipt  # type: ignore[import-not-found]
from shop.models import Order  # type: ignore[import-not-found]
from shop.tasks import charge  # type: ignore[import-not-found]

DATABASES = set(settings.DATABASES)


def ask(alias: str, sql: str) -> Any:
    with connections[alias].cursor() as cursor:
        cursor.execute(sql)
        return cursor.fetchone()[0]


class ATransactionOfTheQueue(TestCase):
    """The order and its jobs are in one, on the queue's connection."""

    databases = DATABASES - {"replica"}

    def test_has_the_order_and_its_job(self) -> None:
        with transaction.atomic(using="jobs"):
            order = Order.objects.using("jobs").create(email="ada@example.org")
            job = send_receipt.using(connections["jobs"]).enqueue(order.pk)
            task = charge.enqueue(declines=0)
            assert charge.get_result(task.id) == task
            found = Job.objects.filter(id__in=[job, task.id])
            assert found.count() == 2
            transaction.set_rollback(True, using="jobs")
        assert not found.exists()


class ACommitToTheQueue(TransactionTestCase):
    """What is committed can be claimed, and is seen by who reads elsewhere."""

    databases = DATABASES

    def test_is_seen_by_a_mirror_and_by_workers(self) -> None:
        job = send_receipt.using(connections["jobs"], queue="seen").enqueue(1)
        (other,) = DATABASES - {"jobs", "default"} or {"default"}
        assert ask(other, "select max(id) from pgwake.jobs") == job
        claim = "select id from pgwake.claim_next_job('seen', worker => 'me')"
        assert ask("jobs", claim) == job

    def test_is_in_no_other_database(self) -> None:
        has_schema = "select to_regnamespace('pgwake') is not null"
        assert ask("jobs", has_schema)
        is_mirror = settings.DATABASES["jobs"]["TEST"].get("MIRROR") is not None
        assert ask("default", has_schema) == is_mirror
