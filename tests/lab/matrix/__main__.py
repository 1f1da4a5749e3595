"""python -m tests.lab.matrix: the suite on every PostgreSQL, Python and Django.

For each server: the SQL tests whole, and of the worker's those that show it at work
(WORKER_AT_WORK). For each Python: the worker's tests and the plugin's, on 18. For each
Django: the tests of its example, and Django's own of task backends. What is not on this
machine is fetched into .cache, and into a virtual environment each; where that can't
be, the row says why and the run has not failed by it.
"""

import os
import shutil
import subprocess
import sys
import tarfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated
from xml.etree import ElementTree as ET

import typer

CHECKOUT = Path(__file__).resolve().parents[3]
SERVERS = ["14", "15", "debian", "16", "17", "18", "19"]
PYTHONS = ["3.11", "3.12", "3.13", "3.14"]
DJANGOS = {"5.2": "3.11", "6.0": "3.12", "6.1": "3.13"}  # and which Python it runs on
# Run, woken up, restarted, stopped, crashed, asked by doctor, installed and upgraded.
WORKER_AT_WORK = [
    f"tests/full/worker/test_{name}.py"
    for name in (
        "notify_locks",
        "crashes",
        "database_faults",
        "doctor",
        "listening",
        "running_upgrades",
        "shutdown",
    )
] + [
    f"tests/core/worker/test_{name}.py"
    for name in ("operator_commands", "outcomes", "wakeups")
]


@dataclass(frozen=True, slots=True)
class Row:
    """What came of one run.

    Attributes:
        name: Of the server, the Python or the Django, as it was asked for.
        passed: How many tests did.
        failed: How many did not.
        seconds: How long it took.
        reason: Why it was not run; empty if it was.
    """

    name: str
    passed: int = 0
    failed: int = 0
    seconds: float = 0
    reason: str = ""

    def __str__(self) -> str:
        if self.reason:
            return f"{self.name:18} not run: {self.reason}"
        return f"{self.name:18} {self.passed:7} {self.failed:7} {self.seconds:8.0f}"


class MissingError(Exception):
    """It can't be had on this machine; the message says why."""


def main(
    pg: Annotated[str, typer.Option(help="Servers: 14,17,debian")] = "",
    python: Annotated[str, typer.Option(help="Pythons: 3.12,3.13")] = "",
    django: Annotated[str, typer.Option(help="Djangos: 5.2,6.0")] = "",
    processes: Annotated[int, typer.Option("-n", help="Of pytest.")] = 2,
    keep_going: Annotated[
        bool, typer.Option("--keep-going", help="After one that failed.")
    ] = False,
) -> None:
    """Run all, or what is named, and print a table; exit code 1 if anything failed."""
    rows: list[Row] = []
    everything = not (pg or python or django)
    servers, pythons, djangos = (
        _chosen(words, known, everything=everything)
        for words, known in ((pg, SERVERS), (python, PYTHONS), (django, [*DJANGOS]))
    )
    for row in _rows(servers, pythons, djangos, processes):
        rows.append(row)
        typer.echo(row, err=True)
        if row.failed and not keep_going:
            break
    typer.echo(f"\n{'':18} {'passed':>7} {'failed':>7} {'seconds':>8}")
    typer.echo("\n".join(map(str, rows)))
    sys.exit(any(row.failed for row in rows))


def _chosen(words: str, known: Sequence[str], *, everything: bool) -> Sequence[str]:
    chosen = known if everything else [*filter(None, words.split(","))]
    for unknown in {*chosen} - {*known}:
        raise typer.BadParameter(f"{unknown}: not one of {', '.join(known)}")
    return chosen


def _rows(
    servers: Sequence[str],
    pythons: Sequence[str],
    djangos: Sequence[str],
    processes: int,
) -> Iterator[Row]:
    for server in servers:
        name = "Debian's" if server == "debian" else f"PostgreSQL {server}"
        if server == "debian" and not shutil.which("apt-get"):
            yield Row(name, reason="there is no apt-get")
            continue
        try:
            if server not in {"18", "debian"}:
                _unpack(f"postgresql-{server}")
        except MissingError as error:
            yield Row(name, reason=str(error))
            continue
        paths = ["tests/core/sql", "tests/full/sql", *WORKER_AT_WORK]
        yield _run(name, ["--pg", server, "--many", "1000000", *paths], processes)
    for version in pythons:
        try:
            environment = _environment(interpreter(version), version)
        except MissingError as error:
            yield Row(f"Python {version}", reason=str(error))
            continue
        paths = [
            f"tests/{part}/{room}"
            for part in ("core", "full")
            for room in ("worker", "plugin")
        ]
        yield _run(f"Python {version}", paths, processes, environment)
    for version in djangos:
        name = f"Django {version}"
        try:
            environment = _with_django(version)
        except MissingError as error:
            yield Row(name, reason=str(error))
            continue
        paths = sorted(map(str, CHECKOUT.glob("tests/full/worker/test_django*.py")))
        yield _run(name, paths, processes, environment)
        if not version.startswith("5."):
            yield _run_djangos_own(f"{name}'s own", environment)


def _run(
    name: str,
    arguments: Sequence[str],
    processes: int,
    environment: dict[str, str] = {},  # noqa: B006, never written to
) -> Row:
    typer.echo(f"\n== {name}", err=True)
    began = time.monotonic()
    with TemporaryDirectory() as folder:
        report = Path(folder, "report.xml")
        options = ["-q", "-n", str(processes)]
        subprocess.run(
            [
                str(CHECKOUT / "tests" / "run"),
                *options,
                f"--junitxml={report}",
                *arguments,
            ],
            check=False,
            env={**os.environ, **environment},
            stdout=sys.stderr,
        )
        seconds = time.monotonic() - began
        try:
            suite = ET.parse(report).getroot().find("testsuite")  # noqa: S314, our own
        except OSError:
            suite = None
    if suite is None:  # it did not come to a report
        return Row(name, failed=1, seconds=seconds)
    failed = int(suite.attrib["failures"]) + int(suite.attrib["errors"])
    passed = int(suite.attrib["tests"]) - failed - int(suite.attrib["skipped"])
    return Row(name, passed, failed, seconds)


def _environment(python: str, name: str) -> dict[str, str]:
    return {
        "PGWAKE_TEST_PYTHON": python,
        "PGWAKE_TEST_VENV": str(CHECKOUT / f".venv-tests-{name}"),
    }


def _with_django(version: str) -> dict[str, str]:
    """Make an environment of the tests that has this Django."""
    environment = _environment(interpreter(DJANGOS[version]), f"django-{version}")
    pip = [environment["PGWAKE_TEST_VENV"] + "/bin/python", "-m", "pip", "-q"]
    for command in (
        [str(CHECKOUT / "tests" / "run"), "--version"],
        [*pip, "install", f"django=={version}.*"],
    ):
        _output(command, {**os.environ, **environment})
    return environment


def _run_djangos_own(name: str, environment: dict[str, str]) -> Row:
    """Run Django's tests of task backends, which are in its source alone."""
    typer.echo(f"\n== {name}", err=True)
    began = time.monotonic()
    python = environment["PGWAKE_TEST_VENV"] + "/bin/python"
    version = _output([python, "-c", "import django; print(django.__version__)"])
    source = CHECKOUT / ".cache" / f"django-{version}"
    try:
        if not source.exists():
            pip = [python, "-m", "pip", "-q", "download", "--no-deps", "--no-binary"]
            _output([*pip, "django", f"django=={version}", "-d", str(source.parent)])
            with tarfile.open(f"{source}.tar.gz") as archive:
                archive.extractall(source.parent, filter="data")
    except MissingError as error:
        return Row(name, reason=str(error))
    own = [python, "-m", "tests.lab.matrix.django_backends", str(source / "tests")]
    result = subprocess.run(own, check=False, stdout=subprocess.PIPE, cwd=CHECKOUT)
    try:
        passed, failed = map(int, result.stdout.split()[-2:])
    except ValueError:  # it did not come to a report
        passed, failed = 0, 1
    return Row(name, passed, failed, time.monotonic() - began)


def interpreter(version: str) -> str:
    """Find a Python of this version, or fetch it, and return its program.

    Raises:
        MissingError: It can't be had.
    """
    pyenv = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv"))
    found = [
        shutil.which(f"python{version}"),
        *pyenv.glob(f"versions/{version}.*/bin/python"),
    ]
    for candidate in map(str, filter(None, found)):
        # Run, not only found: pyenv has a shim for versions that are not switched on.
        probe = [candidate, "-c", "import ensurepip, venv"]
        if not subprocess.run(probe, check=False, capture_output=True).returncode:
            return candidate
    if version == "3.14":
        return _unpack("python-3.14") + "/python3.14"
    raise MissingError(f"there is no python{version} on PATH, and none of pyenv's")


def _unpack(program: str) -> str:
    return _output([str(CHECKOUT / "tests" / "unpack"), program])


def _output(
    command: Sequence[str], environment: Mapping[str, str] | None = None
) -> str:
    """Return what a command prints, which makes what a row needs."""
    result = subprocess.run(
        command,
        check=False,
        capture_output=True,
        text=True,
        cwd=CHECKOUT,
        env=environment,
    )
    if result.returncode:
        lines = result.stderr.strip().splitlines() or ["it can't be had here"]
        raise MissingError(lines[-1])
    return result.stdout.strip()


if __name__ == "__main__":
    typer.run(main)
