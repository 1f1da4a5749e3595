"""A Django project: tests/examples/django_shop, by its manage.py."""

import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from typing import TypeAlias

import psycopg
import pytest

from pgwake.database.embedded import EmbeddedServer
from pgwake.version import SCHEMA_VERSION
from support import CHECKOUT, Connect, database_url, wait_for
from support.sql import release
from support.sql.helpers import insert
from support.worker.helpers import ended, reasons
from support.worker.processes import WorkerProcess, clean_environment

PROJECT = CHECKOUT / "tests" / "examples" / "django_shop"

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

    def run(*words: str, **variables: str) -> str:
        done = subprocess.run(
            [sys.executable, "-W", "error", "manage.py", *words],
            cwd=PROJECT,
            env=clean_environment({"SHOP_DATABASE_URL": url, **variables}),
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout + done.stderr

    return run


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
    assert installed(shop) == SCHEMA_VERSION
    jobs = shop.execute("select kind from pgwake.jobs").fetchall()
    assert jobs == [("stock",)]


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
    said = manage("test", "--parallel", "2")
    assert "OK" in said


@asynccontextmanager
async def working(url: str, *words: str) -> AsyncIterator[WorkerProcess]:
    """A worker of the project, with one slot: one thread."""
    process = await WorkerProcess.start(
        *(*words, "--queue", "default:1", "--http-port", "0", "--log-format", "json"),
        directory=PROJECT,
        environment={
            "SHOP_DATABASE_URL": url,
            "PGWAKE_DATABASE_URL": url,
            "DJANGO_SETTINGS_MODULE": "project",
            "PYTHONPATH": f"{PROJECT}:{CHECKOUT / 'tests'}",
        },
    )
    try:
        await process.started()
        yield process
    finally:
        await process.close()


@pytest.mark.usefixtures("migrated")
async def test_a_lost_session_costs_the_attempt_that_lost_it_and_no_other(
    url: str, connect: Connect
) -> None:
    db = await connect(url)
    order = await db.fetchval(
        "insert into shop_order (email, receipts) values ('ada', 0) returning id"
    )
    given = {"payload": {"order": order}, "max_attempts": 1}
    async with working(
        url, "-m", "pgwake", "run", "--import", "support.worker.django_handlers"
    ):
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
