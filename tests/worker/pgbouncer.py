"""A real PgBouncer in front of a test's database."""

import contextlib
import os
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Literal
from urllib.parse import urlsplit

from pgwake.binaries import ServerUser
from pgwake.embedded import free_port

PoolMode = Literal["transaction", "session"]

# Fewer than a worker has sessions, where they are lent by the transaction.
_POOL_SIZE: dict[PoolMode, int] = {"transaction": 3, "session": 20}
_CONFIGURATION = """
[databases]
* = host={host} port={port} user={user} password={password}
[pgbouncer]
listen_addr = 127.0.0.1
listen_port = {own_port}
unix_socket_dir =
auth_type = any
pool_mode = {mode}
default_pool_size = {size}
max_client_conn = 200
"""


@contextlib.contextmanager
def pgbouncer(database: str, mode: PoolMode) -> Iterator[str]:
    """Start one, and give the URL of the database through it.

    It runs as PostgreSQL does here: it refuses to be root, too.
    """
    direct = urlsplit(database)
    port = free_port()
    user = ServerUser.of_this_process()
    folder = Path(tempfile.mkdtemp(prefix="pgwake-"))
    configuration, log = folder / "pgbouncer.ini", folder / "log"
    configuration.write_text(
        _CONFIGURATION.format(
            host=direct.hostname,
            port=direct.port,
            user=direct.username,
            password=direct.password,
            own_port=port,
            mode=mode,
            size=_POOL_SIZE[mode],
        )
    )
    for path in (folder, configuration):
        user.own(path)
    with log.open("w") as output:
        process = subprocess.Popen(
            [*user.prefix, "pgbouncer", configuration],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            user=user.uid,
            group=user.uid,
            extra_groups=None if user.uid is None else [],
            env={**os.environ, "LC_ALL": "C"},
        )
    try:
        deadline = time.monotonic() + 10
        while not _answers(port):
            assert process.poll() is None, log.read_text()
            assert time.monotonic() < deadline, log.read_text()
            time.sleep(0.01)
        yield direct._replace(netloc=f"{direct.username}@127.0.0.1:{port}").geturl()
    finally:
        process.kill()
        process.wait()
        shutil.rmtree(folder)


def _answers(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0
