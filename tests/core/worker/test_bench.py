"""pgwake bench: its figures, what it compares them with, and what it leaves behind."""

import signal
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path

import psycopg
import pytest

from pgwake.cli import main as cli
from pgwake.cli.bench import command as cli_bench
from pgwake.cli.bench import history
from pgwake.cli.bench.history import Record
from pgwake.cli.bench.report import FIGURES, verdict
from pgwake.errors import ConfigurationError, InvalidArgumentError
from support import Connection, wait_for
from support.sql.helpers import insert
from support.worker.helpers import PATIENCE
from support.worker.processes import Pgwake, StartProcess
from support.worker.scratch import census

SMALL = ("bench", "--quick", "--repeats", "1")
AT = datetime(2026, 11, 28, tzinfo=UTC)


def record(*values: float, name: str = "commit_ms", **changes: object) -> Record:
    fields = {
        "at": AT,
        "pgwake": "1",
        "server": "18.6",
        "database": "d",
        "size": {"jobs": 1},
        "figures": {name: values},
    }
    return Record.model_validate({**fields, **changes})


@pytest.mark.timeout(180)
async def test_it_shows_every_figure_compares_and_leaves_nothing(
    connection: Connection, pgwake: Pgwake, tmp_path: Path
) -> None:
    await insert(connection)
    before = await census(connection)
    state = {"XDG_STATE_HOME": str(tmp_path)}

    first = await pgwake(*SMALL, "--json", "first.json", **state)
    assert (first.code, first.errors) == (0, ""), first
    assert "queue pgwake_bench" in first.output
    assert "the first run" in first.output
    figures = history.one(tmp_path / "first.json").figures
    assert figures.keys() == FIGURES.keys()
    for name, (value,) in figures.items():
        assert value > 0, name
        assert FIGURES[name].title.strip() in first.output
    assert await census(connection) == before

    second = await pgwake(*SMALL, "--keep", **state)
    assert (second.code, second.errors) == (0, ""), second
    assert "ratio" in second.output
    assert "last: " in second.output
    assert await connection.fetchval(
        "select completed_count > 500 from pgwake.get_queue_stats('pgwake_bench')"
    )


@pytest.mark.timeout(120)
async def test_ctrl_c_in_the_middle_leaves_nothing_either(
    connection: Connection, database: str, start_process: StartProcess
) -> None:
    before = await census(connection)
    process = await start_process(
        *("-m", "pgwake", "bench", "--quick", "--repeats", "100"), database_url=database
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
        (2, "no.json: no such file", ["--against", "no.json"]),
        (2, "in a folder that exists", ["--json", "nowhere/figures.json"]),
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


def test_the_last_run_is_that_of_the_same_database_and_size(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "bench.jsonl"
    assert history.read(path).last("d", {"jobs": 1}) is None
    later = AT + timedelta(hours=1)
    for one in (
        record(1),
        record(2, at=later),
        record(3, at=later, database="e"),
        record(4, at=later, size={"jobs": 2}),
    ):
        history.append(path, one)
    last = history.read(path).last("d", {"jobs": 1})
    assert last is not None
    assert last.figures == {"commit_ms": (2,)}


def test_a_run_is_kept_beside_lines_that_can_not_be_read(tmp_path: Path) -> None:
    path = tmp_path / "bench.jsonl"
    history.append(path, record(1))
    with path.open("ab") as file:
        file.write(b'\xff\x00\n{"record": 1}\n{"figures": {"commit_ms": [NaN]}}\n[')
    history.append(path, record(2))

    past = history.read(path)
    assert [one.figures["commit_ms"] for one in past.records] == [(1,), (2,)]
    assert past.strange_lines == 4


def test_what_is_no_history_is_refused_and_left_as_it_was(tmp_path: Path) -> None:
    path = tmp_path / "bench.jsonl"
    path.write_bytes(b"\x89PNG\n")
    with pytest.raises(ConfigurationError, match="something else"):
        history.append(path, record(1))
    assert path.read_bytes() == b"\x89PNG\n"
    with pytest.raises(InvalidArgumentError, match="no run of pgwake bench"):
        history.one(path)
    for wrong in (tmp_path, path / "bench.jsonl"):
        with pytest.raises(OSError, match=r"directory|exists"):
            history.append(wrong, record(1))


def test_a_history_that_can_not_be_used_is_told_and_no_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    path = history.state_path()
    assert path == tmp_path / "pgwake" / "bench.jsonl"

    path.mkdir(parents=True)
    assert cli_bench.last_run(record(1)) is None
    cli_bench.keep_run(record(1))
    unreadable, unkept = capfd.readouterr().err.splitlines()
    assert "can't be read, so there is nothing to compare" in unreadable
    assert "the run is not kept" in unkept

    path.rmdir()
    cli_bench.keep_run(record(1))
    with path.open("a") as file:
        file.write("mine\n")
    assert cli_bench.last_run(record(2)) == record(1)
    assert "lines that are no runs are left out: 1" in capfd.readouterr().err

    path.write_text("mine\n")
    cli_bench.keep_run(record(1))
    assert "it holds something else" in capfd.readouterr().err
    assert path.read_text() == "mine\n"
