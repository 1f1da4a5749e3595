"""The shop's own tests: python manage.py test."""

from django.contrib.auth.models import Permission, User
from django.core.management import call_command
from django.db import connection, transaction
from django.test import TestCase, TransactionTestCase

from pgwake.django.models import Job
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


class TheAdmin(TestCase):
    """Operators look, retry and cancel; nobody edits."""

    def setUp(self) -> None:
        self.user = User.objects.create(username="ada", is_staff=True)
        self.client.force_login(self.user)
        self.give("view_job")
        self.job = send_receipt.using(connection).enqueue(1)

    def give(self, right: str) -> None:
        self.user.user_permissions.add(Permission.objects.get(codename=right))

    def act(self, action: str) -> list[str]:
        answer = self.client.post(
            "/admin/pgwake/job/",
            {"action": action, "_selected_action": self.job},
            follow=True,
        )
        return [str(message) for message in answer.context["messages"]]

    def status(self) -> str:
        return Job.objects.get(id=self.job).status

    def test_shows_jobs_to_who_may_view_them(self) -> None:
        for word in ("", str(self.job), "send_receipt", "default"):
            page = self.client.get("/admin/pgwake/job/", {"q": word})
            self.assertContains(page, f"/admin/pgwake/job/{self.job}/change/")
        nothing = self.client.get("/admin/pgwake/job/", {"q": "send"})
        self.assertContains(nothing, "0 jobs")
        page = self.client.get(f"/admin/pgwake/job/{self.job}/change/")
        self.assertContains(page, "order&quot;: 1")
        self.assertNotContains(page, '<input type="submit"')

    def test_cancels_and_retries_for_who_may_change_them(self) -> None:
        self.act("cancel")
        self.assertEqual(self.status(), "pending")
        self.give("change_job")
        self.assertEqual(self.act("cancel"), [f"Job {self.job} is cancelled."])
        self.assertEqual(self.status(), "cancelled")
        self.assertEqual(self.act("retry"), [f"Job {self.job} is pending."])
        (refused,) = self.act("retry")
        self.assertIn(f"Job {self.job}: ", refused)
        self.assertEqual(self.status(), "pending")
