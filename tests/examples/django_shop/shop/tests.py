"""The shop's own tests: python manage.py test."""

from django.core.management import call_command
from django.db import connection, transaction
from django.test import TestCase, TransactionTestCase

from shop.jobs import send_receipt
from shop.models import Order


class AJobOfATransaction(TestCase):
    """What a test case enqueues, it sees; and rolls back."""

    def test_it_is_there_if_and_only_if_the_order_is(self) -> None:
        order = Order.objects.create(email="ada@example.org")
        with transaction.atomic():
            lost = send_receipt.using(connection).enqueue(order.pk)
            transaction.set_rollback(True)
        kept = send_receipt.using(connection).enqueue(order.pk)
        with connection.cursor() as cursor:
            cursor.execute(
                "select id from pgwake.jobs where id in (%s, %s)", [lost, kept]
            )
            self.assertEqual(cursor.fetchall(), [(kept,)])

    def test_migrate_within_it_leaves_what_is_installed(self) -> None:
        call_command("migrate", verbosity=0)
        self.assertTrue(connection.in_atomic_block)


class ACloneOfTheTestDatabase(TransactionTestCase):
    """Parallel tests run on clones, which are copies of a database."""

    def test_its_jobs_may_be_claimed(self) -> None:
        send_receipt.using(connection, queue="clone").enqueue(1)
        with connection.cursor() as cursor:
            cursor.execute(
                "select kind from pgwake.claim_next_job('clone', worker => 'me')"
            )
            self.assertEqual(cursor.fetchall(), [("send_receipt",)])
