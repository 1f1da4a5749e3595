"""Names that are code somewhere: data everywhere, in SQL, on terminals, in metrics."""

from collections.abc import Iterator
from typing import Any
from urllib.parse import quote

import psycopg
import pytest

from pgwake import Registry
from support import Connection, wait_for
from support.sql.helpers import insert
from support.worker.api import serving
from support.worker.helpers import ended
from support.worker.metrics import Samples
from support.worker.processes import Pgwake

NAMES = [
    "x'; drop table canary; --",
    'x"; drop table canary; --',
    "%I %s %(a)s $1 {0} {name}",
    "back\\slash \\'; drop table canary; --",
    "U&'\\0027; drop table canary; --'",
    "$$; drop table canary; $$",
    "<script>alert(1)</script>",
    "\x1b[2J\x1b]0;title\x07\x9b31m\u202e\r\nb [red]c[/red]",
]


@pytest.fixture
def canary(database: str) -> Iterator[psycopg.Connection]:
    """A table that is there as long as nobody is taken in: all who ask own it."""
    with psycopg.connect(database, autocommit=True) as connection:
        connection.execute("create table canary (a int)")
        yield connection
        assert connection.execute("select count(*) from canary").fetchone() == (0,)


def is_printable(text: str) -> bool:
    """Whether nothing in a text drives a terminal."""
    return all(c.isprintable() or c == "\n" for c in text)


def holds(value: Any) -> list[str]:
    """All texts within a JSON value."""
    if isinstance(value, dict):
        value = [*value, *value.values()]
    if isinstance(value, list):
        return [text for one in value for text in holds(one)]
    return [value] if isinstance(value, str) else []


@pytest.mark.parametrize("name", [" ".join(NAMES[:3]), NAMES[-1]], ids=["SQL", "ANSI"])
async def test_no_command_is_taken_in_by_a_name(
    canary: psycopg.Connection, name: str, pgwake: Pgwake
) -> None:
    key = ["--unique-key", name, "--concurrency-key", name]
    commands: list[list[str]] = [
        ["schedule", "add", name, name, "--every", "3600", "--queue", name],
        ["schedule", "list"],
        ["schedule", "pause", name],
        ["schedule", "resume", name],
        ["schedule", "remove", name],
        ["enqueue", name, '{"a": "b"}', "--queue", name, *key],
        ["list", "--queue", name, "--kind", name, *key, "--worker", name],
        ["list"],
        ["list", "--json"],
        ["show", "1"],
        ["show", "1", "--json"],
        ["explain", "1"],
        ["limit", name, "--key", name, "--key-limit", "3"],
        ["limit", name, "--max-running", "3"],
        ["stats", name],
        ["stats"],
        ["peek", name],
        ["queues"],
        ["pause", name],
        ["resume", name],
        ["workers"],
        ["kinds"],
        ["failed", "--queue", name, "--kind", name],
        ["failed", "--json"],
        ["enqueue", name, "--queue", name],
        ["peek", name, "--json"],
        ["stats", "--json"],
        ["queues", "--json"],
        ["retry", "--queue", name, "--kind", name, "--dry-run"],
        ["cancel", "--queue", name, "--kind", name, *key, "--yes"],
        ["purge", "--queue", name, "--kind", name, "--status", "failed", "--yes"],
        ["drain", name, "--timeout", "0"],
    ]
    # What commands show of what others have written.
    canary.execute(
        "insert into pgwake.jobs (kind, queue, status, payload, metadata, progress,"
        " errors, attempt, claimed_by, lease_id, lease_expires_at, started_at)"
        " select n, n, 'running', j, j, j, jsonb_build_array(jsonb_build_object("
        " 'attempt', 1, 'at', now(), 'worker', n, 'reason', n, 'message', n)), 1, n,"
        " gen_random_uuid(), now(), now()"
        " from (select %(n)s::text as n,"
        " jsonb_build_object('a', %(n)s::text) as j) as v",
        {"n": name},
    )
    canary.execute(
        "insert into pgwake.jobs (kind, queue, status, finished_at, fingerprint)"
        " values (%(n)s, %(n)s, 'failed', now(), 'f')",
        {"n": name},
    )
    canary.execute(
        "select pgwake.report_worker(%(n)s, %(n)s, 1, array[%(n)s], array[%(n)s],"
        " %(n)s)",
        {"n": name},
    )
    for command in commands:
        answer = await pgwake(*command)
        written = answer.output + answer.errors
        assert answer.code == (75 if command[0] == "drain" else 0), written
        assert is_printable(written), (command, written)
        if "--json" in command:
            assert name in holds(answer.json), command


@pytest.mark.usefixtures("canary")
async def test_a_worker_and_its_service_take_names_as_they_are(
    database: str, connection: Connection
) -> None:
    registry = Registry()

    async def echo(**payload: Any) -> dict[str, Any]:
        return payload

    for name in NAMES:
        registry.job(name, queue=name)(echo)
    async with serving(database, registry) as api:
        for name in NAMES:
            path = quote(name, safe="")
            pushed = await api.post(
                f"/queues/{path}/push", json={"kind": name, "payload": {name: name}}
            )
            assert pushed.status_code < 300, pushed.text
            job_id = await insert(connection, name, queue=name, payload={name: name})
            row = await ended(connection, job_id)
            assert (row["status"], row["result"]) == ("completed", {name: name})
            for answer in (
                await api.post(f"/api/queues/{path}/pause"),
                await api.post(f"/api/queues/{path}/resume"),
                await api.get("/api/jobs", params={"queue": name, "kind": name}),
                await api.get("/api/queue/stats", params={"queue": name}),
                await api.get("/api/failed", params={"queue": name, "kind": name}),
            ):
                assert answer.status_code == 200, answer.text

        async def shows_all() -> bool:
            samples = Samples((await api.get("/metrics")).text)
            labels = samples.label_values("pgwake_jobs_completed", "kind")
            return set(NAMES) <= labels

        await wait_for(shows_all)
