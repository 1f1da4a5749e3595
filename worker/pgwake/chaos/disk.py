"""A small disk under the jobs' tables, to be filled up."""

import os
import shutil
import subprocess
import sys
from pathlib import Path
from types import TracebackType
from typing import Self

from pgwake.binaries import ServerUser
from pgwake.connection import connect
from pgwake.embedded import EmbeddedServer
from pgwake.errors import PgwakeError

SIZE = "4g"  # of memory, taken as it is used
BLOCK_BYTES = 8192
MOVE_SECONDS = 60.0

_MOVE = """
create tablespace pgwake_chaos location '{0}';
alter table all in tablespace pg_default set tablespace pgwake_chaos nowait;
alter index all in tablespace pg_default set tablespace pgwake_chaos nowait;
alter database postgres set default_tablespace = pgwake_chaos;
"""


class SmallDisk:
    """A tmpfs for a tablespace of an embedded server; a context manager.

    It is full when its limit is set to what it holds.

    Args:
        server: The server.
    """

    def __init__(self, server: EmbeddedServer) -> None:
        self._server = server
        self._mount = server.directory / "small-disk"

    @staticmethod
    def obstacle(server: EmbeddedServer | None) -> str | None:
        """Return why none can be made here; None: it may be tried."""
        if server is None:
            return "that takes a server that pgwake has started itself"
        if not sys.platform.startswith("linux"):
            return "a small disk can be mounted on Linux only"
        if os.geteuid() != 0:
            return "only root can mount a small disk"
        return None

    def __enter__(self) -> Self:
        self._mount.mkdir()
        try:
            _mount("-t", "tmpfs", "-o", f"size={SIZE},mode=0700", "tmpfs", self._mount)
        except PgwakeError:
            self._mount.rmdir()
            raise
        ServerUser.of_this_process().own(self._mount)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        # Lazily, since the server has its files open until it stops.
        subprocess.run(["umount", "--lazy", self._mount], check=False)

    async def move_tables(self, url: str) -> None:
        """Have all tables of the database on it, those too that will be made."""
        connection = await connect(url, "pgwake:chaos", MOVE_SECONDS)
        try:
            for statement in _MOVE.format(self._mount).strip().split("\n"):
                await connection.execute(statement)
        finally:
            connection.terminate()

    def fill(self) -> None:
        """Leave no room for another page."""
        while True:
            usage = shutil.disk_usage(self._mount)
            try:
                _resize(self._mount, f"{max(usage.used, BLOCK_BYTES)}")
            except PgwakeError:
                if shutil.disk_usage(self._mount).used == usage.used:
                    raise
            else:
                return

    def free(self) -> None:
        """Let it be as large as at the beginning."""
        _resize(self._mount, SIZE)


def _resize(mount: Path, size: str) -> None:
    _mount("-o", f"remount,size={size}", mount)


def _mount(*arguments: str | Path) -> None:
    try:
        subprocess.run(["mount", *arguments], check=True, capture_output=True, text=True)
    except FileNotFoundError as error:
        raise PgwakeError(f"no small disk can be mounted: {error}") from error
    except subprocess.CalledProcessError as error:
        raise PgwakeError(
            f"no small disk can be mounted: {error.stderr.strip()}"
        ) from error
