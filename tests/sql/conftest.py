"""Connections that speak JSON, for the tests of sql/."""

import json
from pathlib import Path
from typing import Any

import pytest

from support import Connect, Connection


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
