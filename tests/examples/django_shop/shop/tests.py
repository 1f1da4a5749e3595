"""The shop's own tests: python manage.py test."""

from datetime import datetime, timedelta

from asgiref.sync import async_to_sync
from django.contrib.auth.models import Permission, User
from django.core.management import call_command
from django.db import connection, transaction
from django.test import TestCase, TransactionTestCase
from django.utils import timezone

from pgwake.django import PgwakeBackend
from pgwake.django.models import Job
from pgwake.django.testing import sync_jobs
from shop.jobs import send_receipt
from shop.models import Order
from shop.tasks import DeclinedError, charge, misbehave, send_letter

try:
    from django.tasks import default_task_backend, task, task_backends
    from django.tasks.exceptions import (
        InvalidTask,
        TaskResultDoesNotExist,
        TaskResultMismatch,
    )
    from django.tasks.signals import task_enqueued, task_finished, task_started
except ImportError:  # of Django 5.2
    from django_tasks import default_task_backend, task, task_backends
    from django_tasks.exceptions import InvalidTaskError as InvalidTask
    from django_tasks.exceptions import TaskResultDoesNotExist, TaskResultMismatch
    from django_tasks.signals import task_enqueued, task_finished, task_started


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


class TheTasks(TestCase):
    """What Django says of a backend of django.tasks, as its own tests have it."""

    def setUp(self) -> None:
        self.order = Order.objects.create(email="ada@example.org")
        self.jobs = sync_jobs()

    def run_due(self) -> None:
        self.jobs.run_due(raises=False)

    def test_a_backend_says_what_it_can(self) -> None:
        self.assertIsInstance(task_backends["default"], PgwakeBackend)
        for what in ("defer", "async_task", "get_result", "priority"):
            self.assertTrue(getattr(default_task_backend, f"supports_{what}"))

    def test_an_enqueued_task_is_ready_and_then_successful(self) -> None:
        told = []
        for one in (task_enqueued, task_started, task_finished):
            one.connect(
                lambda task_result, **_: told.append(task_result.status), weak=False
            )
        result = send_letter.enqueue(self.order.pk, subject="Hi")
        self.assertEqual(result.status, "READY")
        self.assertFalse(result.is_finished)
        self.assertEqual(result.args, [self.order.pk])
        self.assertEqual(result.kwargs, {"subject": "Hi"})
        self.assertEqual(result.attempts, 0)
        self.assertEqual(send_letter.get_result(result.id), result)
        with self.assertRaisesMessage(ValueError, "Task has not finished yet"):
            _ = result.return_value

        self.run_due()
        result.refresh()

        self.assertEqual(result.status, "SUCCESSFUL")
        sent = {"order": self.order.pk, "subject": "Hi"}
        self.assertEqual(result.return_value, sent)
        self.assertEqual((result.attempts, result.errors), (1, []))
        self.assertLessEqual(result.enqueued_at, result.started_at)
        self.assertLessEqual(result.enqueued_at, result.finished_at)
        self.assertEqual(send_letter.get_result(result.id), result)
        self.assertEqual(told, ["READY", "RUNNING", "SUCCESSFUL"])
        with self.assertRaises(TaskResultMismatch):
            charge.get_result(result.id)

    def test_what_a_task_raises_is_told_and_tried_again(self) -> None:
        result = charge.enqueue(declines=1)
        self.run_due()
        result.refresh()
        self.assertEqual((result.status, result.attempts), ("READY", 1))

        self.jobs.move_clock(60)
        self.run_due()
        result.refresh()

        self.assertEqual((result.status, result.return_value), ("SUCCESSFUL", 2))
        (error,) = result.errors
        self.assertEqual(error.exception_class, DeclinedError)
        self.assertIn("DeclinedError: attempt 1", error.traceback)
        self.assertIn("Traceback (most recent call last)", error.traceback)
        self.assertIn("raise DeclinedError", error.traceback)

    def test_a_task_that_has_no_attempts_left_has_failed(self) -> None:
        result = charge.using(max_attempts=1).enqueue(declines=9)
        with self.assertRaises(DeclinedError):
            self.jobs.run_due()
        result.refresh()
        self.assertEqual((result.status, len(result.errors)), ("FAILED", 1))
        self.assertTrue(result.is_finished)
        with self.assertRaisesMessage(ValueError, "Task failed"):
            _ = result.return_value

    def test_what_exits_or_returns_no_json_has_failed(self) -> None:
        told = []
        task_finished.connect(
            lambda task_result, **_: told.append(task_result.status), weak=False
        )
        for exits, error in ((True, SystemExit), (False, TypeError)):
            result = misbehave.using(max_attempts=1).enqueue(exits=exits)
            self.run_due()
            result.refresh()
            self.assertEqual(result.status, "FAILED")
            self.assertEqual(result.errors[0].exception_class, error)
        self.assertEqual(told, ["FAILED", "FAILED"])

    def test_it_is_deferred_ordered_and_put_into_its_queue(self) -> None:
        later = timezone.now() + timedelta(hours=1)
        result = send_letter.using(
            run_after=later, priority=7, queue_name="letters"
        ).enqueue(1)
        self.run_due()
        result.refresh()
        self.assertEqual(result.status, "READY")
        job = Job.objects.get(id=result.id)
        self.assertEqual((job.run_at, job.priority), (later, 7))
        self.assertEqual(job.queue, "letters")
        found = send_letter.get_result(result.id)
        self.assertEqual(found.task.run_after, later)

    def test_what_pgwake_adds_is_given_by_using(self) -> None:
        once = send_letter.using(unique_key="order 7", concurrency_key="ada")
        first, second = once.enqueue(1), once.enqueue(2)
        self.assertEqual((second.id, second.args), (first.id, [1]))
        job = Job.objects.get(id=first.id)
        self.assertEqual(job.concurrency_key, "ada")
        with self.assertRaisesMessage(InvalidTask, "no option 'uniqe_key', use"):
            send_letter.using(uniqe_key="a")
        with self.assertRaisesMessage(InvalidTask, "max attempts is 1 to"):
            send_letter.using(max_attempts=0).enqueue(1)

    def test_what_can_not_be_a_task_is_refused(self) -> None:
        for wrong in (
            {"queue_name": "other"},
            {"priority": 101},
            {"run_after": datetime(2027, 1, 1)},  # noqa: DTZ001, that is wrong
        ):
            with self.subTest(wrong), self.assertRaises(InvalidTask):
                send_letter.using(**wrong)
        with self.assertRaises(TypeError):
            send_letter.enqueue(object())
        with self.assertRaises(InvalidTask):
            task(lambda: None)
        for missing in ("0", "no id", "9" * 30):
            with self.subTest(missing), self.assertRaises(TaskResultDoesNotExist):
                default_task_backend.get_result(missing)

    def test_it_can_be_awaited(self) -> None:
        async def look() -> object:
            result = await send_letter.aenqueue(self.order.pk)
            await result.arefresh()
            return await send_letter.aget_result(result.id)

        self.assertEqual(async_to_sync(look)().status, "READY")
