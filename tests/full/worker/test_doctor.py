"""pgwake doctor: each fault is made, found with what to type, and gone after it."""

import asyncio
import contextlib
import functools
import json
import socket
import sys
from datetime import timedelta
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import psycopg
import pytest

from full.sql.test_install import empty_database
from pgwake.cli.main import application
from pgwake.database.install import install
from pgwake.doctor.examine import Examination
from pgwake.errors import ConfigurationError
from pgwake.finding import Finding
from pgwake.observe.findings import FindingMetrics
from pgwake.observe.metrics import Metrics
from support import Connect, Connection, free_port, wait_for
from support.sql import release
from support.sql.helpers import set_queue
from support.sql.next_schema import NEXT_VERSION, next_schema
from support.tools import need
from support.worker.helpers import embedded, settings
from support.worker.metrics import Samples
from support.worker.pgbouncer import pgbouncer
from support.worker.processes import Pgwake, clean_environment
from support.worker.registries import quick

__all__ = ["empty_database", "next_schema"]

POLICY = {"key_limit": 2, "max_running": 1}  # a warning
MEND = "update pgwake.queues set key_limit = max_running"


@pytest.fixture
async def connection(connection: Connection) -> Connection:
    """The test's database, which is a clone of the template, as one that is not."""
    await connection.execute(
        "update pgwake.installation set identity = pgwake.database_identity()"
    )
    return connection


@pytest.fixture
def healthy(connection: Connection, database: str) -> str:  # noqa: ARG001, as above
    """The URL of a database without a fault."""
    return database


async def examined(url: str, **changes: Any) -> list[Finding]:
    """What the doctor finds, in this process."""
    examination = Examination(settings(url, **changes))
    await examination.run()
    return examination.findings


async def finding(url: str, check: str, **changes: Any) -> Finding:
    """The only thing that it finds."""
    (found,) = await examined(url, **changes)
    assert found.check == check, found
    return found


@pytest.fixture
def doctor(healthy: str, pgwake: Pgwake) -> Pgwake:
    """Type `pgwake doctor` with arguments, of the healthy database."""
    return functools.partial(pgwake, "doctor", PGWAKE_DATABASE_URL=healthy)


def parsed(output: str) -> list[dict[str, Any]]:
    findings: list[dict[str, Any]] = json.loads(output)["findings"]
    return findings


async def test_of_a_healthy_database_it_says_that_nothing_was_found(
    doctor: Pgwake,
) -> None:
    code, output, _ = await doctor()

    assert code == 0
    assert output.startswith("nothing found: 7 checks in ")


async def test_it_exits_by_the_worst_that_it_finds(
    doctor: Pgwake, connection: Connection, healthy: str
) -> None:
    await connection.execute(
        "insert into pgwake.jobs (queue, kind, status, finished_at)"
        " select 'letters', 'x', 'failed', now() from generate_series(1, 10001)"
    )
    code, output, _ = await doctor("--json")
    (notice,) = parsed(output)
    assert code == 0
    assert notice["check"] == "dead_letters"
    assert notice["severity"] == "notice"
    assert set(notice) == {
        *("check", "severity", "subject", "problem", "fix", "value"),
    }

    await set_queue(connection, "\x1b[31m\n[red]", **POLICY)
    code, output, _ = await doctor("--database-url", healthy)
    assert code == 3
    assert "\x1b" not in output
    assert "warning policy \ufffd[31m\ufffd[red]: " in output
    assert "        update pgwake.queues set key_limit = max_running" in output
    assert "1 warning, 1 notice: 7 checks in" in output

    await connection.execute(
        "alter table pgwake.jobs disable trigger jobs_after_insert"
    )
    code, output, _ = await doctor("--json")
    assert code == 4
    assert "\x1b" not in output
    assert [row["severity"] for row in parsed(output)] == [
        *("error", "warning", "notice"),
    ]


async def test_without_a_database_there_is_nothing_to_look_at() -> None:
    with pytest.raises(ConfigurationError, match="PGWAKE_DATABASE_URL"):
        await asyncio.to_thread(
            application("doctor"), ["doctor"], standalone_mode=False
        )


async def test_of_a_busy_database_it_finds_nothing(
    connection: Connection, connect: Connect, healthy: str, monkeypatch: Any
) -> None:
    monkeypatch.setattr("pgwake.engine.upkeep.DIAGNOSE_SECONDS", 0.1)
    registry = quick()

    @registry.job("fail", max_attempts=1)
    async def fail() -> None:
        raise ValueError

    await connection.execute(
        "select pgwake.schedule('often', every => '1 second', kind => 'quick')"
    )
    producer = await connect()

    async def produce() -> None:
        while True:
            await producer.execute(
                "insert into pgwake.jobs (kind, concurrency_key)"
                " select (array['quick', 'fail'])[1 + (n = 3)::int],"
                "   case when n % 5 = 0 then 'k' || n end"
                " from generate_series(1, 50) as n"
            )

    async with embedded(healthy, registry) as worker, asyncio.TaskGroup() as group:
        task = group.create_task(produce())
        for _ in range(5):
            assert await examined(healthy) == []
        task.cancel()
        assert not Samples(worker.metrics.render()).has("pgwake_findings")
    done = await connection.fetchval("select count(*) from pgwake.jobs_finished")
    assert done > 100


REFUSALS = {
    "password": ("owner@", "wrong@", "pg_hba.conf"),
    "database": ("/pgwake_test", "/no_such", "/postgres no_such"),
    "name": ("127.0.0.1", "no-such-host.invalid", "getent hosts no-such-host.invalid"),
}


@pytest.mark.parametrize("fault", REFUSALS)
async def test_a_database_that_refuses_it_is_found(healthy: str, fault: str) -> None:
    right, wrong, fix = REFUSALS[fault]
    found = await finding(healthy.replace(right, wrong), "connect")

    assert (found.severity, found.subject) == ("error", "PGWAKE_DATABASE_URL")
    assert fix in found.fix
    assert "owner@" not in f"{found}".replace("pgwake_owner@", "")


async def test_a_server_that_is_not_there_is_an_error_that_scripts_can_read(
    pgwake: Pgwake, healthy: str
) -> None:
    port = urlsplit(healthy).port
    url = healthy.replace(f":{port}", f":{free_port()}") + "?application_name=secret"
    answer = await pgwake("doctor", "--json", PGWAKE_DATABASE_URL=url)

    assert (answer.code, answer.errors) == (4, "")
    (row,) = parsed(answer.output)
    assert (row["check"], "nothing listens there" in row["problem"]) == (
        "connect",
        True,
    )
    assert row["fix"].startswith("pg_isready -d postgresql://127.0.0.1:")
    assert "secret" not in answer.output
    assert ":owner@" not in answer.output


async def test_a_server_that_is_silent_is_found_in_time(healthy: str) -> None:
    # Who connects is taken by the kernel, and hears nothing.
    with socket.create_server(("127.0.0.1", 0)) as silent:
        port, own = urlsplit(healthy).port, silent.getsockname()[1]
        url = healthy.replace(f":{port}", f":{own}")
        found = await finding(url, "connect", query_timeout=0.3)

    assert "no answer in time" in found.problem


async def test_a_table_that_is_locked_is_found_in_time(
    connection: Connection, healthy: str
) -> None:
    await connection.execute("begin; lock table pgwake.installation")
    found = await finding(healthy, "unanswered", query_timeout=0.5)

    assert found.subject == "diagnose"
    assert found.severity == "error"


@pytest.mark.usefixtures("next_schema")
async def test_a_schema_that_is_missing_or_old_is_found_until_it_is_installed(
    connect: Connect, empty_database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pgwake.database.install.SCHEMA_VERSION", NEXT_VERSION)
    found = await finding(empty_database, "schema")
    assert (found.severity, found.fix) == ("error", "pgwake init")
    await (await connect(empty_database)).execute(release.script(1))
    assert "has pgwake schema 1" in (await finding(empty_database, "schema")).problem
    await install(empty_database)

    assert await examined(empty_database) == []


async def test_a_pooler_that_can_not_listen_is_found(
    healthy: str, transaction_pooler: str
) -> None:
    found = await finding(transaction_pooler, "listen", poll_interval=7)
    assert (found.severity, found.subject) == ("warning", "PGWAKE_DATABASE_URL")
    assert (found.value, "PGWAKE_LISTEN_URL" in found.fix) == (7, True)
    found = await finding(healthy, "listen", listen_url=transaction_pooler)
    assert found.subject == "PGWAKE_LISTEN_URL"

    assert await examined(transaction_pooler, listen_url=healthy) == []


@pytest.mark.usefixtures("connection")
async def test_a_pooler_that_lends_sessions_is_as_good_as_none(database: str) -> None:
    with pgbouncer(database, "session") as url:
        assert await examined(url) == []


async def test_a_listen_url_of_another_database_is_found(
    healthy: str, empty_database: str
) -> None:
    found = await finding(healthy, "listen", listen_url=empty_database)

    assert found.severity == "error"
    assert urlsplit(empty_database).path[1:] in found.problem
    wrong = empty_database.replace(":owner@", ":secret@")
    found = await finding(healthy, "connect", listen_url=wrong)
    assert found.subject == "PGWAKE_LISTEN_URL"
    assert "secret" not in f"{found}"


async def test_of_several_hosts_it_says_which_is_gone(healthy: str) -> None:
    port = urlsplit(healthy).port
    gone = f"127.0.0.1:{free_port()}"
    found = await finding(
        healthy.replace(f"127.0.0.1:{port}", f"127.0.0.1:{port},{gone}"), "hosts"
    )

    assert found.severity == "warning"
    assert gone in found.problem


async def test_two_hosts_that_both_take_writes_are_found(healthy: str) -> None:
    port = urlsplit(healthy).port
    found = await finding(
        healthy.replace(f"127.0.0.1:{port}", f"127.0.0.1:{port},localhost:{port}"),
        "hosts",
    )

    assert found.severity == "error"
    assert f"127.0.0.1:{port}, localhost:{port}" in found.subject


async def test_a_clock_that_is_wrong_is_found(healthy: str, tmp_path: Path) -> None:
    need("faketime")
    process = await asyncio.create_subprocess_exec(
        *("faketime", "-f", "+10m", sys.executable, "-m", "pgwake", "doctor", "--json"),
        *("--database-url", healthy),
        cwd=tmp_path,
        env=clean_environment({"FAKETIME_DONT_FAKE_MONOTONIC": "1"}),
        stdout=asyncio.subprocess.PIPE,
    )
    output, _ = await process.communicate()

    assert process.returncode == 3
    (row,) = json.loads(output)["findings"]
    assert row["check"] == "clock"
    assert row["value"] == pytest.approx(-600, abs=5)
    assert "10 m" not in row["problem"]
    assert "ahead of the server's" in row["problem"]


async def test_a_network_that_is_slow_is_found(healthy: str) -> None:
    target = urlsplit(healthy)

    accepted: list[asyncio.Task[None] | None] = []

    async def pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(ConnectionError):
            while data := await reader.read(65536):
                await asyncio.sleep(0.03)
                writer.write(data)
        writer.close()
        with contextlib.suppress(ConnectionError):
            await writer.wait_closed()

    async def accept(
        reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        accepted.append(asyncio.current_task())
        up_reader, up_writer = await asyncio.open_connection(
            target.hostname, target.port
        )
        await asyncio.gather(pump(reader, up_writer), pump(up_reader, writer))

    async with await asyncio.start_server(accept, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        found = await finding(
            healthy.replace(f":{target.port}", f":{port}"), "round_trip"
        )
        await asyncio.gather(*filter(None, accepted))
    assert found.severity == "warning"
    assert found.value is not None
    assert found.value >= 0.06


async def test_too_few_sessions_for_a_worker_are_found(
    healthy: str, admin: psycopg.Connection
) -> None:
    name = urlsplit(healthy).path[1:]
    admin.execute(f"alter database {name} connection limit 12")
    assert await examined(healthy, processes=2) == []
    found = await finding(healthy, "sessions", processes=3)

    assert (found.severity, found.value) == ("warning", 16)
    assert "of the 12" in found.problem
    admin.execute(f"alter database {name} connection limit 17")
    assert await examined(healthy, processes=3) == []


async def test_settings_that_do_not_go_together_are_found(healthy: str) -> None:
    found = await finding(healthy, "settings", lease=20)
    assert found.subject == "PGWAKE_QUERY_TIMEOUT"
    found = await finding(healthy, "settings", lease=9, query_timeout=3)
    assert found.subject == "PGWAKE_LEASE"

    assert await examined(healthy, lease=30) == []


async def test_a_database_of_another_environment_is_found(
    connection: Connection, healthy: str
) -> None:
    found = await finding(healthy, "environment", environment="staging")
    assert (found.severity, "noted for none" in found.problem) == ("error", True)
    await connection.execute(
        "update pgwake.installation set environment = 'production'"
    )
    found = await finding(healthy, "environment", environment="staging")
    assert "noted for production" in found.problem

    assert await examined(healthy, environment="production") == []


async def test_a_role_that_lacks_rights_is_found(
    connection: Connection,
    healthy: str,
    admin: psycopg.Connection,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    (tmp_path / "roles.sql").write_text(
        "grant execute on function\n  pgwake.enqueue,\n  pgwake.get_job\n  to hand;\n"
    )
    admin.execute("create role hand login password 'hand'")
    try:
        url = healthy.replace("pgwake_owner:owner@", "hand:hand@")
        found = await finding(url, "rights")
        assert (found.severity, found.subject) == ("error", "schema")
        assert found.fix.startswith("pgwake init --roles  # then grant pgwake_worker")

        await connection.execute(
            "grant usage on schema pgwake to hand;"
            "grant select on pgwake.schema_version to hand;"
        )
        assert (await finding(url, "rights")).subject == "diagnose"
        await connection.execute(
            "grant execute on function pgwake.diagnose, pgwake.diagnose_worker to hand"
        )
        found, hidden = await examined(url)
        assert (found.check, found.subject) == ("rights", "hand")
        assert "may not call claim_rows, complete_jobs, extend_leases" in found.problem
        assert found.fix.startswith("grant pgwake_worker to hand;")
        assert (hidden.check, hidden.severity) == ("hidden_sessions", "notice")

        await connection.execute(
            "grant execute on all functions in schema pgwake to hand;"
            "revoke execute on function pgwake.get_job from hand"
        )
        monkeypatch.setattr("pgwake.doctor.checks.sql_directory", lambda: tmp_path)
        grants, _ = await examined(url)
        assert (grants.check, grants.fix) == ("grants", "pgwake init --roles")
        assert grants.problem == "hand may not call get_job"
    finally:
        await connection.execute(
            "revoke all on schema pgwake from hand;"
            "revoke all on all tables in schema pgwake from hand;"
            "revoke all on all functions in schema pgwake from hand"
        )
        admin.execute("drop role hand")


async def test_what_is_found_is_a_metric_until_it_is_mended(
    connection: Connection, healthy: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pgwake.engine.upkeep.DIAGNOSE_SECONDS", 0.05)
    monkeypatch.setattr("pgwake.observe.findings.DIAGNOSE_SECONDS", 0.05)
    monkeypatch.setattr("pgwake.observe.findings.MAX_SHARE", 10)
    await set_queue(connection, "one", **POLICY)
    await set_queue(connection, "two", lease=timedelta(seconds=1))
    registry = quick()

    async with embedded(healthy, registry) as worker:

        async def shows(count: int) -> bool:
            page = Samples(worker.metrics.render())
            labels = {"check": "policy", "severity": "warning"}
            return page.total("pgwake_findings", **labels) == count

        await wait_for(lambda: shows(2))
        await connection.execute(MEND)
        await wait_for(lambda: shows(1))
        await connection.execute("update pgwake.queues set lease = null")
        await wait_for(lambda: shows(0))


async def test_a_diagnosis_that_takes_too_long_is_given_up_and_what_is_old_vanishes(
    connection: Connection, connect: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    await set_queue(connection, "one", **POLICY)
    metrics = Metrics([])
    findings: FindingMetrics = metrics.findings
    assert await findings.look(connection, 1)
    assert 60 <= findings.seconds < 600
    assert Samples(metrics.render()).has("pgwake_findings")
    assert await findings.look(connection, 100_000)
    assert findings.seconds == 600

    monkeypatch.setattr("pgwake.observe.findings.DEADLINE", 0.1)
    blocker = await connect()
    await blocker.execute("begin; lock table pgwake.installation")
    assert not await findings.look(connection, 1)
    assert findings.seconds == 600
    assert Samples(metrics.render()).has("pgwake_findings")
    monkeypatch.setattr("pgwake.observe.findings.FRESH_SECONDS", 0)
    assert not Samples(metrics.render()).has("pgwake_findings")
