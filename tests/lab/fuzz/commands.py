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
from unicodedata import category
from unittest.mock import patch

import typer
from hypothesis import strategies as st

from pgwake.cli import main as cli

from . import values, verdict
from .requests import BYTES
from .stage import Stage

SECONDS = 60  # in which a command has to be over
SERVING_SECONDS = 3.0  # after which one that serves is told to stop
EXIT_CODES = {0, 1, 2, 75, 78}  # as pgwake.cli has them
OWN_CODES = {"doctor": {0, 2, 3, 4, 78}}
SERVING = {"run", "serve"}  # until they are told to stop
LEFT_OUT = {
    "bench": "loads a database",
    "demo": "starts a server and runs for seconds",
    "psql": "becomes another program",
}
LEFT_OUT_OPTIONS = {
    "--watch",  # until Ctrl-C
    "--processes",  # up to 256
    "--pause",  # all queues, the good jobs' too
}
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
    values.JSON_OBJECT.filter(lambda text: len(text) < 100_000),  # as Linux has it
).map(lambda text: text.replace("\0", "\N{SYMBOL FOR NULL}"))  # no argument has NUL


@dataclass(frozen=True, slots=True)
class Line:
    """A command line, typed in this process or in one of its own."""

    words: Sequence[str]
    stdin: bytes
    is_here: bool

    def __str__(self) -> str:
        shown = (f"{word!r:.300}" for word in self.words)
        return f"pgwake {' '.join(shown)} <<< {self.stdin!r:.200}"


@dataclass(frozen=True, slots=True)
class Command:
    words: tuple[str, ...]
    arguments: int
    options: Sequence[tuple[str, bool]]  # and whether it takes a value


def _commands(tree: Any, words: tuple[str, ...] = ()) -> Iterator[Command]:
    """Every command of Typer's tree."""
    for name, command in tree.commands.items():
        if hasattr(command, "commands"):
            yield from _commands(command, (*words, name))
        elif name not in LEFT_OUT:
            parameters = command.params
            yield Command(
                (*words, name),
                sum(one.param_type_name == "argument" for one in parameters),
                [
                    (flag, not (one.is_flag or one.count))
                    for one in parameters
                    if one.param_type_name == "option"
                    for flag in (*one.opts, *one.secondary_opts)
                    if flag not in LEFT_OUT_OPTIONS
                ],
            )


@st.composite
def _lines(draw: st.DrawFn, commands: Sequence[Command]) -> Line:
    is_here = not draw(values.rarely(100))
    command = draw(
        st.sampled_from(
            [one for one in commands if not (is_here and one.words[0] in SERVING)]
        )
    )
    count = draw(values.mostly(st.just(command.arguments), st.integers(0, 3), 6))
    words = [draw(VALUES) for _ in range(count)]
    for flag, takes_value in draw(
        st.lists(st.sampled_from(command.options), max_size=4, unique=True)
    ):
        if flag == "--database-url" and not draw(values.rarely(4)):
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
    stdin = draw(BYTES)
    return Line((*command.words, *words), stdin, is_here)


class _HangError(BaseException):
    """A command is not over in time."""


class Commands:
    """What people and scripts type."""

    name = "cli"

    def __init__(self, stage: Stage) -> None:
        commands = list(_commands(typer.main.get_command(cli.application())))
        assert len(commands) > 20, "the tree has no commands"
        self.inputs = _lines(commands)
        self._folder = stage.folder
        self._environment = {
            name: value
            for name, value in os.environ.items()
            if not name.startswith("PGWAKE_") and name != "DATABASE_URL"
        } | {"PGWAKE_DATABASE_URL": stage.owner_url, "PGWAKE_HTTP_PORT": "0"}

    def put(self, line: Line) -> str:
        """Type it; its exit code."""
        run = self._main if line.is_here else self._process
        code, output, errors = run(line)
        if "Traceback" in errors + output:
            verdict.fault("a traceback", errors)
        codes = OWN_CODES.get(line.words[0], EXIT_CODES)
        if line.words[0] in SERVING:  # it may be told to stop before it has begun
            codes = codes | {-signal.SIGTERM}
        if code not in codes:
            verdict.fault(f"exit code {code}", errors)
        if any(_is_control(c) for c in output + errors):
            verdict.fault("it drives the terminal", repr(output + errors))
        if code == 0:
            return verdict.ACCEPTED
        if not (errors.strip() or output.strip()):
            verdict.fault(f"exit code {code} without a word", "")
        return f"exit code {code}"

    def _main(self, line: Line) -> tuple[int, str, str]:
        written = io.BytesIO(), io.BytesIO()
        # As the interpreter opens them: a lone surrogate is an error on stdout.
        stdin = io.TextIOWrapper(io.BytesIO(line.stdin), "utf-8", "surrogateescape")
        output = io.TextIOWrapper(written[0], "utf-8", write_through=True)
        errors = io.TextIOWrapper(
            written[1], "utf-8", "backslashreplace", write_through=True
        )
        code: Any = 0
        with (
            patch.dict(os.environ, self._environment, clear=True),
            patch.object(sys, "argv", ["pgwake", *line.words]),
            patch.object(sys, "stdin", stdin),
            redirect_stdout(output),
            redirect_stderr(errors),
            _in(self._folder),
            _deadline(),
        ):
            try:
                cli.main()
            except SystemExit as error:
                code = error.code
            except _HangError:
                verdict.fault(f"not over within {SECONDS} s", "")
            except Exception as error:
                raise verdict.FaultError(f"{type(error).__name__}: {error}") from error
        told = [stream.getvalue().decode(errors="replace") for stream in written]
        return code or 0, told[0], told[1]

    def _process(self, line: Line) -> tuple[int, str, str]:
        words = [word.encode("utf-8", "surrogatepass") for word in line.words]
        with subprocess.Popen(
            [sys.executable, "-m", "pgwake", *words],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=self._environment,
            cwd=self._folder,
        ) as process:
            try:
                told = self._communicate(process, line)
            except subprocess.TimeoutExpired:
                process.kill()
                verdict.fault(f"not over within {SECONDS} s", "")
            output, errors = (part.decode(errors="replace") for part in told)
            return process.returncode, output, errors

    def _communicate(
        self, process: "subprocess.Popen[bytes]", line: Line
    ) -> tuple[bytes, bytes]:
        if line.words[0] not in SERVING:
            return process.communicate(line.stdin, SECONDS)
        try:
            return process.communicate(line.stdin, SERVING_SECONDS)
        except subprocess.TimeoutExpired:
            process.terminate()
            return process.communicate(timeout=SECONDS)

    def close(self) -> None:
        """Nothing is held."""


def _is_control(c: str) -> bool:
    return c not in "\n\t" and category(c) == "Cc"


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
