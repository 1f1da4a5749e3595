"""pgwake bench: its figures, what it compares them with, and what it leaves behind."""

import signal
import sys
from datetime import UTC, datetime
from pathlib import Path

import psycopg
import pytest

from pgwake.cli import main as cli
from pgwake.cli.bench import results
from pgwake.cli.bench.command import compare
from pgwake.cli.bench.results import BenchRun, verdict
from pgwake.database.statements.install import get_adoption
from pgwake.errors import InvalidArgumentError, PgwakeError
from support import PATIENCE, Connection, wait_for
from support.sql.helpers import insert
from support.worker.processes import Pgwake, StartProcess
from support.worker.scratch import census

SMALL = ("bench", "--quick", "--jobs", "100", "--repeats", "1")
AT = datetime(2026, 11, 28, tzinfo=UTC)
FIGURES = {
    *("round_trip_ms", "commit_ms", "enqueue_jobs_per_second", "enqueue_wal_bytes"),
    *("enqueue_many_jobs_per_second", "drain_jobs_per_second", "drain_worker_cpu_us"),
    *("drain_server_cpu_us", "drain_wal_bytes", "wake_up_p50_ms", "wake_up_p95_ms"),
    *("wake_up_p99_ms", "wake_up_max_ms"),
}


@pytest.fixture
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    return tmp_path / "pgwake" / "bench"


def record(*values: float, name: str = "commit_ms", **changes: object) -> BenchRun:
    fields = {
        "at": AT,
        "pgwake": "1",
        "server": "18.6",
        "database": "d",
        "jobs": 1,
        "figures": {name: values},
    }
    return BenchRun.model_validate({**fields, **changes})


async def test_it_shows_every_figure_compares_and_leaves_nothing(
    connection: Connection, pgwake: Pgwake, state: Path, tmp_path: Path
) -> None:
    await insert(connection)
    before = await census(connection)
    identity = (await get_adoption(connection)).present_identity
    last = record(1, database=identity, jobs=100)
    results.write(last.path, last)

    shown = await pgwake(*SMALL, "--json", "run.json", XDG_STATE_HOME=str(tmp_path))
    assert (shown.code, shown.errors) == (0, ""), shown
    assert "queue pgwake_bench" in shown.output
    assert "ratio" in shown.output
    assert "last: " in shown.output
    run = results.read(tmp_path / "run.json")
    assert run.figures.keys() >= FIGURES
    for name, (value,) in run.figures.items():
        # The server's CPU is counted in hundredths of a second.
        assert value > 0 or name.endswith("cpu_us"), name
        assert name.replace("_", " ") in shown.output
    # The next is compared with this one.
    assert last.path.is_relative_to(state)
    assert results.read(last.path) == run
    assert await census(connection) == before


async def test_ctrl_c_in_the_middle_leaves_nothing_either(
    connection: Connection, database: str, start_process: StartProcess
) -> None:
    before = await census(connection)
    process = await start_process(
        *("-m", "pgwake", "bench", "--jobs", "500", "--repeats", "100"),
        database_url=database,
    )

    async def is_in_the_middle() -> bool:
        found: bool = await connection.fetchval(
            "select exists (select from pgwake.workers)"
            " and exists (select from pgwake.jobs where queue = 'pgwake_bench')"
        )
        return found

    await wait_for(is_in_the_middle, 3 * PATIENCE)
    process.send(signal.SIGINT)
    assert await process.exit_code() == 130
    assert await census(connection) == before


@pytest.mark.parametrize(
    ("code", "said", "flags"),
    [
        (2, "--jobs", ["--jobs", "0"]),
        (2, "no.json: No such file", ["--against", "no.json"]),
        (2, "is a directory", ["--json", "/"]),
        (1, "can't be reached", ["--database-url", "postgresql://u@127.0.0.1:1/d"]),
        (78, "`pgwake init`", []),
    ],
)
def test_what_can_not_be_meant_is_told_at_once(
    code: int,
    said: str,
    flags: list[str],
    database: str,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    with psycopg.connect(database) as connection:
        connection.execute("drop schema pgwake cascade")
    monkeypatch.setenv("PGWAKE_DATABASE_URL", database)
    monkeypatch.setattr(sys, "argv", ["pgwake", *SMALL, *flags])
    with pytest.raises(SystemExit) as ended:
        cli.main()
    output, errors = capfd.readouterr()
    assert (ended.value.code, output) == (code, "")
    assert said in " ".join(errors.split())


def test_a_change_counts_beyond_the_spread_of_both_runs() -> None:
    slow, noisy, quick = record(10, 11, 12), record(3, 7, 11), record(4, 5, 6)
    assert verdict("commit_ms", slow, quick) == "worse"
    assert verdict("commit_ms", quick, slow) == "better"
    assert verdict("commit_ms", noisy, quick) == verdict("commit_ms", slow, noisy) == ""
    assert verdict("commit_ms", record(1000), quick) == ""  # of one, it is not known
    of_drain = [record(n, n, n, name="drain_per_second") for n in (1000, 2000)]
    assert verdict("drain_per_second", *of_drain) == "worse"


def test_the_last_run_is_that_of_the_same_database_and_size(
    state: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    for one in (record(1), record(2), record(3, database="e"), record(4, jobs=2)):
        compare(one, None)
    capfd.readouterr()

    compare(record(5), None)
    output = capfd.readouterr().out
    assert "2.50" in output, "of 5 and 2"
    assert results.read(record(0).path) == record(5)
    assert record(0).path.is_relative_to(state)


@pytest.mark.usefixtures("state")
def test_another_run_is_shown_beside_where_it_is_named(
    capfd: pytest.CaptureFixture[str],
) -> None:
    compare(record(4), record(2, database="e", jobs=3))
    output, errors = capfd.readouterr()
    assert "2.00" in output
    assert "3 jobs" in output
    assert "database e" in output
    assert not errors


def test_what_is_no_run_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "run.json"
    for text in (b"\x89PNG\n", b'{"figures": {"commit_ms": [NaN]}}', b"{"):
        path.write_bytes(text)
        with pytest.raises(InvalidArgumentError, match="no run of pgwake bench"):
            results.read(path)
    for wrong in (tmp_path, path / "run.json"):
        with pytest.raises(PgwakeError, match=r"directory|exists"):
            results.write(wrong, record(1))


@pytest.mark.usefixtures("state")
def test_a_last_run_that_can_not_be_used_is_told_and_no_more(
    capfd: pytest.CaptureFixture[str],
) -> None:
    path = record(1).path
    path.mkdir(parents=True)
    compare(record(1), None)
    output, errors = capfd.readouterr()
    assert "There is no run to compare with" in output
    assert "The run is not kept" in errors

    path.rmdir()
    path.write_text("mine\n")
    compare(record(1), None)
    output, errors = capfd.readouterr()
    assert "no run of pgwake bench" in output
    assert not errors
    assert results.read(path) == record(1)
