"""Every benchmark runs, at sizes that say nothing about speed."""

import json
import os
import signal
import subprocess
import sys
from collections import defaultdict
from pathlib import Path

import psycopg
import pytest

from lab.benchmarks import report
from lab.benchmarks.__main__ import MODULES
from lab.benchmarks.measure import Bench
from pgwake.database.embedded import EmbeddedServer
from support import CHECKOUT, database_url

SMALL: dict[str, dict[str, int]] = {
    "drain": {"jobs": 300, "repeats": 1},
    "wakeup": {"jobs": 5, "repeats": 1},
    "steady": {"seconds": 1, "repeats": 1},
    "snapshot": {"jobs": 600, "repeats": 1},
    "inserts": {"seconds": 3, "many": 2, "repeats": 1},
    "delayed": {"jobs": 3, "repeats": 1},
    "claims": {"processes": 1, "seconds": 1},
    "idle": {"queues": 20, "processes": 1, "seconds": 1, "jobs": 3, "repeats": 1},
    "stats": {"most": 10_000, "calls": 2},
    "metrics": {"jobs": 1000, "workers": 2, "seconds": 1},
    "parts": {"rounds": 20, "repeats": 1},
    "scale": {"jobs": 40, "serial_jobs": 8, "repeats": 1},
    "steps": {"rounds": 10, "beside": 500, "sleeps": 3, "repeats": 1},
    "features": {"jobs": 2000, "repeats": 1},
    "storage": {"jobs": 2000, "every": 1000, "payload_bytes": 64},
}
ONLY = {
    "drain": "0 slots",
    "steady": "loop",
    "snapshot": "pgwake",
    "inserts": "2",
    "idle": "20",
    "metrics": "1,000",
    "parts": "one",
    "scale": "chain",
}
SHOWN = {
    "drain": (2, {"jobs_per_second", "worker_cpu_us", "server_cpu_us", "wal_bytes"}),
    "wakeup": (2, {"p50_ms", "p95_ms", "p99_ms", "max_ms"}),
    "steady": (1, {"p50_ms", "p99_ms", "worker_cpu_us", "server_cpu_us", "wal_bytes"}),
    "snapshot": (1, {"last_over_first", "jobs_per_second"}),
    "inserts": (2, {"commits_per_second"}),
    "delayed": (1, {"p50_ms", "p95_ms", "max_ms"}),
    "claims": (1, {"claims_per_job"}),
    "idle": (1, {"transactions_per_second", "worker_percent", "p50_ms", "worker_mb"}),
    "stats": (2, {"p50_ms", "diagnose_p50_ms", "buffers", "pending_count"}),
    "metrics": (1, {"server_percent", "sample_ms", "scrape_ms"}),
    "parts": (4, {"insert_us", "claim_us", "complete_us"}),
    "steps": (3, set()),
    "scale": (1, {"jobs_per_second", "server_cpu_us", "exponent"}),
    "features": (18, {"jobs_per_second", "worker_cpu_us", "server_cpu_us"}),
    "storage": (2, {"jobs_per_second", "wal_bytes_a_job", "jobs_finished_mb"}),
}


@pytest.mark.parametrize("benchmark", SMALL)
async def test_each_benchmark_measures_and_shows_it(
    benchmark: str, server: EmbeddedServer, capsys: pytest.CaptureFixture[str]
) -> None:
    bench = Bench(server.url, ONLY.get(benchmark, ""))
    runs = await MODULES[benchmark].run(bench, **SMALL[benchmark])

    conditions, figures = SHOWN[benchmark]
    medians = report.medians(runs)
    assert len(medians) == conditions, medians
    for of_condition in medians.values():
        assert figures <= of_condition.keys(), of_condition
    capsys.readouterr()
    report.show_table(benchmark, runs)
    shown = capsys.readouterr().out
    for condition, of_condition in medians.items():
        assert condition in shown
        assert all(name in shown for name in of_condition)


def test_the_command_writes_its_figures(server: EmbeddedServer, tmp_path: Path) -> None:
    path = tmp_path / "figures.json"
    words = f"stats --most 10000 --calls 2 --url {server.url} --json {path}".split()
    done = subprocess.run(
        [sys.executable, "-m", "tests.lab.benchmarks", *words],
        cwd=CHECKOUT,
        check=False,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    answer = json.loads(path.read_text())
    assert answer["server"]["server_version"]
    assert answer["machine"]["processors"] > 0
    assert len(answer["benchmarks"]["stats"]["medians"]) == SHOWN["stats"][0]


@pytest.mark.parametrize(
    "pacing", [{"PRODUCER_PACING": "harness"}, {"PRODUCER_MODE": "depth-target"}]
)
def test_pgwake_keeps_the_contract_of_the_long_horizon_harness(
    pacing: dict[str, str], server: EmbeddedServer, admin: psycopg.Connection
) -> None:
    admin.execute("create database long_horizon")
    url = database_url(server, "long_horizon", "postgres")
    sizes = {**pacing, "SAMPLE_EVERY_S": "1", "JOB_WORK_MS": "0"}
    try:
        with subprocess.Popen(
            [sys.executable, "-m", "tests.lab.benchmarks.long_horizon"],
            cwd=CHECKOUT,
            env={**os.environ, **sizes, "DATABASE_URL": url},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        ) as process:
            assert process.stdin is not None
            assert process.stdout is not None
            descriptor = json.loads(process.stdout.readline())
            assert descriptor["kind"] == "descriptor"
            process.stdin.write("ENQUEUE 7\n")
            process.stdin.flush()
            seen: dict[str, list[float]] = defaultdict(list)
            awaited = {"completion_rate"}
            if "PRODUCER_MODE" in pacing:
                awaited.add("queue_depth")
            while not all(any(seen[metric]) for metric in awaited):
                sample = json.loads(process.stdout.readline())
                seen[sample["metric"]].append(sample["value"])
            process.send_signal(signal.SIGTERM)
            process.stdout.read()
        assert process.returncode == 0
        assert any(seen["enqueue_rate"])
        assert {"claim_p50_ms", "claim_p95_ms", "claim_p99_ms"} <= seen.keys()
        assert any(seen["queue_depth"]) == ("queue_depth" in awaited)
    finally:
        admin.execute("drop database long_horizon with (force)")


# What the peers' runner gives a driver: here, a job in a copy of what setup() has made.
KIT = """
import asyncio, os

class Peer:
    def __init__(self, dsn):
        self.dsn = dsn

def run(peer):
    asyncio.run(_run(peer(os.environ["PEERS_DATABASE"])))

async def _run(peer):
    if os.environ["PEERS_VERB"] == "setup":
        await peer.setup()
        return
    await peer.open_producer(1)
    await peer.put_many(1)
    hit = asyncio.get_running_loop().create_future()
    working = asyncio.create_task(peer.work(1, hit.set_result))
    await asyncio.wait([working, hit], return_when=asyncio.FIRST_COMPLETED)
    os._exit(0 if hit.done() else 1)
"""


def test_pgwake_works_in_the_copies_that_the_peers_runner_makes(
    server: EmbeddedServer, admin: psycopg.Connection, tmp_path: Path
) -> None:
    (tmp_path / "kit.py").write_text(KIT)
    log = tmp_path / "log"
    try:
        for verb, name, template in [
            ("setup", "peers_original", "template1"),
            ("work", "peers_copy", "peers_original"),
        ]:
            admin.execute(f"create database {name} template {template}")
            done = subprocess.run(
                [sys.executable, CHECKOUT / "tests/lab/benchmarks/peers/driver.py"],
                check=False,
                capture_output=True,
                text=True,
                timeout=60,
                env={
                    **os.environ,
                    "PYTHONPATH": str(tmp_path),
                    "PGWAKE_SRC": str(CHECKOUT),
                    "PGWAKE_BENCH_LOG": str(log),
                    "PEERS_DATABASE": database_url(server, name, "postgres"),
                    "PEERS_VERB": verb,
                },
            )
            told = log.read_text() if log.exists() else done.stderr
            assert done.returncode == 0, told
    finally:
        for name in ("peers_copy", "peers_original"):
            admin.execute(f"drop database if exists {name} with (force)")
