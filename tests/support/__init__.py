"""What tests share besides fixtures."""

import asyncio
import inspect
import signal
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias
from urllib.parse import urlsplit

from pgwake.database.embedded import EmbeddedServer
from pgwake.database.embedded import free_port as free_port

# Each process of a worker with the tests' handlers imports this: nothing dear.
if TYPE_CHECKING:
    import asyncpg
    import psycopg

CHECKOUT = Path(__file__).resolve().parents[2]
OWNER = "pgwake_owner"
OWNER_PASSWORD = "owner"  # noqa: S105, for a server that lives as long as the tests

# Roles that log in, by what each is a member of; app_stranger only sees the schema.
LOGINS = {
    "app_producer": "pgwake_producer",
    "app_worker": "pgwake_worker",
    "app_admin": "pgwake_admin",
    "app_stranger": None,
    "app_nobody": None,
}
LOGIN_PASSWORD = "app"  # noqa: S105, as the owner's

PATIENCE = 60.0  # seconds; what takes longer on a busy machine is broken

RoleUrl: TypeAlias = Callable[[str], str]
Connection: TypeAlias = "asyncpg.Connection[asyncpg.Record]"


class Connect(Protocol):
    """What the fixture `connect` is: without a URL, the test's own database."""

    async def __call__(self, url: str = ..., **options: Any) -> Connection: ...


async def wait_for(
    condition: Callable[[], object],
    timeout: float = PATIENCE,  # noqa: ASYNC109, a caller's own would hide what was awaited
) -> None:
    """Ask until the answer, awaited if it can be, is true; for what sets no event."""
    try:
        async with asyncio.timeout(timeout):
            while True:
                answer = condition()
                if await answer if inspect.isawaitable(answer) else answer:
                    return
                await asyncio.sleep(0.005)
    except TimeoutError:
        raise AssertionError(f"not true within {timeout} s: {condition}") from None


def database_url(server: EmbeddedServer, name: str, role: str = OWNER) -> str:
    """Return the URL of a database for its owner, the role postgres or a login."""
    parts = urlsplit(server.url)._replace(path=f"/{name}")
    if role != "postgres":
        password = OWNER_PASSWORD if role == OWNER else LOGIN_PASSWORD
        netloc = f"{role}:{password}@127.0.0.1:{server.port}"
        parts = parts._replace(netloc=netloc)
    return parts.geturl()


def make_logins(admin: "psycopg.Connection") -> None:
    """Create the roles of LOGINS where they are missing; pgwake's have to be there."""
    for login, role in LOGINS.items():
        if admin.execute("select to_regrole(%s)", [login]).fetchone() == (None,):
            admin.execute(f"create role {login} login password '{LOGIN_PASSWORD}'")
            if role is not None:
                admin.execute(f"grant {role} to {login}")


@contextmanager
def untimed() -> Iterator[None]:
    """Stop the clock of pytest-timeout for what is made once, whatever it takes."""
    left, _ = signal.setitimer(signal.ITIMER_REAL, 0)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, left)


def psql(server: EmbeddedServer, url: str, *arguments: str) -> str:
    """Run psql, the server's own or the one on PATH, and return what it prints."""
    own = server.binaries / "psql"
    program = str(own) if own.exists() else "psql"
    options = ["-X", "-q", "-v", "ON_ERROR_STOP=1", "-d", url]
    result = subprocess.run(
        [program, *options, *arguments], check=False, capture_output=True, text=True
    )
    assert result.returncode == 0, f"psql failed:\n{result.stdout}{result.stderr}"
    return result.stdout


def create_installed_database(server: EmbeddedServer, name: str) -> str:
    """Create a database with pgwake in it, owned by an ordinary role; return its URL.

    The server must be a fresh one: the role is created too.
    """
    import psycopg  # noqa: PLC0415, see above

    with psycopg.connect(server.socket_url, autocommit=True) as admin:
        admin.execute(f"create role {OWNER} login password '{OWNER_PASSWORD}'")
        admin.execute(f"create database {name} owner {OWNER}")
    url = database_url(server, name)
    psql(server, url, "-f", str(CHECKOUT / "sql" / "install.sql"))
    psql(server, url, "-c", "select pgwake.adopt(guard => false)")  # it is cloned
    return url
