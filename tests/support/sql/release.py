"""python -m tests.support.sql.release: keeps the schema as it is released.

Writes what sql/install.sql is into releases/N.sql.gz, N being the tree's schema
version: the same bytes whenever it is run. From then on a test refuses other tables
without a new version, and the next migration has what it starts from.
"""

import gzip
from pathlib import Path

from pgwake.database.install import install_script
from pgwake.version import SCHEMA_VERSION

RELEASES = Path(__file__).parent / "releases"


def path(version: int) -> Path:
    """Where a release's script is, or will be."""
    return RELEASES / f"{version}.sql.gz"


def script(version: int) -> str:
    """The script that a release installed, without its comments."""
    return gzip.decompress(path(version).read_bytes()).decode()


def packed(text: str) -> bytes:
    """A script as it is kept."""
    lines = (line for line in text.splitlines() if not line.lstrip().startswith("--"))
    kept = "".join(f"{line}\n" for line in lines if line)
    return gzip.compress(kept.encode(), mtime=0)


if __name__ == "__main__":
    path(SCHEMA_VERSION).write_bytes(packed(install_script()))
    print(path(SCHEMA_VERSION))  # noqa: T201
