"""A Django project: tests/examples/django_shop, by its manage.py."""

import json
import shutil
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import TypeAlias

import psycopg
import pytest

from pgwake.database.embedded import EmbeddedServer
from pgwake.version import SCHEMA_VERSION
from support import Connect, database_url, wait_for
from support.sql import release
from support.sql.helpers import insert
from support.worker import django_shop
from support.worker.django_shop import PROJECT, working
from support.worker.helpers import ended, reasons

NEW_HANDLER = """

@job("new")
def new() -> str:
    return "new"
"""

Manage: TypeAlias = Callable[..., str]


@pytest.fixture(scope="module")
def url(server: EmbeddedServer, admin: psycopg.Connection) -> str:
    """A database with an older pgwake, as a superuser: tests create databases."""
    admin.execute("create database django_shop")
    url = database_url(server, "django_shop", role="postgres")
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(release.script(1).encode())
    return url


@pytest.fixture(scope="module")
def shop(url: str) -> Iterator[psycopg.Connection]:
    """A connection beside Django's."""
    with psycopg.connect(url, autocommit=True, application_name="test") as connection:
        yield connection


@pytest.fixture(scope="module")
def manage(url: str) -> Manage:
    """Run manage.py; what it prints."""
    return partial(django_shop.manage, url)


@pytest.fixture(scope="module")
def migrated(manage: Manage) -> str:
    return manage("migrate", "--no-color")


def installed(shop: psycopg.Connection) -> object:
    row = shop.execute("select version from pgwake.schema_version").fetchone()
    return row and row[0]


def test_migrate_upgrades_the_schema_before_the_migrations_of_others(
    migrated: str, shop: psycopg.Connection
) -> None:
    assert f"Installed pgwake schema {SCHEMA_VERSION}\n" in migrated
    assert "W001" not in migrated
    assert installed(shop) == SCHEMA_VERSION
    jobs = shop.execute("select kind from pgwake.jobs").fetchall()
    assert jobs == [("stock",)]
    shop.execute("insert into pgwake.jobs (kind, queue) values ('steps', 'steps')")
    recorded = shop.execute(
        "select pgwake.record_step(id, lease_id, 'a', '1'), pgwake.emit_event('e')"
        " from pgwake.claim_next_job('steps')"
    )
    assert recorded.fetchall() == [(1, True)]
    shop.execute("delete from pgwake.jobs where kind = 'steps'")


@pytest.mark.usefixtures("migrated")
def test_the_next_migrate_replaces_the_functions_though_nothing_is_to_migrate(
    manage: Manage, shop: psycopg.Connection
) -> None:
    shop.execute("drop function pgwake.cancel_job(bigint)")

    assert "Installed pgwake" not in manage("migrate")

    row = shop.execute("select to_regproc('pgwake.cancel_job')").fetchone()
    assert row is not None
    assert row[0] is not None


@pytest.mark.usefixtures("migrated")
def test_the_projects_own_tests_pass(manage: Manage) -> None:
    assert "OK" in manage("test", "--parallel", "2")


def test_tests_of_a_queue_with_a_database_of_its_own_pass(manage: Manage) -> None:
    """By a router, without migrations, on clones; a replica is its mirror."""
    words = ("support.worker.django_databases", "--parallel", "2")
    variables = {"DJANGO_SETTINGS_MODULE": "support.worker.django_settings"}
    assert "OK" in manage("test", *words, JOBS="apart", **variables)


def test_tests_keep_a_database_and_bring_its_schema_up_to_date(
    manage: Manage, url: str
) -> None:
    """The queue's connection is a mirror of the one that is migrated."""
    words = ("support.worker.django_databases", "--keepdb")
    variables = {"DJANGO_SETTINGS_MODULE": "support.worker.django_settings"}
    assert "OK" in manage("test", *words, JOBS="mirror", **variables)
    kept = url.rpartition("/")[0] + "/shop_in_test"
    with psycopg.connect(kept, autocommit=True) as connection:
        connection.execute("drop function pgwake.claim_next_job")
    assert "OK" in manage("test", *words, JOBS="mirror", **variables)


@pytest.mark.usefixtures("migrated")
async def test_a_lost_session_costs_the_attempt_that_lost_it_and_no_other(
    url: str, connect: Connect
) -> None:
    db = await connect(url)
    order = await db.fetchval(
        "insert into shop_order (email, receipts) values ('ada', 0) returning id"
    )
    given = {"payload": {"order": order}, "max_attempts": 1}
    # With one slot, so that all run in one thread.
    words = ("--import", "support.worker.django_handlers", "--queue", "default:1")
    async with working(url, *words):
        for lose, use, arguments in (
            ("lose_session", "send_receipt", given),
            ("alose_session", "asend_receipt", given),
            ("lose_session_apart", "look_apart", {"max_attempts": 1}),
        ):
            lost = await ended(db, await insert(db, lose))
            assert reasons(lost) == ["failed"]
            row = await ended(db, await insert(db, use, **arguments))
            assert (row["status"], row["errors"]) == ("completed", None)
        assert await db.fetchval("select receipts from shop_order") == 2

        async def none_is_left() -> bool:
            return not await db.fetchval(
                "select count(*) from pg_stat_activity where application_name = ''"
                " and datname = current_database() and pid <> pg_backend_pid()"
                " and backend_type = 'client backend'"
            )

        await wait_for(none_is_left)


@pytest.mark.usefixtures("migrated")
async def test_an_atomic_block_completes_its_job_with_its_writes(
    url: str, connect: Connect
) -> None:
    db = await connect(url)
    order = await db.fetchval(
        "insert into shop_order (email, receipts) values ('bo', 0) returning id"
    )
    async with working(url) as worker:
        job_id = await insert(db, "bill", payload={"order": order})
        row = await ended(db, job_id)
        assert (row["status"], row["result"]) == ("completed", {"billed": order})
        late = "handler failed after it had completed its job"
        line = await worker.logged(late, job=job_id)
        assert line["error"] == "ConnectionError: what comes later can't undo it"

        given = {"order": order, "atomic": False}
        row = await ended(db, await insert(db, "bill", payload=given, max_attempts=1))
        assert "open one by transaction.atomic()" in row["errors"][0]["message"]


@pytest.mark.usefixtures("migrated")
async def test_tasks_of_django_run_and_survive_their_workers_death(
    url: str, connect: Connect, tmp_path: Path
) -> None:
    db = await connect(url)
    order = await db.fetchval(
        "insert into shop_order (email, receipts) values ('cy', 0) returning id"
    )

    async def enqueue(name: str, *args: object, **columns: object) -> int:
        payload = {"args": args, "kwargs": {}}
        return await insert(db, f"shop.tasks.{name}", payload=payload, **columns)

    async with working(url) as worker:
        # On a queue that no task names, but TASKS.
        plain = await ended(db, await enqueue("send_letter", order, queue="letters"))
        looped = await ended(db, await enqueue("asend_letter", order))
        killed = await ended(db, await enqueue("die_once", str(tmp_path / "lives")))
        await worker.logged("process died", exit=-9)
    assert plain["result"] == {"order": order, "subject": "Hello"}
    assert looped["result"] == order
    assert (killed["result"], killed["attempt"], killed["crash_count"]) == (2, 1, 1)


@pytest.mark.usefixtures("migrated")
async def test_a_worker_in_development_starts_anew_with_a_change(
    url: str, connect: Connect, tmp_path: Path
) -> None:
    db = await connect(url)
    project = tmp_path / "shop"
    shutil.copytree(PROJECT, project)
    jobs = project / "shop" / "jobs.py"
    async with working(url, "--autoreload", project=project) as worker:
        jobs.write_text(jobs.read_text() + NEW_HANDLER)
        await worker.started(2)
        row = await ended(db, await insert(db, "new"))
        assert row["result"] == "new"


CHECK = """
import json, os
from django.core.checks import run_checks
from django.db import connections
from django.test import override_settings

lite = {**connections.settings, "lite": {"ENGINE": "django.db.backends.sqlite3"}}
connections.settings = connections.configure_settings(lite)
said = {}
for name, given in json.loads(os.environ["GIVEN"]).items():
    with override_settings(PGWAKE=given):
        said[name] = [f"{m.id}: {m.msg}" for m in run_checks(databases=["default"])]
print(json.dumps(said))
"""


@pytest.mark.usefixtures("migrated")
def test_checks_say_what_would_keep_the_queue_from_working(
    url: str, manage: Manage
) -> None:
    given = {
        "right": {"DATABASE": "default", "PROCESSES": 2, "IMPORTS": ["shop.jobs"]},
        "lite": {"DATABASE": "lite"},
        "jobs": {"DATABASE": "jobs"},
        "QUEUE": {"QUEUE": "a"},
        "PROCESSES": {"PROCESSES": 0},
        "gone": {"IMPORTS": ["shop.gone"]},
    }
    said = json.loads(manage("shell", "-v", "0", "-c", CHECK, GIVEN=json.dumps(given)))
    assert said.pop("right") == []
    for name, id_, message in (
        ("lite", "E001", "DATABASES['lite'] is no PostgreSQL: name another"),
        ("jobs", "E001", "The connection 'jobs' doesn't exist"),
        ("QUEUE", "E001", "PGWAKE['QUEUE'] is no setting: use"),
        ("PROCESSES", "E001", "--processes (or PGWAKE_PROCESSES): "),
        ("gone", "E002", "handlers can't be imported: ModuleNotFoundError: "),
    ):
        (one,) = said.pop(name)
        assert one.startswith(f"pgwake.{id_}: {message}")
    missing = manage(
        *("check", "--database", "default"),
        SHOP_DATABASE_URL=url.rpartition("/")[0] + "/postgres",
    )
    assert "(pgwake.W001) the database has no pgwake schema" in missing
    assert "manage.py migrate --database default installs it" in missing
