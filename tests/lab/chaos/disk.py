"""A small disk under the jobs' tables, to be filled up."""

import os
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Self

from pgwake.database.binaries import ServerUser
from pgwake.database.connection import connect
from pgwake.database.embedded import EmbeddedServer
from pgwake.errors import PgwakeError

LARGE = "50%"  # of the machine's memory, taken as it is used
MOVE_SECONDS = 600.0
TRIES = 20

_MOVE = (
    "alter table all in tablespace {0} set tablespace {1}",
    "alter index all in tablespace {0} set tablespace {1}",
)
_MAKE = "create tablespace pgwake_chaos location '{0}'"
_USE = "alter database postgres set default_tablespace = pgwake_chaos"
_LEAVE = "alter database postgres reset default_tablespace"
_DROP = "drop tablespace pgwake_chaos"


class SmallDisk:
    """A tmpfs under an embedded server's tables; it is full when its limit is reached.

    Args:
        mount: Where it is.
    """

    def __init__(self, mount: Path) -> None:
        self._mount = mount

    @staticmethod
    def obstacle(server: EmbeddedServer | None) -> str | None:
        """Return why none can be had here; None: it can."""
        if server is None:
            return "only a server that pgwake has started itself can get a small disk"
        if not sys.platform.startswith("linux") or os.geteuid() != 0:
            return "only root on Linux can mount a small disk"
        with TemporaryDirectory() as folder:
            try:
                _mount(Path(folder))
            except PgwakeError as error:
                return str(error)
            _run("umount", folder)
        return None

    @classmethod
    @asynccontextmanager
    async def under(cls, server: EmbeddedServer) -> AsyncIterator[Self]:
        """Move all tables of a server's database there, and back at the end.

        Raises:
            PgwakeError: It can't be mounted.
        """
        place = server.directory / "small-disk"
        place.mkdir()
        _mount(place)
        ServerUser.of_this_process().own(place)
        try:
            there = [word.format("pg_default", "pgwake_chaos") for word in _MOVE]
            await _execute(server.url, _MAKE.format(place), *there, _USE)
            yield cls(place)
            back = [word.format("pgwake_chaos", "pg_default") for word in _MOVE]
            await _execute(server.url, _LEAVE, *back, _DROP)
        finally:
            _run("umount", "--lazy", place)  # the server may not be done with it

    def fill(self) -> None:
        """Leave no room for another page.

        Raises:
            PgwakeError: That can't be done.
        """
        for attempt in range(TRIES):
            status = os.statvfs(self._mount)
            used = (status.f_blocks - status.f_bfree) * status.f_frsize
            try:
                _run("mount", "-o", f"remount,size={used}", self._mount)
            except PgwakeError:  # more is used by now
                if attempt == TRIES - 1:
                    raise
            else:
                return

    def free(self) -> None:
        """Be large again.

        Raises:
            PgwakeError: That can't be done.
        """
        _run("mount", "-o", f"remount,size={LARGE}", self._mount)


async def _execute(url: str, *statements: str) -> None:
    connection = await connect(url, "pgwake:chaos", MOVE_SECONDS)
    try:
        for statement in statements:
            await connection.execute(statement)
    finally:
        connection.terminate()


def _mount(place: Path) -> None:
    _run("mount", "-t", "tmpfs", "-o", f"size={LARGE},mode=0700", "tmpfs", place)


def _run(*command: str | Path) -> None:
    try:
        subprocess.run(command, check=True, capture_output=True, text=True)
    except FileNotFoundError as error:
        raise PgwakeError(f"no small disk can be had: {error}") from error
    except subprocess.CalledProcessError as error:
        raise PgwakeError(f"no small disk can be had: {error.stderr.strip()}") from None
