"""Passwords, tokens and signing secrets stand in no output, whatever goes wrong."""

import base64
import json
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from urllib.parse import urlsplit

import psycopg
import pytest

from pgwake import Queue, Registry, Worker
from pgwake.database.session import Session
from pgwake.settings import Settings
from support import Connection, RoleUrl, free_port
from support.sql.helpers import insert
from support.worker.api import client
from support.worker.helpers import ended
from support.worker.metrics import fetch
from support.worker.processes import Pgwake, StartProcess

PASSWORD = "canary-of-a-password"  # noqa: S105
TOKEN = "canary-of-a-token"  # noqa: S105
SIGNING = base64.b64encode(b"canary of a signing secret").decode()
SECRETS = (PASSWORD, TOKEN, SIGNING, "secret2")

FAULTS = {
    "wrong password": "postgresql://app_worker:{password}@{host}:{port}/{name}",
    "unknown host": "postgresql://app_worker:{password}@nowhere.invalid/x",
    "nobody listens": "postgresql://app_worker:{password}@127.0.0.1:1/x",
    "no such database": "postgresql://postgres:{password}@{host}:{port}/nowhere",
    "port too high": "postgresql://app_worker:{password}@{host}:70000/x",
    "port is a word": "postgresql://app_worker:{password}@{host}:port/x",
    "slash in it": "postgresql://app_worker:{password}/{password}@{host}/x",
    "hash in it": "postgresql://app_worker:{password}#{password}@{host}/x",
    "bracket in it": "postgresql://app_worker:[{password}@{host}/x",
    "another scheme": "mysql://app_worker:{password}@{host}/x",
    "no URL": "host={host} password={password}",
    "parameter": "postgresql://app_worker@{host}:{port}/{name}?password={password}",
    "bad parameter": "postgresql://a:{password}@{host}:{port}/{name}?sslmode=none",
}


# What a handler's exception may hold: a driver's, with the URL it was given.
TOLD = {"message": f"no way to postgresql://a:secret2@h/x ({PASSWORD}, {TOKEN})"}


def hidden_in(text: str) -> bool:
    return not any(secret in text for secret in SECRETS)


def command_lines() -> list[bytes]:
    """The arguments of every process."""
    return [
        path.read_bytes()
        for path in Path("/proc").glob("[0-9]*/cmdline")
        if path.exists()
    ]


@pytest.fixture
def fault(admin_url: str) -> Callable[[str], str]:
    """A URL with the canary that can't be used, by its name in FAULTS."""
    parts = urlsplit(admin_url)

    def url(name: str) -> str:
        return FAULTS[name].format(
            password=PASSWORD,
            host=parts.hostname,
            port=parts.port,
            name=parts.path[1:],
        )

    return url


@pytest.fixture
def canary_url(role_url: RoleUrl, admin: psycopg.Connection) -> Iterator[str]:
    """The URL of a worker whose password is the canary."""
    url = role_url("app_worker")
    admin.execute(f"create role app_secretive login password '{PASSWORD}'")
    admin.execute("grant pgwake_worker to app_secretive")
    yield url.replace("app_worker:app@", f"app_secretive:{PASSWORD}@")
    admin.execute("drop role app_secretive")


@pytest.mark.parametrize("name", FAULTS)
async def test_a_command_that_finds_no_database_does_not_show_its_url(
    fault: Callable[[str], str], name: str, pgwake: Pgwake
) -> None:
    answer = await pgwake("stats", PGWAKE_DATABASE_URL=fault(name))
    assert answer.code in (1, 78)
    assert answer.errors.startswith("pgwake: ")
    assert hidden_in(answer.output + answer.errors)


@pytest.mark.parametrize("name", FAULTS)
async def test_an_error_of_a_producer_does_not_show_its_url(
    fault: Callable[[str], str], name: str
) -> None:
    with pytest.raises(Exception) as caught:  # noqa: PT011, of whatever type
        async with Queue(fault(name)) as queue:
            await queue.enqueue("a", {})
    assert hidden_in("".join(traceback.format_exception(caught.value)))


def test_what_can_be_printed_holds_no_secret() -> None:
    url = f"postgresql://app:{PASSWORD}@127.0.0.1/x"
    settings = Settings(
        database_url=url,
        listen_url=url,
        api_token=TOKEN,
        signing_secret=SIGNING,
        http_handlers={"a": f"http://app:{PASSWORD}@127.0.0.1/"},
        exec_handlers={"a": f"curl -u app:{PASSWORD}"},
    )
    worker = Worker(settings, Registry())
    session = Session(url, "name", "role", 1)
    for thing in (settings, worker, session, Queue(url)):
        assert hidden_in(repr(thing) + str(thing) + f"{thing}"), type(thing)
    with pytest.raises(Exception) as caught:  # noqa: PT011, of whatever type
        Settings.load(
            api_token=f"{TOKEN} {TOKEN}", signing_secret=f"{SIGNING}!", lease=0
        )
    assert hidden_in("".join(traceback.format_exception(caught.value)))


async def test_a_worker_shows_no_secret_whatever_goes_wrong(
    start_worker: StartProcess,
    connection: Connection,
    canary_url: str,
    admin: psycopg.Connection,
) -> None:
    port = free_port()
    worker = await start_worker(
        http_handlers=f"posted=http://app:{PASSWORD}@127.0.0.1:1/",
        database_url=canary_url,
        listen_url=canary_url + "_of_no_database",  # refused, again and again
        api_token=TOKEN,
        signing_secret=SIGNING,
        log_level="debug",
        http_port=port,
    )
    for kind, payload in (
        ("echo", {}),
        ("fail", {"message": "no"}),
        ("posted", {}),
        ("fail", TOLD),
    ):
        await ended(
            connection, await insert(connection, kind, payload=payload, max_attempts=1)
        )
    # Sessions that are ended are opened anew, or refused.
    admin.execute("alter role app_secretive password 'another'")
    admin.execute(
        "select pg_terminate_backend(pid) from pg_stat_activity"
        " where usename = 'app_secretive'"
    )
    await worker.logged("session failed")
    await worker.logged("listener failed", 2)
    pages = [await fetch(port, path) for path in ("/healthz", "/readyz", "/metrics")]
    async with client(port, TOKEN) as api:
        paths = ("/api/jobs", "/openapi.json", f"/api/jobs?token={TOKEN}")
        statuses = [(await api.get(path)).status_code for path in paths]
        answers = [await api.get(path) for path in paths[:2]]
    async with client(port, f"{TOKEN}-of-another") as stranger:
        statuses.append((await stranger.get("/api/jobs")).status_code)
    assert statuses[1:] == [200, 422, 401]
    admin.execute(f"alter role app_secretive password '{PASSWORD}'")
    commands = command_lines()
    assert len(commands) > 2
    assert hidden_in(json.dumps(worker.lines))
    assert hidden_in("".join(page.text for page in pages))
    assert hidden_in("".join(answer.text for answer in answers))
    assert hidden_in(str(commands))
    errors = await connection.fetchval(
        "select string_agg(errors::text, '') from pgwake.jobs"
    )
    assert hidden_in(errors)
