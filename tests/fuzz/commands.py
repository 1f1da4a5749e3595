"""The door of the command line: every command and option of Typer's own tree.

In this process, through main(), as the script does; what runs until it is told to stop,
and one in a hundred others, in processes of their own.
"""

import io
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest.mock import patch

import click
import typer
from hypothesis import strategies as st

from pgwake import cli

from . import values, verdict
from .stage import Stage

SECONDS = 20  # in which a command has to be over
EXIT_CODES = {0, 1, 2, 75, 78}  # as pgwake.cli has them
OWN_CODES = {"doctor": {0, 2, 3, 4, 78}}
SERVING = {"run", "serve"}  # until they are told to stop
LEFT_OUT = {
    "bench": "loads a database",
    "chaos": "loads a database",
    "demo": "starts a server and runs for seconds",
}
LASTING = {"--watch"}  # until Ctrl-C
BRIEF = st.sampled_from(["0", "0.1", "-1", "nan", "soon", "1e400", ""])

VALUES: values.Text = st.one_of(
    values.NAME,
    values.ID,
    st.integers(-1, 30).map(str),
    st.sampled_from(values.WORDS),
    values.TEXT,
    values.INTEGER,
    values.FLOAT,
    values.TIME,
    values.JSON_OBJECT,
).map(lambda text: text.replace("\0", "\N{SYMBOL FOR NULL}"))  # no argument has NUL
PROCESS_VALUES = VALUES.filter(lambda text: len(text) < 10_000)


@dataclass(frozen=True, slots=True)
class Line:
    """A command line."""

    words: Sequence[str]
    stdin: bytes
    in_process: bool

    def __str__(self) -> str:
        shown = (f"{word!r:.300}" for word in self.words)
        return f"pgwake {' '.join(shown)} <<< {self.stdin!r:.200}"


@dataclass(frozen=True, slots=True)
class Command:
    words: tuple[str, ...]
    arguments: int
    options: Sequence[tuple[str, bool]]  # and whether it takes a value


def _commands(group: click.Group, words: tuple[str, ...] = ()) -> Iterator[Command]:
    for name, command in group.commands.items():
        if isinstance(command, click.Group):
            yield from _commands(command, (*words, name))
        elif name not in LEFT_OUT:
            options = [
                (flag, not (one.is_flag or one.count))
                for one in command.params
                if isinstance(one, click.Option)
                for flag in (*one.opts, *one.secondary_opts)
                if flag not in LASTING
            ]
            arguments = [p for p in command.params if isinstance(p, click.Argument)]
            yield Command((*words, name), len(arguments), options)


@st.composite
def _lines(draw: st.DrawFn, commands: Sequence[Command]) -> Line:
    command = draw(st.sampled_from(commands))
    count = command.arguments if draw(st.integers(0, 4)) else draw(st.integers(0, 3))
    words = [draw(VALUES) for _ in range(count)]
    for flag, takes_value in draw(
        st.lists(st.sampled_from(command.options), max_size=4, unique=True)
    ):
        if flag == "--database-url" and draw(st.integers(0, 3)):
            continue  # else little reaches the database
        words.append(flag)
        if takes_value:
            words.append(draw(BRIEF if flag == "--timeout" else VALUES))
    names = [flag for flag, _ in command.options]
    if "--timeout" in names and "--timeout" not in words:
        words += ["--timeout", "0.1"]
    if command.words == ("cancel",) and "--queue" not in words:
        words += ["--queue", "fuzz"]  # all queues' would be the good jobs' too
    if "--yes" in names and draw(st.booleans()):
        words.append("--yes")
    stdin = draw(st.one_of(values.JSON.map(_bytes), st.binary(max_size=20)))
    return Line((*command.words, *words), stdin, draw(st.integers(0, 99)) > 0)


def _bytes(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")


class _HangError(BaseException):
    """A command is not over in time."""


class Commands:
    """What people and scripts type."""

    name = "cli"

    def __init__(self, stage: Stage) -> None:
        tree = typer.main.get_command(cli.app)
        assert isinstance(tree, click.Group)
        commands = list(_commands(tree))
        assert len(commands) > 20, "the tree has no commands"
        self.inputs = _lines([one for one in commands if one.words[0] not in SERVING])
        self._folder = stage.folder
        self._environment = {
            name: value
            for name, value in os.environ.items()
            if not name.startswith("PGWAKE_") and name != "DATABASE_URL"
        } | {"PGWAKE_DATABASE_URL": stage.owner_url}

    def put(self, line: Line) -> str:
        """Type it; its exit code."""
        run = self._main if line.in_process else self._process
        code, output, errors = run(line)
        if "Traceback" in errors + output:
            verdict.fault("a traceback", errors)
        if code not in OWN_CODES.get(line.words[0], EXIT_CODES):
            verdict.fault(f"exit code {code}", errors)
        if not _is_printable(output + errors):
            verdict.fault("it drives the terminal", repr(output + errors))
        if code == 0:
            return verdict.ACCEPTED
        if not (errors.strip() or line.words[0] in OWN_CODES):
            verdict.fault(f"exit code {code} without a word", output)
        return f"exit code {code}"

    def _main(self, line: Line) -> tuple[int, str, str]:
        output, errors = io.BytesIO(), io.BytesIO()
        code: Any = 0
        with (
            patch.dict(os.environ, self._environment, clear=True),
            patch.object(sys, "argv", ["pgwake", *line.words]),
            patch.object(sys, "stdin", io.TextIOWrapper(io.BytesIO(line.stdin), "utf-8")),
            redirect_stdout(io.TextIOWrapper(output, "utf-8", write_through=True)),
            redirect_stderr(
                io.TextIOWrapper(errors, "utf-8", "backslashreplace", write_through=True)
            ),
            _in(self._folder),
            _deadline(),
        ):
            try:
                cli.main()
            except SystemExit as error:
                code = error.code
            except _HangError:
                verdict.fault(f"not over within {SECONDS} s", "")
            except Exception as error:  # noqa: BLE001, each is a fault
                raise verdict.Fault(f"{type(error).__name__}: {error}") from error
        return (
            code or 0,
            output.getvalue().decode(errors="replace"),
            errors.getvalue().decode(errors="replace"),
        )

    def _process(self, line: Line) -> tuple[int, str, str]:
        done = subprocess.run(
            [sys.executable, "-m", "pgwake", *map(_argument, line.words)],
            input=line.stdin,
            env=self._environment,
            cwd=self._folder,
            capture_output=True,
            check=False,
            timeout=SECONDS,
        )
        return (
            done.returncode,
            done.stdout.decode(errors="replace"),
            done.stderr.decode(errors="replace"),
        )

    def close(self) -> None:
        """Nothing is held."""


def _argument(word: str) -> bytes:
    return word[:10_000].encode("utf-8", "surrogatepass")


def _is_printable(text: str) -> bool:
    """Whether nothing in a text drives a terminal."""
    return all(c.isprintable() or c in "\n\t" for c in text)


@contextmanager
def _in(folder: Path) -> Iterator[None]:
    before = Path.cwd()
    os.chdir(folder)
    try:
        yield
    finally:
        os.chdir(before)


@contextmanager
def _deadline() -> Iterator[None]:
    def stop(*_: object) -> None:
        raise _HangError

    before = signal.signal(signal.SIGALRM, stop)
    signal.alarm(SECONDS)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)
