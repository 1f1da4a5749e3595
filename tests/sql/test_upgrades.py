"""Upgrades from each released schema: the catalog, and the jobs that were there."""

import gzip
from pathlib import Path

import pytest

from pgwake.install import install
from pgwake.queue import SCHEMA_VERSION
from sql.test_install import CATALOG, contents, empty_database
from support import Connect, Connection

__all__ = ["empty_database"]

RELEASES = Path(__file__).parent / "releases"


def release(version: int) -> str:
    """The script that a release installed, without its comments."""
    return gzip.decompress((RELEASES / f"{version}.sql.gz").read_bytes()).decode()


@pytest.mark.parametrize("version", range(1, SCHEMA_VERSION))
async def test_an_upgrade_makes_the_same_as_a_fresh_installation(
    connect: Connect, connection: Connection, empty_database: str, version: int
) -> None:
    old = await connect(empty_database)
    await old.execute(release(version))

    assert await install(empty_database) == (version, SCHEMA_VERSION)
    upgraded, fresh = await contents(old, CATALOG), await contents(connection, CATALOG)
    assert upgraded ^ fresh == set()
