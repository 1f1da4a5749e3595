"""The processes that run process=True handlers, each for one job at a time.

Not pebble's pool, nor that of concurrent.futures: one process that dies while it is
idle, or at an ill moment, breaks the pool for all, since they share a pipe and its lock
(pebble 5: `kill -9` of an idle one, and nothing runs any more). anyio's has no limits
and throws away what is written to the standard streams. Here each process has a socket
of its own, and what befalls it is between it and its job. They are started afresh,
never forked, since this process has threads.
"""

import asyncio
import os
import pickle
import signal
import socket
import sys
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Self, cast

from pgwake import forks
from pgwake.errors import PgwakeError
from pgwake.jobs.attempt import Attempt
from pgwake.jobs.error_reports import ReportedError, describe
from pgwake.jobs.location import ChildParts
from pgwake.jobs.registry import Handler
from pgwake.jobs.shortage import given_back
from pgwake.jobs.steps import Question, Suspend
from pgwake.processes.child import LENGTH, CallMessage, CallResult, ProcessSetup
from pgwake.settings import Settings
from pgwake.tracing import tracing

START_SECONDS = 60.0  # until a handler begins: a new process imports its module
LEAVE_SECONDS = 1.0  # that a process may take to end once nobody needs it
LAST_WORD_SECONDS = 0.1  # that what a dead process has sent may take
_CHUNK = 2**20
# Not -m: what it pickles is to be known by its module's name, not as __main__'s.
_PROGRAM = "from pgwake.processes.child import main; main()"


class _GoneError(Exception):
    """The process has ended without an answer."""


class Processes:
    """As many processes as there are process=True jobs at once, kept for the next ones.

    Args:
        settings: After how many jobs one is replaced, and what memory it may use.
        worker: Whose they are.
        parts: What each has beside its handlers.
        has_own_log: Whether this process's log is the worker's, and so theirs.
    """

    def __init__(
        self, settings: Settings, worker: str, parts: ChildParts, *, has_own_log: bool
    ) -> None:
        self._order = ProcessSetup(
            sys.path,
            worker,
            settings.dump() if has_own_log else None,
            settings.process_memory,
            parts,
        )
        opening = settings.resource_timeout * len(parts.resources)
        self._start_seconds = START_SECONDS + opening
        self._leave_seconds = LEAVE_SECONDS + opening
        self._max_jobs = settings.process_max_jobs
        self._idle: list[_Process] = []
        self._leaving: set[asyncio.Task[None]] = set()

    async def run(
        self, handler: Handler, job: Attempt, began: Callable[[Attempt, Handler], None]
    ) -> str | None:
        """Run a handler in a process; its result as JSON text.

        Cancelled, it kills the process.

        Args:
            handler: The handler.
            job: The job.
            began: Called when the handler begins.

        Raises:
            ReportedError: The attempt failed, or the process died.
            Snooze: As the handler said.
            Suspend: Its job is to sleep or wait.
        """
        assert handler.location is not None  # noqa: S101, its caller has looked
        call = CallMessage(handler.location, job, tracing.carrier())
        process = await self._begin(pickle.dumps(call))
        try:
            began(job, handler)
            answer = process.answer or await process.read(job)
        except _GoneError:
            raise await process.death() from None
        except BaseException:
            await process.kill()
            raise
        process.jobs += 1
        if answer.is_spent or process.jobs >= self._max_jobs:
            self._retire(process)
        else:
            self._idle.append(process)
        if answer.suspension is not None:
            job.begin_steps().suspension = answer.suspension
            if answer.problem is None:
                raise Suspend
        if answer.problem is not None:
            try:
                raise answer.problem
            finally:
                del answer  # this frame is in the traceback of what it holds
        return answer.result

    async def _begin(self, call: bytes) -> "_Process":
        """Have a process begin a call; one that died while it was idle is passed by."""
        while True:
            is_new = not self._idle
            if is_new:
                with given_back():
                    process = await _Process.start(self._order)
            else:
                process = self._idle.pop()
            try:
                async with asyncio.timeout(self._start_seconds):
                    await process.begin(call)
            except _GoneError:
                death = await process.death()
                if is_new:
                    raise death from None
            except TimeoutError:
                await process.kill()
                raise ReportedError(
                    "its handler's module was not imported, or its resources not"
                    f" opened, within {self._start_seconds:g} s",
                ) from None
            except BaseException:
                await process.kill()
                raise
            else:
                return process

    def _retire(self, process: "_Process") -> None:
        task = asyncio.create_task(process.leave(self._leave_seconds))
        self._leaving.add(task)
        task.add_done_callback(self._leaving.discard)

    async def close(self) -> None:
        """Let the idle ones end; those that run something end with their slots."""
        while self._idle:
            self._retire(self._idle.pop())
        if self._leaving:
            await asyncio.wait(self._leaving)


class _Process:
    """One process, and the socket to it."""

    def __init__(
        self,
        process: asyncio.subprocess.Process,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
    ) -> None:
        self._process = process
        self._dead = asyncio.ensure_future(process.wait())
        self._reader = reader
        self._writer = writer
        self.jobs = 0
        self.answer: CallResult | None = None  # of a call that could not even begin

    @classmethod
    async def start(cls, order: ProcessSetup) -> Self:
        """Start one, in a group of its own with whatever its handlers start."""
        ours, theirs = socket.socketpair()
        forks.withhold(ours)
        try:
            with theirs:
                process = await asyncio.create_subprocess_exec(
                    *(sys.executable, "-c", _PROGRAM),
                    *(str(theirs.fileno()), str(os.getpid())),
                    stdin=asyncio.subprocess.DEVNULL,
                    pass_fds=[theirs.fileno()],
                    start_new_session=True,
                )
            reader, writer = await asyncio.open_connection(sock=ours, limit=_CHUNK)
        except BaseException:
            ours.close()  # which ends it
            raise
        writer.write(pickle.dumps(order))
        return cls(process, reader, writer)

    async def begin(self, call: bytes) -> None:
        """Send a call, and wait until its handler begins.

        Raises:
            _GoneError: The process has ended.
        """
        await self._write(call)
        self.answer = cast("CallResult | None", await self._read())

    async def read(self, job: Attempt) -> CallResult:
        """Wait for the answer to the call that has begun; answer what it asks.

        Raises:
            _GoneError: The process has ended.
        """
        while not isinstance(message := await self._read(), CallResult):
            assert message is not None and job.service is not None  # noqa: S101, PT018
            answer, problem = None, None
            try:
                answer = await job.service.ask(job, message)
            except Exception as error:  # noqa: BLE001, the handler's to see
                is_ours = isinstance(error, PgwakeError)
                problem = error if is_ours else ReportedError(*describe(error))
            await self._write(pickle.dumps((answer, problem)))
        return message

    async def _write(self, data: bytes) -> None:
        try:
            self._writer.write(data)
            await self._writer.drain()
        except OSError:
            raise _GoneError from None

    async def _read(self) -> CallResult | Question[Any] | None:
        answer = asyncio.ensure_future(self._receive())
        try:
            await asyncio.wait({answer, self._dead}, return_when="FIRST_COMPLETED")
            if not answer.done():
                # Dead, but not its socket: a process that it has forked has that too.
                await asyncio.wait({answer}, timeout=LAST_WORD_SECONDS)
            if answer.done():
                return answer.result()
            raise _GoneError
        finally:
            answer.cancel()

    async def _receive(self) -> CallResult | Question[Any] | None:
        try:
            (length,) = LENGTH.unpack(await self._reader.readexactly(LENGTH.size))
            data = await self._reader.readexactly(length)
            answer: CallResult | Question[Any] | None = pickle.loads(data)  # noqa: S301, our own child's
        except (OSError, EOFError):
            raise _GoneError from None
        return answer

    async def death(self) -> ReportedError:
        """Wait until it is dead, and say why."""
        await self.kill()
        code = self._dead.result()
        how = f"by {_signal_name(-code)}" if code < 0 else f"with exit code {code}"
        return ReportedError(f"its process ended {how}", None, "crashed")

    async def kill(self) -> None:
        """Kill it with all that it has started, and wait until it is dead."""
        self._writer.close()
        with suppress(ProcessLookupError, PermissionError):  # they are gone
            os.killpg(self._process.pid, signal.SIGKILL)
        while not self._dead.done():
            # Cancelled once more it must wait all the same: until then it runs.
            with suppress(asyncio.CancelledError):
                await asyncio.shield(self._dead)

    async def leave(self, seconds: float) -> None:
        """Let it end by itself; kill it when it takes too long."""
        self._writer.close()
        await asyncio.wait({self._dead}, timeout=seconds)
        await self.kill()


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
