"""python -m tests.support.sql.release: keeps the schema as it is released.

Writes what sql/install.sql is into releases/N.sql.gz, N being the tree's schema
version: the same bytes whenever it is run. From then on a test refuses other tables
without a new version, and the next migration has what it starts from.
"""

import gzip
from pathlib import Path

from pgwake.database.install import install_script, sql_directory
from pgwake.version import SCHEMA_VERSION

RELEASES = Path(__file__).parent / "releases"
TREE = sql_directory()  # whatever a test makes of it
# What an upgrade may start from: the next version's may from the tree's.
VERSIONS = range(1, SCHEMA_VERSION + 1)


def path(version: int) -> Path:
    """Where a release's script is, or will be."""
    return RELEASES / f"{version}.sql.gz"


def script(version: int) -> str:
    """The script that a release installed, without its comments.

    Of the tree's version, as long as that is not released: what would be kept.
    """
    is_kept = version < SCHEMA_VERSION or path(version).exists()
    kept = path(version).read_bytes() if is_kept else packed(install_script(TREE))
    return gzip.decompress(kept).decode()


def packed(text: str) -> bytes:
    """A script as it is kept."""
    lines = (line for line in text.splitlines() if not line.lstrip().startswith("--"))
    kept = "".join(f"{line}\n" for line in lines if line)
    return gzip.compress(kept.encode(), mtime=0)


if __name__ == "__main__":
    RELEASES.mkdir(exist_ok=True)
    path(SCHEMA_VERSION).write_bytes(packed(install_script()))
    print(path(SCHEMA_VERSION))  # noqa: T201
