"""Connections that speak JSON, for the tests of sql/."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest

from support import Connect, Connection, RoleUrl
from support.sql.life import Login, Session


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    # The wheel's server has no plpgsql_check, Debian's has.
    if collection_path.name == "test_plpgsql_check.py":
        return config.getoption("--pg") != "debian" or None
    return None


@pytest.fixture
async def connect(connect: Connect) -> Connect:
    """As the fixture it replaces, with jsonb as Python's objects."""

    async def connect_with_json(*arguments: Any, **options: Any) -> Connection:
        connection = await connect(*arguments, **options)
        await connection.set_type_codec(
            "jsonb", schema="pg_catalog", encoder=json.dumps, decoder=json.loads
        )
        return connection

    return connect_with_json


@pytest.fixture
def session(role_url: RoleUrl, admin_url: str) -> Iterator[Login]:
    """Open a session by one of LOGINS; app_stranger sees the schema, no more."""
    opened: list[Session] = []

    def connect(login: str) -> Session:
        opened.append(psycopg.connect(role_url(login), autocommit=True))
        return opened[-1]

    with psycopg.connect(admin_url, autocommit=True) as admin:
        admin.execute("grant usage on schema pgwake to app_stranger")
    yield connect
    for connection in opened:
        connection.close()
