"""A hot standby of a test's own server."""

import contextlib
import shutil
import subprocess
from collections.abc import Iterator

from pgwake.database.embedded import EmbeddedServer


@contextlib.contextmanager
def standby_of(server: EmbeddedServer) -> Iterator[EmbeddedServer]:
    """Copy a server, and have the copy follow it by streaming."""
    directory = server.directory.with_name(server.directory.name + "-standby")
    directory.mkdir(0o700)
    (directory / "password").write_bytes((server.directory / "password").read_bytes())
    subprocess.run(
        [
            *(server.binaries / "pg_basebackup", "-D", directory / "data"),
            *("-d", server.socket_url, "-c", "fast", "-R", "-X", "stream", "-N"),
        ],
        check=True,
    )
    settings = {
        "fsync": "off",
        "max_connections": "200",
        "max_prepared_transactions": "10",
    }
    with EmbeddedServer(
        directory, binaries=server.binaries, settings=settings
    ) as standby:
        yield standby
    shutil.rmtree(directory)


def promote(standby: EmbeddedServer) -> None:
    """Let a standby take writes; the rest of what it follows must be there."""
    standby._control("promote")


def follow(old: EmbeddedServer, new: EmbeddedServer) -> None:
    """Start a primary that was stopped in good order as a standby of another."""
    data = old.directory / "data"
    with (data / "postgresql.auto.conf").open("a") as file:
        file.write(f"\nprimary_conninfo = '{new.socket_url}'\n")
    signal = data / "standby.signal"
    signal.touch()
    old._user.own(signal)
    old._launch()
