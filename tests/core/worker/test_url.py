"""Every form of a database's URL, and what is refused of it."""

import asyncio
import socket
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote, urlsplit

import psycopg
import pytest

from pgwake.database.connection import connect, is_transient
from pgwake.database.embedded import EmbeddedServer
from pgwake.database.url import host_urls, url_problem
from pgwake.doctor.connect import without_password
from support import OWNER, OWNER_PASSWORD, free_port

PASSWORD = "p@s:s/w?r#d %25&=é"  # noqa: S105


@pytest.fixture
def silent() -> Iterator[int]:
    """A port that takes connections, and never answers."""
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        listening.listen()
        yield listening.getsockname()[1]


@pytest.fixture
def closed() -> int:
    """A port that refuses connections."""
    return free_port()


async def asked(url: str, sql: str = "select current_user", **options: bool) -> str:
    """Ask on a session as pgwake opens it."""
    connection = await connect(url, "pgwake:test", 10, **options)
    try:
        return str(await connection.fetchval(sql))
    finally:
        connection.terminate()


@pytest.mark.parametrize(
    ("url", "said"),
    {
        "postgresql://me:p@ss@host/db": "%40",
        "postgresql://me:p[ss@host/db": "%40",
        "postgresql://me:p[s]s@one,[::1]:2/db": "%40",
        "postgresql://one,,two/db": "several hosts",
        "postgresql://host/db?sslmode": "must be a URL",
        "postgresql://host/db?channel_binding=require": "verify-full",
        "postgresql://host/db?connect_timeout=5": "PGWAKE_QUERY_TIMEOUT",
        "postgresql://host/db?target_session_attrs=standby": "read-write",
        "postgresql://host/db?sslrootcert=/no/such/file": "sslrootcert: '/no/such",
        "postgresql://host/db?sslrootcert=system": "sslrootcert: 'system'",
    }.items(),
)
def test_what_can_not_work_is_refused_with_what_to_do(url: str, said: str) -> None:
    assert said in (url_problem(url) or "")


@pytest.mark.parametrize(
    ("url", "hosts"),
    {
        "postgresql://u:p%40@a:1,[::1]:2,c/db?x=1": [
            "postgresql://u:p%40@a:1/db?x=1",
            "postgresql://u:p%40@[::1]:2/db?x=1",
            "postgresql://u:p%40@c/db?x=1",
        ],
        "postgresql://u@/db?host=a,/run/pg&port=1,2&x=1": [
            "postgresql://u@/db?x=1&host=a&port=1",
            "postgresql://u@/db?x=1&host=%2Frun%2Fpg&port=2",
        ],
        "postgresql://u@/db?host=a,b&port=1": [
            "postgresql://u@/db?host=a&port=1",
            "postgresql://u@/db?host=b&port=1",
        ],
        "postgresql://one/db": ["postgresql://one/db"],
        "postgresql://u@[::1],[::2]:3?x=//4,5": [
            "postgresql://u@[::1]?x=//4,5",
            "postgresql://u@[::2]:3?x=//4,5",
        ],
    }.items(),
)
def test_a_url_is_taken_apart_by_its_hosts(url: str, hosts: list[str]) -> None:
    assert url_problem(url) is None
    assert host_urls(url) == hosts


def test_several_hosts_of_the_environment_count_too(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("PGHOST", "a,b")
    monkeypatch.setenv("PGPORT", "1,2")
    assert host_urls("postgresql:///db") == [
        "postgresql:/db?host=a&port=1",
        "postgresql:/db?host=b&port=2",
    ]


@pytest.mark.parametrize("first", ["silent", "closed"])
async def test_a_host_that_is_gone_does_not_use_up_the_deadline(
    database: str,
    first: str,
    request: pytest.FixtureRequest,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("pgwake.database.connection.HOST_SECONDS", 0.2)
    parts = urlsplit(database)
    login, _, host = parts.netloc.rpartition("@")
    gone = f"127.0.0.1:{request.getfixturevalue(first)}"
    url = parts._replace(netloc=f"{login}@{gone},{gone},{host}").geturl()
    before = len(asyncio.all_tasks())

    assert await asked(url) == parts.username
    assert await asked(url, writes=False) == parts.username
    assert len(asyncio.all_tasks()) == before


async def test_no_answer_of_any_host_is_an_error_at_the_deadline(
    silent: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pgwake.database.connection.HOST_SECONDS", 0.2)
    url = f"postgresql://u@127.0.0.1:{silent},127.0.0.1:{silent}/db"
    with pytest.raises(TimeoutError, match=r"no answer within 0.5 s"):
        await connect(url, "pgwake:test", 0.5)


async def test_a_refusal_of_one_host_says_more_than_the_silence_of_another(
    database: str, closed: int
) -> None:
    parts = urlsplit(database)
    host = parts.netloc.rpartition("@")[2]
    netloc = f"{parts.username}:wrong@{host},127.0.0.1:{closed}"
    with pytest.raises(Exception, match="password authentication failed") as caught:
        await connect(parts._replace(netloc=netloc).geturl(), "pgwake:test", 5)
    assert not is_transient(caught.value)


async def test_every_way_to_say_who_and_where_works(
    server: EmbeddedServer,
    admin: psycopg.Connection,
    database: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    name = database.rpartition("/")[2]
    role = f"{name} @:/"
    admin.execute(f"create role \"{role}\" login password '{PASSWORD}'")
    who, word = quote(role, safe=""), quote(PASSWORD, safe="")
    place = f"127.0.0.1:{server.port}"
    passfile, services = tmp_path / "pgpass", tmp_path / "services"
    passfile.write_text(f"{place}:{name}:{OWNER}:{OWNER_PASSWORD}\n")
    passfile.chmod(0o600)
    services.write_text(
        f"[here]\nhost=127.0.0.1\nport={server.port}\ndbname={name}\n"
        f"user={OWNER}\npassword={OWNER_PASSWORD}\n"
    )
    monkeypatch.setenv("PGSERVICEFILE", str(services))
    try:
        assert await asked(f"postgresql://{who}:{word}@{place}/{name}") == role
        form = f"postgresql:///{name}?host=127.0.0.1&port={server.port}&user={who}"
        assert await asked(f"{form}&password={word}") == role
        option = f"{database}?options=-c%20work_mem%3D7MB"
        assert await asked(option, "show work_mem") == "7MB"
        sockets = quote(str(server._sockets), safe="")
        where = f"?host={sockets}&port={server.port}"
        assert await asked(f"postgresql://postgres@/{name}{where}") == "postgres"
        assert await asked("postgresql://?service=here") == OWNER
        bare = f"postgresql://{OWNER}@{place}/{name}"
        assert await asked(f"{bare}?passfile={passfile}") == OWNER
        monkeypatch.setenv("PGPASSFILE", str(passfile))
        assert await asked(bare) == OWNER
        for variable, value in {
            "PGHOST": "127.0.0.1",
            "PGPORT": str(server.port),
            "PGUSER": role,
            "PGPASSWORD": PASSWORD,
            "PGDATABASE": name,
        }.items():
            monkeypatch.setenv(variable, value)
        assert await asked("postgresql://") == role
    finally:
        admin.execute(f'drop role "{role}"')


@pytest.mark.parametrize(
    ("url", "shown"),
    {
        "postgresql://me:secret@one,[::1]:2/db?x=1": "postgresql://me@one,[::1]:2/db",
        "postgresql:///db?password=secret": "postgresql:///db",
    }.items(),
)
def test_a_url_is_shown_without_its_secrets_and_still_is_one(
    url: str, shown: str
) -> None:
    assert without_password(url) == shown
    assert url_problem(shown) is None
