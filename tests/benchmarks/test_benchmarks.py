"""Every benchmark runs, at sizes that say nothing about speed."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from pgwake.embedded import EmbeddedServer
from support import CHECKOUT

SMALL = {
    "enqueue": "--jobs 1000 --repeats 1",
    "drain": "--jobs 300 --repeats 1 --only slots",
    "wakeup": "--jobs 5 --repeats 1",
    "steady": "--seconds 1 --repeats 1 --only loop",
    "snapshot": "--jobs 600 --repeats 1 --only pgwake",
    "inserts": "--seconds 1 --many 2 --repeats 1 --only 2",
    "delayed": "--jobs 3 --repeats 1",
    "claims": "--processes 2 --seconds 1",
    "stats": "--most 10000 --calls 2",
    "metrics": "--jobs 1000 --workers 2 --seconds 1 --only 1,000",
    "parts": "--rounds 20 --repeats 1 --only one",
    "limits": "--jobs 300 --repeats 1 --only keys",
}
SHOWN = {
    "enqueue": (3, {"jobs_per_second"}),
    "drain": (2, {"jobs_per_second", "worker_us", "server_us", "wal_bytes"}),
    "wakeup": (2, {"p50_ms", "p95_ms", "p99_ms", "max_ms"}),
    "steady": (1, {"p50_ms", "p99_ms", "worker_us", "server_us", "wal_bytes"}),
    "snapshot": (1, {"last_over_first", "jobs_per_second"}),
    "inserts": (2, {"commits_per_second"}),
    "delayed": (1, {"p50_ms", "p95_ms", "max_ms"}),
    "claims": (1, {"claims_per_job"}),
    "stats": (2, {"median_ms", "buffers", "pending_count"}),
    "metrics": (1, {"server_percent", "sample_ms", "scrape_ms"}),
    "parts": (3, {"insert_us", "claim_us", "complete_us", "empty_claim_us"}),
    "limits": (2, {"jobs_per_second", "server_us"}),
}


@pytest.mark.timeout(120)
@pytest.mark.parametrize("benchmark", SMALL)
def test_each_benchmark_measures_and_writes_its_figures(
    benchmark: str, server: EmbeddedServer, tmp_path: Path
) -> None:
    answer = _run(benchmark, server.url, tmp_path, *SMALL[benchmark].split())

    assert answer["server"]["server_version"]
    assert answer["machine"]["processors"] > 0
    conditions, figures = SHOWN[benchmark]
    medians = answer["benchmarks"][benchmark]["medians"]
    assert len(medians) == conditions, medians
    for of_condition in medians.values():
        assert figures <= of_condition.keys(), of_condition


def _run(benchmark: str, url: str, folder: Path, *options: str) -> dict[str, Any]:
    figures = folder / "figures.json"
    command = [sys.executable, "-m", "tests.benchmarks", benchmark, "--url", url]
    done = subprocess.run(
        [*command, "--json", str(figures), *options],
        cwd=CHECKOUT,
        check=False,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    answer: dict[str, Any] = json.loads(figures.read_text())
    return answer
