"""What the containers' command works with: a database, workers, and what to expect."""

import subprocess
import time
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from pgwake.database.binaries import find_binaries
from pgwake.database.embedded import free_port

from .podman import POSTGRES, Podman

CHECKOUT = Path(__file__).resolve().parents[3]
DEPLOY = CHECKOUT / "deploy"
IMAGE = "pgwake:0.1.0"
PREFIX = "pgwaketest"
PASSWORD = "only-for-a-laptop"  # noqa: S105, as in compose.yaml
# The least that a container can be given.
CONFINED = (
    *("--read-only", "--read-only-tmpfs=false", "--cap-drop", "all"),
    *("--security-opt", "no-new-privileges", "--memory", "256m", "--pids-limit", "128"),
)
STOP_SECONDS = 70  # as deploy/ has it

OUTCOMES = """
select kind, status, attempt, crash_count, bounce_count, count(*)
from pgwake.jobs group by 1, 2, 3, 4, 5 order by 1, 2, 3, 4, 5
"""


class FaultError(Exception):
    """Something is not as it should be."""


def say(text: str) -> None:
    """Tell what is done, or what came of it."""
    print(text, flush=True)  # noqa: T201


def expect(what: str, found: object, wanted: object) -> None:
    """Compare, and tell.

    Raises:
        FaultError: They differ.
    """
    if found != wanted:
        raise FaultError(f"{what}: {found!r}, not {wanted!r}")
    say(f"  {what}: {found}")


def until(what: str, condition: Callable[[], bool], seconds: float = 120) -> float:
    """Wait for it; the seconds it took.

    Raises:
        FaultError: It takes longer than this.
    """
    began = time.monotonic()
    while not condition():
        if time.monotonic() - began > seconds:
            raise FaultError(f"{what}: not within {seconds:g} s")
        time.sleep(0.1)
    return time.monotonic() - began


def get(port: int, path: str) -> str:
    """Return what an HTTP server on this machine answers."""
    with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=10) as answer:
        text: str = answer.read().decode()
    return text


class Database:
    """A database in a container, asked by psql from outside."""

    def __init__(self, port: int) -> None:
        self._psql = find_binaries() / "psql"
        self._url = f"postgresql://pgwake:{PASSWORD}@127.0.0.1:{port}/pgwake"

    def answers(self) -> bool:
        """Whether it can be asked."""
        return self._run("select 1").returncode == 0

    def rows(self, statement: str) -> list[str]:
        """Run a statement; its rows, their columns apart by |."""
        done = self._run(statement)
        if done.returncode:
            raise FaultError(done.stderr)
        return done.stdout.splitlines()

    def insert(self, kind: str, count: int, payload: str = "{}") -> None:
        """Insert jobs, as any producer does."""
        self.rows(
            f"insert into pgwake.jobs (kind, payload) select '{kind}', '{payload}' "
            f"from generate_series(1, {count})"
        )

    def count(self, status: str) -> int:
        """How many jobs have it."""
        query = f"select count(*) from pgwake.jobs where status = '{status}'"
        return int(self.rows(query)[0])

    def outcomes(self) -> list[str]:
        """What the jobs came to, since they were last forgotten."""
        return self.rows(OUTCOMES)

    def forget(self) -> None:
        """Begin anew."""
        self.rows("delete from pgwake.jobs")

    def _run(self, statement: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [self._psql, "-XAtq", "-c", statement, self._url],
            capture_output=True,
            text=True,
            check=False,
        )


class Stage:
    """A network with a database in it, where workers can be run."""

    def __init__(self, podman: Podman, database: Database) -> None:
        self.podman = podman
        self.database = database

    @classmethod
    @contextmanager
    def built(cls, podman: Podman) -> Iterator["Stage"]:
        """Build it, with the schema that the image installs."""
        port = free_port()
        settings = {"USER": "pgwake", "DB": "pgwake", "PASSWORD": PASSWORD}
        podman("network", "create", PREFIX)
        try:
            podman(
                *("run", "--detach", "--name", f"{PREFIX}-postgres"),
                *("--network", PREFIX, "--publish", f"127.0.0.1:{port}:5432"),
                *(f"--env=POSTGRES_{name}={value}" for name, value in settings.items()),
                POSTGRES,
            )
            database = Database(port)
            until("PostgreSQL answers", database.answers)
            stage = cls(podman, database)
            yield stage
        finally:
            remove(podman)

    def once(self, *words: str) -> str:
        """Run a command of pgwake's to its end; what it printed."""
        return self.podman(
            "run", "--rm", "--no-healthcheck", *CONFINED, *self._database(), *words
        )

    def start(
        self, *options: str, image: str = IMAGE, words: Sequence[str] = ()
    ) -> str:
        """Start a worker; its container's name."""
        name = f"{PREFIX}-{time.monotonic_ns()}"
        self.podman(
            *("run", "--detach", "--name", name, *CONFINED, *self._database()),
            *("--publish", "127.0.0.1::9808", *options, image, *words),
        )
        until(f"{name} is ready", lambda: self._is_ready(name))
        return name

    def port(self, name: str) -> int:
        """Where a worker's HTTP is reached from outside."""
        return int(self.podman("port", name, "9808/tcp").rpartition(":")[2])

    def stop(self, name: str) -> float:
        """Stop it as an orchestrator does; the seconds it took."""
        began = time.monotonic()
        self.podman("stop", "--time", str(STOP_SECONDS), name)
        seconds = time.monotonic() - began
        expect("exit code", self.exit_code(name), 0)
        self.podman("rm", name)
        return seconds

    def exit_code(self, name: str) -> int:
        """How it ended."""
        return int(self.podman("inspect", "--format", "{{.State.ExitCode}}", name))

    def is_healthy(self, name: str) -> bool:
        """Ask its health check; podman does so itself only where systemd runs."""
        return self.podman.succeeds("healthcheck", "run", name)

    @staticmethod
    def _database() -> tuple[str, ...]:
        url = f"postgresql://pgwake:{PASSWORD}@{PREFIX}-postgres:5432/pgwake"
        return ("--network", PREFIX, "--env", f"PGWAKE_DATABASE_URL={url}")

    def _is_ready(self, name: str) -> bool:
        state = self.podman("inspect", "--format", "{{.State.Status}}", name)
        if state != "running":
            raise FaultError(f"{name} is {state}: {self.podman('logs', name)}")
        try:
            get(self.port(name), "/readyz")
        except OSError:
            return False
        return True


def remove(podman: Podman) -> None:
    """Remove what was made, and only that."""
    names = podman("ps", "--all", "--format", "{{.Names}}").split()
    for name in names:
        if name.startswith(PREFIX):
            podman("rm", "--force", "--time", "0", name)
    if podman.succeeds("network", "exists", PREFIX):
        podman("network", "rm", "--force", PREFIX)
    podman.remove_tables()
