"""pgwake bench: its figures, what it compares them with, and what it leaves behind."""

import json
import signal
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from pgwake.bench import history
from pgwake.bench.history import Record
from pgwake.bench.report import FIGURES, verdict
from pgwake.errors import ConfigurationError, InvalidArgumentError
from sql.helpers import insert
from support import Connection, wait_for
from worker.helpers import PATIENCE
from worker.processes import Pgwake, StartProcess
from worker.scratch import census

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


@pytest.mark.timeout(120)
async def test_it_shows_every_figure_compares_and_leaves_nothing(
    connection: Connection, pgwake: Pgwake, tmp_path: Path
) -> None:
    await insert(connection)
    before = await census(connection)
    foreign = tmp_path / "foreign" / "pgwake" / "bench.jsonl"
    foreign.parent.mkdir(parents=True)
    foreign.write_text("mine\n")

    first = await pgwake(
        *(*SMALL, "--json", str(tmp_path / "first.json")),
        XDG_STATE_HOME=str(tmp_path / "foreign"),
    )
    assert first.code == 0, first
    figures = json.loads((tmp_path / "first.json").read_text())["figures"]
    assert figures.keys() == FIGURES.keys()
    for name, (value,) in figures.items():
        assert value > 0, name
        assert FIGURES[name].title.strip() in first.output
    assert "queue pgwake_bench" in first.output
    assert "the first run" in first.output
    assert f"{foreign}: lines that are no runs are left out: 1" in first.errors
    assert "is not kept" in first.errors
    assert foreign.read_text() == "mine\n"
    assert await census(connection) == before

    second = await pgwake(
        *(*SMALL, "--against", str(tmp_path / "first.json")),
        XDG_STATE_HOME=str(tmp_path / "state"),
    )
    assert (second.code, second.errors) == (0, ""), second
    assert "ratio" in second.output
    third = await pgwake(*SMALL, "--keep", XDG_STATE_HOME=str(tmp_path / "state"))
    assert (third.code, third.errors) == (0, ""), third
    assert "last: " in third.output
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
        (2, "there is no such folder", ["--json", "nowhere/figures.json"]),
        (1, "can't be reached", ["--database-url", "postgresql://u@127.0.0.1:1/d"]),
        (78, "`pgwake init`", []),
    ],
)
async def test_what_can_not_be_meant_is_told_at_once(
    code: int,
    said: str,
    flags: list[str],
    connection: Connection,
    pgwake: Pgwake,
) -> None:
    await connection.execute("drop schema pgwake cascade")
    answer = await pgwake(*SMALL, *flags)
    assert answer.code == code, answer
    assert said in " ".join(answer.errors.split())
    assert "Traceback" not in answer.errors


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
