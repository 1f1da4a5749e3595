"""What the tests of the worker share: worker processes, diaries, waits for jobs."""

import asyncio
import contextlib
import json
import os
import signal
import sys
import time
from collections.abc import Mapping
from http.client import HTTPConnection
from pathlib import Path
from typing import Any, NamedTuple, Protocol, TypeAlias

from prometheus_client.metrics_core import Metric
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.samples import Sample

from pgwake import Registry, Settings, Worker
from sql.helpers import job
from support import CHECKOUT, Connection, wait_for

Row: TypeAlias = dict[str, Any]

ENDED = ("completed", "failed", "cancelled")
PATIENCE = 20.0  # seconds; what takes longer on a busy machine is broken


def settings(url: str, **changes: Any) -> Settings:
    """Settings under which nothing but a wake-up or a timer can start a job."""
    given = {
        "database_url": url,
        "http_port": 0,
        "poll_interval": 3600,
        "grace": 10,
        "cancel_grace": 1,
        **changes,
    }
    return Settings.load(**given)


def embedded(url: str, registry: Registry, **changes: Any) -> Worker:
    """A worker for this process, to be entered."""
    return Worker(settings(url, **changes), registry)


async def ended(connection: Connection, job_id: int, within: float = PATIENCE) -> Row:
    """Wait for the end of a job; its row."""

    async def is_over() -> bool:
        return (await job(connection, job_id))["status"] in ENDED

    try:
        await wait_for(is_over, within)
    except AssertionError:
        row = await job(connection, job_id)
        raise AssertionError(f"not ended within {within} s: {row}") from None
    return await job(connection, job_id)


async def all_ended(connection: Connection, within: float = PATIENCE) -> None:
    """Wait until no job is live."""

    async def none_is_live() -> bool:
        return not await connection.fetchval(
            "select exists (select from pgwake.jobs_live)"
        )

    await wait_for(none_is_live, within)


async def in_status(
    connection: Connection, job_id: int, status: str, within: float = PATIENCE
) -> Row:
    """Wait until a job has a status; its row."""

    async def has_it() -> bool:
        return bool((await job(connection, job_id))["status"] == status)

    await wait_for(has_it, within)
    return await job(connection, job_id)


def reasons(row: Row) -> list[str]:
    """Why the attempts of a job failed, in order."""
    return [error["reason"] for error in row["errors"] or ()]


async def sessions(connection: Connection) -> list[Row]:
    """The sessions of workers and supervisors in this database."""
    rows = await connection.fetch(
        "select pid, application_name, query, state, backend_start"
        " from pg_stat_activity where datname = current_database()"
        " and application_name like 'pgwake:%'"
    )
    return [dict(row) for row in rows]


class Samples:
    """What /metrics shows."""

    def __init__(self, text: bytes | str) -> None:
        text = text if isinstance(text, str) else text.decode()
        self._families: dict[str, Metric] = {
            family.name: family for family in text_string_to_metric_families(text)
        }
        self.types = {name: family.type for name, family in self._families.items()}

    def _samples(self, name: str, labels: dict[str, str]) -> list[Sample]:
        family = self._families[name]
        suffixes = {"counter": "_total", "histogram": "_count"}
        wanted = name + suffixes.get(family.type, "")
        return [
            sample
            for sample in family.samples
            if sample.name == wanted and labels.items() <= sample.labels.items()
        ]

    def total(self, name: str, **labels: str) -> float:
        """The sum over all samples with these labels; a histogram's count."""
        return sum(sample.value for sample in self._samples(name, labels))

    def label_values(self, name: str, label: str) -> set[str]:
        """The values that a label has."""
        return {sample.labels[label] for sample in self._samples(name, {})}


class Page(NamedTuple):
    """An answer by HTTP."""

    status: int
    text: str


def fetch_blocking(port: int, path: str) -> Page:
    """Ask a worker by HTTP, and block the loop meanwhile."""
    connection = HTTPConnection("127.0.0.1", port, timeout=10)
    try:
        connection.request("GET", path)
        answer = connection.getresponse()
        return Page(answer.status, answer.read().decode())
    finally:
        connection.close()


async def fetch(port: int, path: str) -> Page:
    """Ask a worker by HTTP."""
    return await asyncio.to_thread(fetch_blocking, port, path)


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
        """End it, politely at first, and whatever it has started."""
        if self._process.returncode is None:
            self.send(signal.SIGCONT)
            try:
                for seconds in (0.3, 3):  # the second signal means at once
                    self.send(signal.SIGTERM)
                    with contextlib.suppress(TimeoutError):
                        await self.exit_code(seconds)
                        break
                else:
                    self.send(signal.SIGKILL)
            except ProcessLookupError:
                pass
        for child in self.children:
            with contextlib.suppress(ProcessLookupError):
                os.kill(child, signal.SIGKILL)
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


def clock() -> float:
    """The time that handlers note, comparable between processes of one machine."""
    return time.clock_gettime(time.CLOCK_MONOTONIC)
