"""Every metric of a worker that has done everything, by name, type and labels."""

import asyncio
import re
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from urllib.request import Request, urlopen

import pytest
import pytest_asyncio
from prometheus_client.openmetrics.parser import (
    text_string_to_metric_families as read_openmetrics,
)
from prometheus_client.parser import text_string_to_metric_families as read_text

from pgwake import Snooze
from support import Connection, free_port, wait_for
from support.readme import metrics
from support.sql.helpers import call, insert, set_queue
from support.tools import need
from support.worker.helpers import embedded, ended, in_status
from support.worker.metrics import Samples, fetch
from support.worker.registries import waiting

EXPIRED = datetime(2020, 1, 1, tzinfo=UTC)
# Of prometheus_client; deploy/MONITORING.md says so.
OF_THE_PROCESS = re.compile("(process|python)_")


@pytest_asyncio.fixture
async def port(
    connection: Connection, database: str, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[int]:
    """Where a worker that has done everything is scraped."""
    monkeypatch.setattr("pgwake.engine.upkeep.SAMPLE_SECONDS", 0.1)
    monkeypatch.setattr("pgwake.engine.upkeep.DIAGNOSE_SECONDS", 0.1)
    registry, go = waiting("hold")

    @registry.job("good")
    async def good() -> None: ...

    @registry.job("bad", max_attempts=2)
    async def bad() -> None:
        raise ValueError

    @registry.job("later")
    async def later() -> None:
        raise Snooze(3600)

    await set_queue(connection, "default", backoff_base=timedelta(0))
    await set_queue(connection, "odd", key_limit=2, max_running=1)  # a finding
    await connection.execute(
        "select pgwake.schedule('often', every => '1 second', kind => 'good')"
    )
    # Taken by somebody who died; the worker sweeps a lease's third after its start.
    await insert(connection, "good")
    await connection.execute(
        "select pgwake.claim_next_job('default', 'gone', interval '1 second')"
    )
    port = free_port()
    async with embedded(database, registry, http_port=port, lease=1) as worker:
        held = [await insert(connection, "hold") for _ in range(2)]
        for job_id in held:
            await in_status(connection, job_id, "running")
        await call(connection, "force_complete_job", job_id=held[0], reason="test")
        await call(connection, "cancel_job", job_id=held[1])
        await ended(connection, held[1])
        await ended(connection, await insert(connection, "bad"))
        await insert(connection, "later")
        await insert(connection, "good", expires_at=EXPIRED)
        go.set()

        async def has_done_all() -> bool:
            page = Samples(worker.metrics.render())
            return all(page.has(name.removesuffix("_total")) for name, *_ in metrics())

        await wait_for(has_done_all)
        yield port


async def test_each_metric_is_documented_and_each_documented_one_is_there(
    port: int,
) -> None:
    shown = {}
    for family in read_text((await fetch(port, "/metrics")).text):
        if OF_THE_PROCESS.match(family.name):
            continue
        labels = {name for sample in family.samples for name in sample.labels} - {"le"}
        total = "_total" if family.type == "counter" else ""
        shown[family.name + total] = (family.type, labels, family.documentation)

    assert shown == {
        name: (kind, set(labels), text) for name, kind, labels, text in metrics()
    }


async def test_pages_are_as_prometheus_wants_them_and_openmetrics_for_who_asks(
    port: int,
) -> None:
    need("promtool")
    promtool = await asyncio.create_subprocess_exec(
        *("promtool", "check", "metrics"),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    page = (await fetch(port, "/metrics")).text
    output, _ = await promtool.communicate(page.encode())

    assert (promtool.returncode, output.decode()) == (0, "")
    for name, _, _, text in metrics():
        assert re.fullmatch(r"[A-Z0-9].*\.", text), name

    def ask(accept: str) -> tuple[str, str]:
        url = f"http://127.0.0.1:{port}/metrics"
        with urlopen(Request(url, headers={"Accept": accept}), timeout=10) as answer:
            return answer.headers["Content-Type"], answer.read().decode()

    wanted = "application/openmetrics-text;version=1.0.0,text/plain;version=0.0.4;q=0.5"
    kind, page = await asyncio.to_thread(ask, wanted)
    assert kind.startswith("application/openmetrics-text; version=1.0.0")
    families = read_openmetrics(page)  # type: ignore[no-untyped-call]
    assert "pgwake_jobs_claimed" in {family.name for family in families}
    kind, page = await asyncio.to_thread(ask, "*/*")
    assert kind.startswith("text/plain; version=0.0.4")
    assert "pgwake_jobs_claimed" in Samples(page).types
