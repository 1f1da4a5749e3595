"""TLS: the server is who the URL says, or nothing is said to it."""

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple
from urllib.parse import quote

import asyncpg
import psycopg
import pytest
import trustme

from pgwake.database.binaries import ServerUser, checked_binaries
from pgwake.database.connection import connect as connect_worker
from pgwake.database.embedded import EmbeddedServer
from pgwake.errors import UnusableUrlError
from support import Connect
from support.sql.helpers import insert
from support.tools import unpacked
from support.worker.helpers import ended
from support.worker.processes import Pgwake, StartProcess

HBA = """
local all all trust
hostssl all "by certificate" all cert
hostssl all all all scram-sha-256
"""


class Tls(NamedTuple):
    """A server that takes nothing but TLS, and the authorities of its world.

    Attributes:
        server: The server; its certificate is for localhost, not for 127.0.0.1.
        ca: A file with the authority that has signed it.
        other_ca: A file with another one.
        key: A file with a key and a certificate for the role "by certificate".
    """

    server: EmbeddedServer
    ca: Path
    other_ca: Path
    key: Path

    def url(
        self, host: str = "localhost", login: str = "", **parameters: object
    ) -> str:
        """The URL of the database pgwake_tls."""
        login = login or f"postgres:{self.server._password}"
        query = "&".join(f"{k}={quote(str(v))}" for k, v in parameters.items())
        return f"postgresql://{login}@{host}:{self.server.port}/pgwake_tls?{query}"


@pytest.fixture(scope="module")
def tls(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Tls]:
    """A server with TLS: Debian's, since the wheel's can't."""
    folder = tmp_path_factory.mktemp("tls")
    ca, other_ca = trustme.CA(), trustme.CA()
    files = [folder / name for name in ("ca", "other", "key")]
    ca.cert_pem.write_to_path(str(files[0]))
    other_ca.cert_pem.write_to_path(str(files[1]))
    client = ca.issue_cert("client.test", common_name="by certificate")
    client.private_key_and_cert_chain_pem.write_to_path(str(files[2]))
    binaries = checked_binaries(unpacked("postgresql-debian"), "Debian's PostgreSQL")
    with EmbeddedServer(binaries=binaries, settings={"fsync": "off"}) as server:
        data = server.directory / "data"
        issued = ca.issue_cert("localhost")
        issued.private_key_pem.write_to_path(str(data / "server.key"))
        issued.cert_chain_pems[0].write_to_path(str(data / "server.crt"))
        ca.cert_pem.write_to_path(str(data / "root.crt"))
        (data / "pg_hba.conf").write_text(HBA)
        (data / "server.key").chmod(0o600)
        for name in ("server.key", "server.crt", "root.crt", "pg_hba.conf"):
            ServerUser.of_this_process().own(data / name)
        server._settings |= {"ssl": "on", "ssl_ca_file": "root.crt"}
        server.restart()
        with psycopg.connect(server.socket_url, autocommit=True) as admin:
            admin.execute('create role "by certificate" login superuser')
            admin.execute("create database pgwake_tls")
        yield Tls(server, *files)


async def test_init_worker_and_listener_work_with_a_verified_server(
    tls: Tls,
    pgwake: Pgwake,
    start_process: StartProcess,
    connect: Connect,
) -> None:
    url = tls.url(sslmode="verify-full", sslrootcert=tls.ca)
    done = await pgwake("init", PGWAKE_DATABASE_URL=url)
    assert done.code == 0, done.errors
    worker = await start_process("-m", "pgwake", "run", database_url=url)
    await worker.started()
    watcher = await connect(url)
    # By the listener: the poll is an hour off.
    await ended(watcher, await insert(watcher, "note"))
    seen = await watcher.fetch(
        "select a.application_name, s.ssl from pg_stat_activity as a"
        " join pg_stat_ssl as s using (pid) where a.application_name like 'pgwake:%'"
    )
    assert len(seen) >= 5
    assert all(row["ssl"] for row in seen)


@pytest.mark.parametrize(
    ("host", "mode", "authority", "said"),
    [
        ("localhost", "verify-full", "other_ca", "self.signed certificate"),
        ("localhost", "verify-ca", "other_ca", "self.signed certificate"),
        ("127.0.0.1", "verify-full", "ca", "IP address mismatch"),
    ],
)
async def test_a_server_that_is_somebody_else_is_refused(
    tls: Tls, host: str, mode: str, authority: str, said: str
) -> None:
    url = tls.url(host, sslmode=mode, sslrootcert=getattr(tls, authority))
    with pytest.raises(UnusableUrlError, match=f"{said}.*sslrootcert names a file"):
        await connect_worker(url, "pgwake:test", 10)


async def test_a_worker_does_not_start_on_a_server_that_is_somebody_else(
    tls: Tls, start_process: StartProcess
) -> None:
    url = tls.url("127.0.0.1", sslmode="verify-full", sslrootcert=tls.ca)
    worker = await start_process("-m", "pgwake", "run", database_url=url)
    assert await worker.exit_code() == 78
    (line,) = worker.log("worker can't start")
    assert "IP address mismatch" in line["problem"]


async def test_a_client_shows_its_certificate(tls: Tls) -> None:
    url = tls.url(login="by%20certificate", sslmode="verify-full", sslrootcert=tls.ca)
    with pytest.raises(asyncpg.PostgresError, match="requires a valid client certif"):
        await connect_worker(url, "pgwake:test", 10)
    shown = f"{url}&sslcert={tls.key}&sslkey={tls.key}"
    connection = await connect_worker(shown, "pgwake:test", 10)
    assert await connection.fetchval("select current_user") == "by certificate"
    connection.terminate()


async def test_a_server_without_tls_is_refused_where_it_is_asked_for(
    database: str,
) -> None:
    with pytest.raises(ConnectionError, match="rejected SSL upgrade"):
        await connect_worker(f"{database}?sslmode=require", "pgwake:test", 10)
