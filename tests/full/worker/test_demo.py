import io
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psycopg
from rich.console import Console
from rich.live import Live

from pgwake.cli.demo.command import LOOK_AROUND, Display, frame

CHECKS = ("files", "results", "flaky", "doomed", "killer", "delayed", "cancelled")


@contextmanager
def demo(
    directory: Path, *flags: str, **environment: str
) -> Iterator[subprocess.Popen[str]]:
    """Run the command where no .env and no variable of ours is in its way."""
    others = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith("PGWAKE_") and name != "DATABASE_URL"
    }
    with subprocess.Popen(
        [sys.executable, "-m", "pgwake", "demo", *flags],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        cwd=directory,
        env=others | environment,
    ) as process:
        try:
            yield process
        finally:
            process.terminate()


def read_until(process: subprocess.Popen[str], word: str) -> str:
    assert process.stdout is not None
    text = ""
    for line in process.stdout:
        text += line
        if word in line:
            return text
    raise AssertionError(f"ended without {word!r}:\n{text}")


def assert_all_holds(output: str) -> None:
    for name in CHECKS:
        assert f"  ok      {name:<10}" in output, output
    assert "FAILED" not in output


def test_it_proves_itself_on_a_server_of_its_own(
    tmp_path: Path, binaries: Path
) -> None:
    with demo(tmp_path, PGWAKE_PG_BIN=str(binaries)) as process:
        output, _ = process.communicate()
    assert process.returncode == 0, output
    assert_all_holds(output)
    assert LOOK_AROUND.splitlines()[0] in output
    assert "In your project: pip install pgwake" in output
    directory = output.partition(" of its own in ")[2].split()[0]
    assert not Path(directory).exists()


def test_it_can_be_kept_on_a_given_database_for_jobs_of_ones_own(
    tmp_path: Path, binaries: Path, database: str
) -> None:
    environment = {"PGWAKE_DATABASE_URL": database}
    with psycopg.connect(database, autocommit=True) as connection:
        connection.execute("insert into pgwake.jobs (kind) values ('hello')")
        with demo(tmp_path, "--keep", **environment) as process:
            output = read_until(process, "Ctrl-C")
            assert_all_holds(output)
            assert ":owner@" not in output  # the password

            [line] = [line for line in output.splitlines() if "insert into" in line]
            path = f"{binaries}:{os.environ['PATH']}"
            shell = os.environ | environment | {"PATH": path}
            subprocess.run(["bash", "-c", line], check=True, env=shell)
            assert "name=you" in read_until(process, "hello")

            process.send_signal(signal.SIGINT)
            output, _ = process.communicate()
        assert process.returncode == 0, output
        assert "The jobs stay in the database" in output
        for statement in LOOK_AROUND.split(";")[:-1]:
            assert connection.execute(statement.encode()).fetchall()
        left = connection.execute("select queue, status from pgwake.jobs_live")
        assert left.fetchall() == [("default", "pending")]


def test_a_signal_stops_it_and_cancels_what_has_not_run(
    tmp_path: Path, database: str
) -> None:
    with demo(tmp_path, PGWAKE_DATABASE_URL=database) as process:
        read_until(process, "  jobs ")
        process.terminate()
        output, _ = process.communicate()
    assert process.returncode == 128 + signal.SIGTERM, output
    assert "jobs had not run and are cancelled" in output
    with psycopg.connect(database) as connection:
        live = connection.execute("select count(*) from pgwake.jobs_live")
        assert live.fetchone() == (0,)
        sessions = connection.execute(
            "select application_name from pg_stat_activity"
            " where datname = current_database() and pid <> pg_backend_pid()"
        )
        assert sessions.fetchall() == []


def test_on_a_terminal_the_counts_are_live() -> None:
    file = io.StringIO()
    console = Console(file=file, force_terminal=True, width=80)
    counts = dict.fromkeys(("pending", "running", "failed", "cancelled"), 1)
    with Live(console=console, auto_refresh=False) as live:
        live.update(frame({**counts, "completed": 2, "jobs/s": 5}), refresh=True)
        live.update(frame({**counts, "completed": 1234, "jobs/s": 5}), refresh=True)
    assert "jobs/s" in file.getvalue()
    assert "1,234" in file.getvalue()


def test_what_is_shown_cannot_drive_the_terminal() -> None:
    file = io.StringIO()
    Display(Console(file=file)).line("a\x1b[2J[bold]b")
    assert file.getvalue() == "  a\N{REPLACEMENT CHARACTER}[2J[bold]b\n"
