"""A Django project: tests/examples/django_shop, by its manage.py."""

import subprocess
import sys
from collections.abc import Callable, Iterator
from typing import TypeAlias

import psycopg
import pytest

from pgwake.database.embedded import EmbeddedServer
from pgwake.version import SCHEMA_VERSION
from support import CHECKOUT, database_url
from support.sql import release
from support.worker.processes import clean_environment

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
    with psycopg.connect(url, autocommit=True) as connection:
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
