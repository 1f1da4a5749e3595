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

from pgwake.database.binaries import ServerUser
from pgwake.database.embedded import free_port
from support.tools import need

PoolMode = Literal["transaction", "session"]

# Fewer than a worker has sessions, where they are lent by the transaction.
_POOL_SIZE: dict[PoolMode, int] = {"transaction": 3, "session": 20}
_CONFIGURATION = """
[databases]
* = host={host} port={port}{login}
[pgbouncer]
listen_addr = 127.0.0.1
listen_port = {own_port}
unix_socket_dir =
auth_type = {auth}
auth_file = {users}
pool_mode = {mode}
default_pool_size = {size}
max_client_conn = 200
"""


@contextlib.contextmanager
def pgbouncer(
    database: str, mode: PoolMode, *, size: int | None = None, auth: str = "any"
) -> Iterator[str]:
    """Start one, and give the URL of the database through it.

    It runs as PostgreSQL does here: it refuses to be root, too.
    """
    need("pgbouncer")
    anybody = auth == "any"
    direct = urlsplit(database)
    port = free_port()
    user = ServerUser.of_this_process()
    folder = Path(tempfile.mkdtemp(prefix="pgwake-"))
    configuration, log = folder / "pgbouncer.ini", folder / "log"
    users = folder / "users"
    users.write_text(f'"{direct.username}" "{direct.password}"\n')
    login = f" user={direct.username} password={direct.password}"
    configuration.write_text(
        _CONFIGURATION.format(
            host=direct.hostname,
            port=direct.port,
            login=login if anybody else "",
            own_port=port,
            auth=auth,
            users=users,
            mode=mode,
            size=size or _POOL_SIZE[mode],
        )
    )
    for path in (folder, configuration, users):
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
        password = "" if anybody else f":{direct.password}"
        netloc = f"{direct.username}{password}@127.0.0.1:{port}"
        yield direct._replace(netloc=netloc).geturl()
    finally:
        process.kill()
        process.wait()
        shutil.rmtree(folder)


def _answers(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0
