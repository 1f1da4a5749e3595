"""A process of process=True handlers: main(), with FD and PARENT as its arguments.

It is told by a socket what to run, a call after the other, and ends when that is
closed. A call is answered twice: when the handler begins, and when it has ended. What
the handler asks of the database for its steps is sent between the two and answered. Its
resources are opened before the first call, and closed at its end.
"""

import ctypes
import functools
import os
import pickle
import resource
import signal
import socket
import struct
import sys
import threading
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, ExitStack, suppress
from importlib import import_module
from io import BufferedRWPair
from pathlib import Path
from typing import Any, NamedTuple, NoReturn

import structlog

from pgwake import forks
from pgwake.errors import ConfigurationError
from pgwake.jobs.error_reports import ReportedError, describe, report
from pgwake.jobs.job import Job
from pgwake.jobs.location import ChildParts, Location
from pgwake.jobs.middleware import Middleware, around
from pgwake.jobs.outcomes import Snooze
from pgwake.jobs.resource import Resource
from pgwake.jobs.service import Service
from pgwake.jobs.signature import Signature
from pgwake.jobs.steps import Question, Steps, Suspension, T, is_suspend
from pgwake.jsontext import dumps_result
from pgwake.observe import logs
from pgwake.settings import Settings
from pgwake.tracing import tracing

log = structlog.get_logger()

LENGTH = struct.Struct("!Q")  # before each answer
_PR_SET_PDEATHSIG = 1


class ProcessSetup(NamedTuple):
    """What a process is told first.

    Attributes:
        path: Where modules are found.
        worker: Whose process it is, for its log.
        settings: What to set up the log by; None: that is the application's.
        memory: MiB that it may use; None: no limit.
        parts: What it has beside handlers.
    """

    path: list[str]
    worker: str
    settings: dict[str, Any] | None
    memory: int | None
    parts: ChildParts


class CallMessage(NamedTuple):
    """What to run, and in which span."""

    location: Location
    job: Job
    trace: Mapping[str, str]


class CallResult(NamedTuple):
    """What became of a call.

    Attributes:
        result: The handler's, as JSON text; None: it has none.
        problem: Why the attempt did not succeed.
        is_spent: Whether the process is better replaced.
        suspension: Why its job is to leave its worker, if its handler asked for that.
    """

    result: str | None = None
    problem: ReportedError | Snooze | None = None
    is_spent: bool = False
    suspension: Suspension | None = None


class ChildJob(Job):
    """A job in this process, whose handler asks the worker by the socket."""

    __slots__ = ("service", "steps")

    def __init__(self, job: Job, link: "WorkerLink") -> None:
        Job.__init__(self, *job.__reduce__()[1])  # type: ignore[misc]  # as it pickles
        self.service: Service | None = link
        self.steps: Steps | None = None


class WorkerLink:
    """What a handler of this process may ask its worker: one call's.

    Args:
        stream: The socket.
    """

    loop: Any = None  # so that nothing async is served

    def __init__(self, stream: BufferedRWPair) -> None:
        self._stream = stream
        self._turn = threading.Lock()
        self._is_open = True

    def ask_sync(self, job: Job, question: Question[T]) -> T:
        """Have the worker ask the database; its threads take turns.

        Raises:
            ConfigurationError: The handler has ended.
            PgwakeError: As the worker has it.
        """
        with self._turn:
            if not self._is_open:
                raise ConfigurationError(f"the handler of job {job.id} has ended")
            _send(self._stream, question)
            answer, problem = pickle.load(self._stream)  # noqa: S301, our own parent's
        if problem is not None:
            raise problem
        value: T = answer
        return value

    def close(self) -> None:
        """Let nobody ask any more: what a thread asked would answer the next call."""
        with self._turn:
            self._is_open = False

    def report(self, job: Job, text: str | None) -> NoReturn:
        """Refuse what is not sent."""
        del text
        raise ConfigurationError(
            "report_progress() works in this process's worker. Here: select "
            f"pgwake.set_progress({job.id}, job.lease_id, progress)"
        )

    def _unserved(self, *_: object) -> Any:
        raise ConfigurationError("this works in async handlers")

    transaction = step_transaction = ask = parent_results = _unserved


class MemoryLimit:
    """The limit of this process's own memory, which Linux keeps.

    What is counted is the data segment: what was allocated, not what is mapped.

    Args:
        limit: MiB; None: no limit.
    """

    def __init__(self, limit: int | None) -> None:
        self._limit = limit
        self._hard = resource.getrlimit(resource.RLIMIT_DATA)[1]
        if limit is not None:
            wanted = limit << 20
            if self._hard != resource.RLIM_INFINITY:
                wanted = min(wanted, self._hard)
            resource.setrlimit(resource.RLIMIT_DATA, (wanted, self._hard))

    def exceeded(self, error: MemoryError) -> ReportedError:
        """Say that a handler has asked for more; from then on there is no limit."""
        resource.setrlimit(resource.RLIMIT_DATA, (self._hard, self._hard))
        message, trace = describe(error)
        if self._limit is not None:
            message = (
                f"MemoryError: over the {self._limit} MiB that PGWAKE_PROCESS_MEMORY"
                " allows a process"
            )
        return ReportedError(message, trace)

    @property
    def is_short(self) -> bool:
        """Whether more than half of the limit is in use while nothing runs."""
        if self._limit is None:
            return False
        with suppress(OSError):  # no /proc
            pages = int(Path("/proc/self/statm").read_text().split()[5])
            return pages * resource.getpagesize() > self._limit << 19
        return False


def main() -> None:
    """Run what is asked for until the socket is closed."""
    fd, parent = map(int, sys.argv[1:])
    _die_with(parent)
    # A signal to the whole group, or to all that a service has, is for the worker to
    # act on. Not ignored: that would be handed down to what a handler starts.
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: None)
    with (
        suppress(EOFError),  # nobody needs it any more
        socket.socket(fileno=fd) as link,
        link.makefile("rwb") as stream,
    ):
        forks.withhold(link)
        link.set_inheritable(False)
        order: ProcessSetup = pickle.load(stream)  # noqa: S301, from our own parent
        sys.path[:] = order.path
        if order.settings is not None:
            logs.configure(Settings.load(**order.settings), worker=order.worker)
        memory = MemoryLimit(order.memory)
        try:
            with ExitStack() as opened, suppress(EOFError, ConnectionError):
                _answer_calls(stream, ChildHandlers(opened), order.parts, memory)
        except Exception:
            log.exception("resource not closed")


class ChildHandlers:
    """What this process runs: handlers, with its resources and middleware.

    Args:
        opened: What closes the resources.
    """

    def __init__(self, opened: ExitStack) -> None:
        self._opened = opened
        self._values: dict[Any, Any] = {}
        self._middlewares: list[Middleware] = []
        self._handlers: dict[Location, tuple[Callable[..., Any], Signature]] = {}

    def prepare(self, parts: ChildParts) -> None:
        """Import what is to be imported first, and open the resources."""
        for module in parts.imports:
            import_module(module)
        self._middlewares = [Middleware.of(one.find()) for one in parts.middlewares]
        for location in parts.resources:
            resource = Resource.of(location.find())
            with resource.told("opened"):
                opening = resource.open(self._values)
                assert isinstance(opening, AbstractContextManager)  # noqa: S101, it is plain
                self._values[resource.type] = self._opened.enter_context(opening)

    def run(self, call: CallMessage, begin: Callable[[], None]) -> Any:
        """Run a handler; what it returns.

        Args:
            call: What to run.
            begin: Called when it begins.
        """
        function, signature = self._handler(call.location, call.job.kind)
        begin()
        with tracing.continued(call.trace):
            arguments = signature.bind(call.job.payload_text, call.job, self._values)
            handler = functools.partial(function, **arguments)
            try:
                return around(self._middlewares, [call.job], self._values, handler)()
            finally:
                forks.leave_if_forked()

    def _handler(
        self, location: Location, kind: str
    ) -> tuple[Callable[..., Any], Signature]:
        if location not in self._handlers:
            function = location.find()
            self._handlers[location] = (
                function,
                Signature.of(kind, function, self._values),
            )
        return self._handlers[location]


def _answer_calls(
    stream: BufferedRWPair,
    program: ChildHandlers,
    parts: ChildParts,
    memory: MemoryLimit,
) -> None:
    """Answer calls, one after the other, until the socket is closed."""
    prepared = _tried(functools.partial(program.prepare, parts), memory)
    begin = functools.partial(_send, stream, None)
    while True:
        call: CallMessage = pickle.load(stream)  # noqa: S301, from our own parent
        link = WorkerLink(stream)
        job = ChildJob(call.job, link)
        call = call._replace(job=job)
        answer = prepared._replace(is_spent=True)
        if prepared.problem is None:
            answer = _tried(functools.partial(program.run, call, begin), memory)
        link.close()
        if job.steps is not None:
            answer = answer._replace(suspension=job.steps.suspension)
        for output in (sys.stdout, sys.stderr):
            with suppress(OSError, ValueError):  # closed by a handler
                output.flush()
        _send(stream, answer._replace(is_spent=answer.is_spent or memory.is_short))


def _tried(work: Callable[[], Any], memory: MemoryLimit) -> CallResult:
    try:
        result = dumps_result(work())
    except MemoryError as error:
        return CallResult(problem=memory.exceeded(error), is_spent=True)
    except BaseException as error:  # noqa: BLE001, the worker decides what it means
        if is_suspend(error):
            return CallResult()
        return CallResult(problem=report(error))
    return CallResult(result)


def _send(stream: BufferedRWPair, answer: CallResult | Question[Any] | None) -> None:
    data = pickle.dumps(answer)
    stream.write(LENGTH.pack(len(data)))
    stream.write(data)
    stream.flush()


def _die_with(parent: int) -> None:
    """Have the kernel end this process when the worker is no more, where it can."""
    with suppress(AttributeError):
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:
        os._exit(1)
