"""A private PostgreSQL server, for trying things out and for tests.

Needs nothing but a server's programs: no installed service, no special user, no
root, though root may. Clients reach it by TCP on 127.0.0.1 with a password drawn at
random, or by a unix socket that only the server's owner can open.
"""

import atexit
import os
import secrets
import shutil
import socket
import subprocess
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Literal, Self
from urllib.parse import quote

from pgwake.database.binaries import (
    ServerUser,
    checked_binaries,
    copy_binaries,
    find_binaries,
    server_version,
)
from pgwake.errors import ConfigurationError, EmbeddedServerError

StopMode = Literal["smart", "fast", "immediate"]

_SOCKET_PATH_LIMIT_BYTES = 107
_DEADLINE_SECONDS = 60
_LOG_TAIL_LINES = 20


def free_port() -> int:
    """Return a TCP port that is free on 127.0.0.1 now."""
    # Below the usual range of ephemeral ports: a client that keeps reconnecting while
    # the server restarts could be given the server's own port, and keep it.
    while True:
        port = 16384 + secrets.randbelow(16384)
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            return port


class EmbeddedServer:
    """A PostgreSQL server of one's own; a context manager that starts and stops it.

    Whoever started it stops it, at the latest when the process exits. A server that
    already runs in `directory` is used as it is, and left running.

    Args:
        directory: Where it lives, kept and used again. If none is given, a temporary
            one, removed when the server stops.
        port: The TCP port on 127.0.0.1; if none is given, a free one.
        binaries: The folder of its programs; if none is given, see `find_binaries`.
        settings: What to set in postgresql.conf, for this start only.
        keep: Leave it running at the end; only `stop` ends it.

    Attributes:
        directory: Where it lives.
        port: Its TCP port, final once it has started.
        binaries: The folder of its programs.
        version: Its version, such as "18.6".
        log_path: Its log.

    Raises:
        ConfigurationError: No server was found.
    """

    def __init__(
        self,
        directory: Path | None = None,
        port: int | None = None,
        binaries: Path | None = None,
        settings: Mapping[str, str] = {},
        *,
        keep: bool = False,
    ) -> None:
        temporary = Path(tempfile.gettempdir(), f"pgwake-{secrets.token_hex(4)}")
        self._is_temporary = directory is None
        self.directory = (directory or temporary).absolute()
        self._has_fixed_port = port is not None
        self.port = port or free_port()
        self.binaries = (
            checked_binaries(binaries, "binaries") if binaries else find_binaries()
        )
        self.version = server_version(self.binaries)
        self.log_path = self.directory / "server.log"
        self._settings = dict(settings)
        self._keep = keep
        self._data = self.directory / "data"
        self._password_path = self.directory / "password"
        self._password = ""
        self._sockets = self.directory
        self._user = ServerUser.of_this_process()
        self._started_by_pid: int | None = None

    @property
    def url(self) -> str:
        """The superuser's URL by TCP."""
        return f"postgresql://postgres:{self._password}@127.0.0.1:{self.port}/postgres"

    @property
    def socket_url(self) -> str:
        """The superuser's URL by unix socket."""
        host = quote(str(self._sockets), safe="")
        return f"postgresql://postgres@/postgres?host={host}&port={self.port}"

    def start(self) -> None:
        """Start the server, making it first where there is none, and wait for it.

        Raises:
            ConfigurationError: `directory` holds something else, or its server runs
                on another port than the one asked for.
            EmbeddedServerError: It did not start.
        """
        if running := self._running():
            self._adopt(*running)
            return
        self._started_by_pid = os.getpid()
        atexit.register(self._close)
        self._claim_directory()
        if not self._data.exists():
            self._initialize()
        try:
            self._launch()
        except EmbeddedServerError as error:
            if self._has_fixed_port or "Address already in use" not in str(error):
                raise
            self.port = free_port()
            self._launch()

    def stop(self, mode: StopMode = "fast") -> None:
        """Stop the server if it runs, and remove its directory if it is temporary.

        Raises:
            EmbeddedServerError: It did not stop.
        """
        self._halt(mode)
        self._started_by_pid = None
        atexit.unregister(self._close)
        if self._sockets != self.directory:
            shutil.rmtree(self._sockets, ignore_errors=True)
            self._sockets = self.directory
        if self._is_temporary:
            shutil.rmtree(self.directory, ignore_errors=True)

    def restart(self, mode: StopMode = "fast") -> None:
        """Stop and start the server; its URLs and its data stay.

        Raises:
            EmbeddedServerError: It did not stop, or did not start again.
        """
        self._halt(mode)
        self._launch()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._close()

    def _close(self) -> None:
        # A forked child inherits the exit handler, but not the server.
        if self._started_by_pid == os.getpid() and not self._keep:
            self.stop()

    def _running(self) -> tuple[int, Path] | None:
        try:
            lines = (self._data / "postmaster.pid").read_text().splitlines()
            port, sockets = int(lines[3]), Path(lines[4])
            # Asked on its own socket: after a crash, the process id may be another's.
            with socket.socket(socket.AF_UNIX) as probe:
                probe.connect(str(sockets / f".s.PGSQL.{port}"))
        except (OSError, IndexError, ValueError):
            return None
        return port, sockets

    def _adopt(self, port: int, sockets: Path) -> None:
        if self._has_fixed_port and port != self.port:
            raise ConfigurationError(
                f"the server in {self.directory} already runs, on port {port} and not"
                f" on {self.port}: stop it first, or ask for no port"
            )
        self.port = port
        self._sockets = sockets
        self._password = self._password_path.read_text()
        self._reach_binaries()

    def _claim_directory(self) -> None:
        self.directory.mkdir(0o700, parents=True, exist_ok=True)
        if not self._password_path.exists():
            if any(self.directory.iterdir()):
                raise ConfigurationError(
                    f"{self.directory} holds other things than a server of pgwake's:"
                    " name an empty or a new directory"
                )
            self._user.own(self.directory)
            self._password_path.touch(0o600)
            self._password_path.write_text(secrets.token_urlsafe(18))
            self._user.own(self._password_path)
        if not self._user.can_reach(self.directory):
            raise ConfigurationError(
                f"{self.directory} lies in a folder that only root may enter, and the"
                " server has to run as nobody here: name another directory"
            )
        self._password = self._password_path.read_text()
        longest = os.fsencode(self.directory / ".s.PGSQL.65535")
        if self._sockets == self.directory and len(longest) > _SOCKET_PATH_LIMIT_BYTES:
            self._sockets = Path(tempfile.mkdtemp(prefix="pgwake-", dir="/tmp"))
            self._user.own(self._sockets)
        self._reach_binaries()

    def _reach_binaries(self) -> None:
        if not self._user.can_reach(self.binaries / "postgres"):
            copies = self.directory / "binaries"
            shutil.rmtree(copies, ignore_errors=True)
            self.binaries = copy_binaries(self.binaries, copies)

    def _initialize(self) -> None:
        # Made beside its place, so that an interrupted initdb leaves no half of it.
        new = self.directory / "data.new"
        shutil.rmtree(new, ignore_errors=True)
        self._run(
            "initdb",
            *("-D", new, "-U", "postgres", "--pwfile", self._password_path),
            *("--auth-local=trust", "--auth-host=scram-sha-256"),
            *("--encoding=UTF8", "--no-locale", "--no-sync"),
        )
        with (new / "postgresql.conf").open("a") as file:
            file.write("\ninclude 'pgwake.conf'\n")
        new.rename(self._data)

    def _launch(self) -> None:
        settings = {
            "listen_addresses": "127.0.0.1",
            **self._settings,
            "port": str(self.port),
            "unix_socket_directories": f'"{self._sockets}"',
            "unix_socket_permissions": "0700",
        }
        path = self._data / "pgwake.conf"
        path.write_text("".join(f"{k} = {_quoted(v)}\n" for k, v in settings.items()))
        self._user.own(path)
        self._control("start", "-l", self.log_path)

    def _halt(self, mode: StopMode) -> None:
        if self._running():
            self._control("stop", "-m", mode)

    def _control(self, action: str, *options: str | Path) -> None:
        # pg_ctl gives the server a session of its own: Ctrl-C here does not end it.
        deadline = str(_DEADLINE_SECONDS)
        self._run("pg_ctl", action, "-D", self._data, "-w", "-t", deadline, *options)

    def _run(self, program: str, *arguments: str | Path) -> None:
        command = [self.binaries / program, *arguments]
        try:
            result = self._user.run(command, self.directory)
        except (OSError, subprocess.TimeoutExpired) as error:
            raise EmbeddedServerError(f"{program}: {error}") from error
        if result.returncode:
            raise EmbeddedServerError(
                f"{program} failed with exit code {result.returncode}:\n"
                f"{result.stdout.strip()}\n{self._log_tail()}".rstrip()
            )

    def _log_tail(self) -> str:
        if not self.log_path.exists():
            return ""
        lines = self.log_path.read_text(errors="replace").splitlines()
        return "\n".join([f"{self.log_path} ends with:", *lines[-_LOG_TAIL_LINES:]])


def _quoted(value: str) -> str:
    escaped = value.replace("\\", "\\\\").replace("'", "''")
    return f"'{escaped}'"
