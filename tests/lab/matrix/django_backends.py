"""Django's own tests of task backends, run against pgwake's.

    python -m tests.lab.matrix.django_backends FOLDER

FOLDER is tests/ of Django's source, from 6.0 on. Of its two backends, the dummy one is
pgwake's here, and the immediate one runs the job at once, too. The last line printed
says how many passed, and how many failed. In an environment with Django 6.
"""

import os
import sys
from collections.abc import Mapping, Sequence
from importlib import import_module
from typing import Any

import django
import typer
from django.conf import settings

from pgwake.database.embedded import EmbeddedServer

# What these backends alone do: give out what they hold, and refuse what pgwake can.
NOT_OURS = {
    "test_dummy_backend.DummyBackendTestCase": [
        "test_refresh_result",
        "test_refresh_result_async",
    ],
    "test_immediate_backend.ImmediateBackendTestCase": [
        "test_cannot_get_result",
        "test_cannot_pass_run_after",
        "test_cannot_refresh_result",
        "test_throws_keyboard_interrupt",
    ],
}


def main(folder: str) -> None:
    """Run them on a server of its own; exit code 1 if any fails."""
    sys.path.insert(0, folder)
    # Coroutines among the tests look into the backend, which holds nothing itself.
    os.environ["DJANGO_ALLOW_ASYNC_UNSAFE"] = "1"
    with EmbeddedServer() as server:
        _set_up(server)
        failures = _run()
    sys.exit(bool(failures))


def _set_up(server: EmbeddedServer) -> None:
    from psycopg.conninfo import conninfo_to_dict  # noqa: PLC0415

    given = conninfo_to_dict(server.url)
    fields = {name.upper(): value for name, value in given.items() if name != "dbname"}
    settings.configure(
        USE_TZ=False,  # as Django's own tests have it
        INSTALLED_APPS=["pgwake.django"],
        DATABASES={
            "default": {
                "ENGINE": "django.db.backends.postgresql",
                "NAME": given["dbname"],
                **fields,
            }
        },
        TASKS={
            "default": {
                "BACKEND": "django.tasks.backends.dummy.DummyBackend",
                "QUEUES": [],
            }
        },
    )
    django.setup()


def _run() -> int:
    # Only now, since all of it needs settings.
    import django.test  # noqa: PLC0415
    from django.tasks.backends import dummy, immediate  # noqa: PLC0415
    from django.test.runner import DiscoverRunner  # noqa: PLC0415

    from pgwake.django.backend import PgwakeBackend  # noqa: PLC0415
    from pgwake.django.models import Job  # noqa: PLC0415
    from pgwake.django.testing import sync_jobs  # noqa: PLC0415

    class Dummy(PgwakeBackend):
        def clear(self) -> None:
            Job.objects.all().delete()

        @property
        def results(self) -> list[Any]:
            ids = Job.objects.values_list("id", flat=True)
            return [self.get_result(str(job_id)) for job_id in ids]

    class Immediate(PgwakeBackend):
        def enqueue(
            self, task: Any, args: Sequence[Any], kwargs: Mapping[str, Any]
        ) -> Any:
            self.options = {"max_attempts": 1}
            result = super().enqueue(task, args, kwargs)
            self.options = {}
            sync_jobs().run_due(raises=False)
            result.refresh()
            return result

    class Runner(DiscoverRunner):
        def suite_result(self, suite: Any, result: Any, **kwargs: Any) -> int:
            del suite, kwargs
            failed = len(result.failures) + len(result.errors)
            typer.echo(f"{result.testsRun - failed} {failed}")
            return failed

        def teardown_databases(self, *_: Any, **__: Any) -> None:
            """Leave it: the server is gone in a moment."""

    dummy.DummyBackend = Dummy  # type: ignore[misc, assignment]
    immediate.ImmediateBackend = Immediate  # type: ignore[misc, assignment]
    # SimpleTestCase has no database.
    django.test.SimpleTestCase = django.test.TransactionTestCase  # type: ignore[misc]
    for case, names in NOT_OURS.items():
        module, name = case.split(".")
        for test in names:
            delattr(getattr(import_module(f"tasks.{module}"), name), test)
    return Runner().run_tests(["tasks"])


if __name__ == "__main__":
    main(sys.argv[1])
