"""Jobs that are done by a command: the payload on its stdin, its exit code decides.

| exit code | the job |
| --- | --- |
| 0 | is completed, with stdout as its result: JSON if it is that, else text |
| 64, 65 (EX_USAGE, EX_DATAERR) | is a dead letter at once |
| 75 (EX_TEMPFAIL), every other | has failed this attempt; the next after the backoff |

The end of stderr is kept with the failure. A command has a process group of its own,
which is killed when the command has ended, or its worker.
"""

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Collection, Coroutine, Sequence
from contextlib import suppress
from typing import Any, cast

from pgwake import forks
from pgwake.jobs.job import Job
from pgwake.jobs.outcomes import Discard, Retry
from pgwake.jobs.shortage import given_back
from pgwake.kinds import orphan_killer
from pgwake.kinds.result_body import MAX_BYTES, result_of
from pgwake.tracing import tracing

EX_USAGE, EX_DATAERR = 64, 65
ERROR_BYTES = 1500  # of stderr
DRAIN_SECONDS = 1.0  # that somebody may hold stdout open after the command's end
# It begins once it may: when its worker dies before, read finds the end of stdin.
_GATE = ("/bin/sh", "-c", 'read -r PGWAKE_GO && exec "$@"', "sh")
_SECRETS = ("PG", "DATABASE_URL")  # PGPASSWORD, PGWAKE_DATABASE_URL, ...


class OrphanKiller:
    """The process that kills the groups of commands should this one die.

    What has left its group (setsid) is not covered.
    """

    def __init__(self) -> None:
        self._groups: set[int] = set()
        self._process: subprocess.Popen[bytes] | None = None

    def watch(self, group: int) -> None:
        """Kill this group too."""
        self._groups.add(group)
        if self._told(f"+{group}\n"):
            return
        # Isolated: nothing in the environment is to be imported.
        self._process = subprocess.Popen(
            [sys.executable, "-I", "-S", orphan_killer.__file__],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        assert self._process.stdin is not None  # noqa: S101
        forks.withhold(self._process.stdin)
        self._write("".join(f"+{group}\n" for group in self._groups))

    def forget(self, group: int) -> None:
        """Leave it alone: it has ended."""
        self._groups.discard(group)
        self._told(f"-{group}\n")

    def _told(self, line: str) -> bool:
        if self._process is not None and self._process.poll() is None:
            with suppress(BrokenPipeError):
                self._write(line)
                return True
        return False

    def _write(self, lines: str) -> None:
        assert self._process is not None  # noqa: S101
        assert self._process.stdin is not None  # noqa: S101
        self._process.stdin.write(lines.encode())
        self._process.stdin.flush()


class Command:
    """The handler of a kind that a command does.

    Args:
        words: The program, by its path, and its arguments; no shell reads them.
        grace: Seconds from SIGTERM to SIGKILL.
        kept: Variables that it gets though they may be secrets of the worker's.
        orphan_killer: Who kills it when this process dies.
    """

    def __init__(
        self,
        words: Sequence[str],
        *,
        grace: float,
        kept: Collection[str],
        orphan_killer: OrphanKiller,
    ) -> None:
        self._words = words
        self._grace = grace
        self._orphan_killer = orphan_killer
        self._environment = {
            name: value
            for name, value in os.environ.items()
            if name in kept or not name.startswith(_SECRETS)
        }

    async def handle(self, /, job: Job, **_: Any) -> Any:
        """Run the command; what it printed."""
        loop = asyncio.get_running_loop()
        try:
            with given_back():
                transport, run = await loop.subprocess_exec(
                    _Run,
                    *_GATE,
                    *self._words,
                    start_new_session=True,
                    env=self._environment | _facts(job),
                )
        except OSError as error:
            told = f"{type(error).__name__}: {error}"
            raise Retry(reason=told) from None
        group = transport.get_pid()
        try:
            with given_back():
                self._orphan_killer.watch(group)
            run.send_stdin(transport, b"\n" + job.payload_text.encode())
            await run.exited.wait()
            with suppress(TimeoutError):
                async with asyncio.timeout(DRAIN_SECONDS):
                    await run.closed.wait()
        finally:
            await _to_the_end(self._end(run, group))
            run.close(transport)
            self._orphan_killer.forget(group)
        code = transport.get_returncode()
        assert code is not None  # noqa: S101, it has exited
        if code == 0:
            return result_of(bytes(run.output), is_json=True)
        errors = run.errors.decode(errors="replace").strip()
        told = f"{_name(code)}: {errors}".removesuffix(": ")
        if code in (EX_USAGE, EX_DATAERR):
            raise Discard(told)
        raise Retry(reason=told)

    async def _end(self, run: "_Run", group: int) -> None:
        """End what is left of the group: the command itself politely."""
        if not run.exited.is_set():
            _signal(group, signal.SIGTERM)
            with suppress(TimeoutError):
                async with asyncio.timeout(self._grace):
                    await run.exited.wait()
        _signal(group, signal.SIGKILL)
        await run.exited.wait()


class _Run(asyncio.SubprocessProtocol):
    """What a command prints: the beginning of stdout, the end of stderr.

    All of it is received, so that the command can go on, and the rest dropped. Not by
    asyncio's streams: their wait() waits for whoever else holds stdout.
    """

    def __init__(self) -> None:
        self.output = bytearray()
        self.errors = bytearray()
        self.exited = asyncio.Event()
        self.closed = asyncio.Event()
        self._open = {0, 1, 2}

    def send_stdin(self, transport: asyncio.SubprocessTransport, data: bytes) -> None:
        """Write its stdin, as fast as it reads; it need not."""
        stdin = _stdin(transport)
        if not stdin.is_closing():  # it may be over already
            stdin.write(data)
            stdin.close()  # once it is written

    def close(self, transport: asyncio.SubprocessTransport) -> None:
        """Close the pipes, whoever else holds their other ends."""
        if 0 in self._open:
            _stdin(transport).abort()
        transport.close()

    def pipe_data_received(self, fd: int, data: bytes) -> None:
        if fd == 1:
            self.output += data[: max(MAX_BYTES + 1 - len(self.output), 0)]
        else:
            self.errors = (self.errors + data)[-ERROR_BYTES:]

    def pipe_connection_lost(self, fd: int, exc: Exception | None) -> None:  # noqa: ARG002
        self._open.discard(fd)
        if not self._open & {1, 2}:
            self.closed.set()

    def process_exited(self) -> None:
        self.exited.set()


def _stdin(transport: asyncio.SubprocessTransport) -> asyncio.WriteTransport:
    return cast("asyncio.WriteTransport", transport.get_pipe_transport(0))


async def _to_the_end(work: Coroutine[Any, Any, None]) -> None:
    """Await it, however often this task is cancelled meanwhile."""
    task = asyncio.ensure_future(work)
    cancelled = False
    while not task.done():
        try:
            await asyncio.shield(task)
        except asyncio.CancelledError:
            cancelled = True
    task.result()
    if cancelled:
        raise asyncio.CancelledError


def _signal(group: int, number: signal.Signals) -> None:
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(group, number)


def _facts(job: Job) -> dict[str, str]:
    facts = {
        "ID": str(job.id),
        "KIND": job.kind,
        "QUEUE": job.queue,
        "ATTEMPT": str(job.attempt),
        "MAX_ATTEMPTS": "" if job.max_attempts is None else str(job.max_attempts),
        "CREATED_AT": job.created_at.isoformat(),
        "METADATA": job.metadata or "",
    }
    # As OpenTelemetry passes context to a process.
    span = {name.upper(): value for name, value in tracing.carrier().items()}
    return {f"PGWAKE_JOB_{name}": value for name, value in facts.items()} | span


def _name(code: int) -> str:
    if code >= 0:
        return f"exit code {code}"
    try:
        return f"killed by {signal.Signals(-code).name}"
    except ValueError:
        return f"killed by signal {-code}"
