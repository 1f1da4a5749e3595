"""Worker processes of the tests, their logs, and what their handlers note."""

import asyncio
import contextlib
import json
import os
import signal
import sys
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple, Protocol, TypeAlias

from support import CHECKOUT, PATIENCE, wait_for
from support.worker.helpers import Row


class Diary:
    """What handlers have noted in a file, whatever became of their process."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def entries(self, **fields: Any) -> list[Row]:
        """The notes with these fields, in order."""
        if not self.path.exists():
            return []
        notes = map(json.loads, self.path.read_text().splitlines())
        return [note for note in notes if fields.items() <= note.items()]

    async def has(
        self, count: int = 1, within: float = PATIENCE, **fields: Any
    ) -> list[Row]:
        """Wait for so many notes with these fields."""

        async def are_there() -> bool:
            return len(self.entries(**fields)) >= count

        await wait_for(are_there, within)
        return self.entries(**fields)


class WorkerProcess:
    """A real process, `python -m pgwake run` or another, and its log."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process
        self.pid = process.pid
        self.lines: list[Row] = []
        self._news = asyncio.Event()
        self._reader = asyncio.create_task(self._read())

    @classmethod
    async def start(
        cls, *arguments: str, directory: Path, environment: Mapping[str, str]
    ) -> "WorkerProcess":
        """Start `python` with these arguments; its log is JSON on standard error."""
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            *arguments,
            cwd=directory,
            env=clean_environment(environment),
            stdin=asyncio.subprocess.DEVNULL,
            stderr=asyncio.subprocess.PIPE,
            start_new_session=True,
            limit=2**24,
        )
        return cls(process)

    async def _read(self) -> None:
        assert self._process.stderr is not None
        async for data in self._process.stderr:
            text = data.decode()
            sys.stdout.write(text)  # pytest shows it when the test fails
            try:
                self.lines.append(json.loads(text))
            except ValueError:
                self.lines.append({"event": text})
            self._news.set()

    def log(self, event: str, **fields: Any) -> list[Row]:
        """The lines of an event with these fields."""
        wanted = {"event": event, **fields}.items()
        return [line for line in self.lines if wanted <= line.items()]

    async def logged(
        self, event: str, count: int = 1, within: float = PATIENCE, **fields: Any
    ) -> Row:
        """Wait for the line of an event (the count-th of them); it."""
        try:
            async with asyncio.timeout(within):
                while len(self.log(event, **fields)) < count:
                    self._news.clear()
                    await self._news.wait()
        except TimeoutError:
            raise AssertionError(
                f"{event!r} {fields} not logged within {within} s"
            ) from None
        return self.log(event, **fields)[count - 1]

    async def started(self, count: int = 1) -> None:
        """Wait until its workers work."""
        await self.logged("worker started", count)

    @property
    def children(self) -> list[int]:
        """The process ids of the worker processes that it has started, in order."""
        return [line["pid"] for line in self.log("process started")]

    def send(self, number: signal.Signals) -> None:
        """Send a signal to the supervisor."""
        self._process.send_signal(number)

    async def exit_code(self, within: float = PATIENCE) -> int:
        """Wait for its end."""
        async with asyncio.timeout(within):
            code = await self._process.wait()
            await self._reader
        return code

    async def close(self) -> None:
        """End it, politely at first."""
        for seconds in (0.3, 3):  # the second signal means at once
            if self._process.returncode is None:
                self.send(signal.SIGTERM)
                with contextlib.suppress(TimeoutError):
                    await self.exit_code(seconds)
        await self.kill()

    async def kill(self) -> None:
        """End it at once, and whatever it has started."""
        if self._process.returncode is None:
            self.send(signal.SIGKILL)
        while not self._reader.done():  # a child holds its output open
            for child in self.children:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(child, signal.SIGKILL)
            await asyncio.wait({self._reader}, timeout=0.05)
        await self.exit_code()


def clean_environment(environment: Mapping[str, str]) -> dict[str, str]:
    """This process's environment without settings of pgwake's, and with these."""
    inherited = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("PGWAKE_", "PG", "DATABASE_URL"))
    }
    path = os.pathsep.join(
        filter(None, [str(CHECKOUT / "tests"), inherited.get("PYTHONPATH")])
    )
    return {**inherited, "PYTHONPATH": path, **environment}


class Answer(NamedTuple):
    """How a command ended."""

    code: int
    output: str
    errors: str

    @property
    def json(self) -> Any:
        """What a command that did well has printed."""
        assert self.code == 0, self
        return json.loads(self.output)


Pgwake: TypeAlias = Callable[..., Awaitable[Answer]]


class StartProcess(Protocol):
    """What the fixtures `start_worker` and `start_application` are."""

    async def __call__(self, *arguments: str, **settings: object) -> WorkerProcess: ...


def is_alive(pid: int) -> bool:
    """Whether there is such a process, and it has not ended."""
    try:
        status = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return False
    return status.rpartition(")")[2].split()[0] not in "ZX"


async def gone(pid: int, within: float = PATIENCE) -> None:
    """Wait for the end of a process that is not a child of this one."""

    async def is_gone() -> bool:
        return not is_alive(pid)

    await wait_for(is_gone, within)
