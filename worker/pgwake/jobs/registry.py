"""Handlers: which function runs which kind of job."""

import inspect
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import (
    Any,
    Concatenate,
    ParamSpec,
    Protocol,
    TypeAlias,
    TypeVar,
    cast,
    overload,
)

from pgwake.errors import ConfigurationError
from pgwake.jobs.batch import Batch
from pgwake.jobs.job import Job
from pgwake.jobs.location import Location
from pgwake.jobs.policy import Policy
from pgwake.jobs.signature import Signature
from pgwake.jobs.task import Task

# Of webhooks: as sql/functions/events/send_webhooks.sql enqueues them.
WEBHOOK_KIND = "pgwake.webhook"
WEBHOOK_QUEUE = "pgwake.webhooks"

P = ParamSpec("P")
R = TypeVar("R")
Wrapper: TypeAlias = Callable[[Callable[..., Any]], Callable[..., Any]]


class Decorator(Protocol):
    """Makes a task of a handler: with its parameters, but for the job."""

    @overload
    def __call__(
        self, function: Callable[Concatenate[Job, P], R], /
    ) -> Task[Concatenate[Job, P], P, R]: ...

    @overload
    def __call__(self, function: Callable[P, R], /) -> Task[P, P, R]: ...


@dataclass(frozen=True, slots=True)
class Handler:
    """A function that runs jobs of one kind.

    Args:
        kind: The kind of job.
        function: An async function, run on the loop, or a plain one, run in a thread:
            the handler, surrounded.
        handler: The function that was registered.
        queue: Where its jobs usually are; what a worker without --queue works on.
        policy: What its attempts go by.
        signature: How a payload becomes its arguments.
        is_async: Whether it runs on the loop.
        location: Where a process finds it; None: it runs in this one.
        batch: How it takes many jobs; None: it takes one.
    """

    kind: str
    function: Callable[..., Any]
    handler: Callable[..., Any]
    queue: str
    policy: Policy
    signature: Signature
    is_async: bool
    location: Location | None = None
    batch: Batch | None = None


class Registry:
    """The handlers of a worker, by kind."""

    def __init__(self) -> None:
        self._handlers: dict[str, Handler] = {}
        self._queues: set[str] = set()
        self._wrapper: Wrapper | None = None
        self._setup: str | None = None

    def job(
        self,
        kind: str,
        *,
        queue: str = "default",
        max_attempts: int | None = None,
        timeout: float | None = None,
        lease: float | None = None,
        priority: int | None = None,
        backoff_base: float | None = None,
        backoff_cap: float | None = None,
        backoff_jitter: float | None = None,
        process: bool = False,
        batch: int | None = None,
        batch_wait: float = 0.05,
    ) -> Decorator:
        """Register a function as the handler of a kind of job.

        The payload's fields become its arguments, checked against its annotations by
        pydantic; a parameter annotated with pgwake.Job gets the job itself. What it
        returns is stored as the job's result.

        The function becomes a Task: called, it is the function itself, and
        `await function.enqueue(...)` adds a job for it. For type checkers that leaves
        the job out where it is the first parameter.

        The policy is declared to the database when a worker starts. It holds where the
        job has none of its own and no operator has set another in pgwake.kinds; what is
        left out is by the queue's policy.

        Args:
            kind: The kind of job, 1 to 128 bytes.
            queue: Where its jobs usually are.
            max_attempts: Attempts until the dead letters; default 20.
            timeout: Seconds an attempt may take; default no limit.
            lease: Seconds a claim holds without renewal; default 300.
            priority: Of jobs inserted with priority 0; -100 to 100.
            backoff_base: Seconds before the second attempt, at most; default 1.
            backoff_cap: Seconds before any attempt, at most; default 3600.
            backoff_jitter: The share of that which is drawn at random; default 1.
            process: Run it, a plain function of a module, in a process of its own.
            batch: Call it with so many jobs at most, 1 to 1000; by default with one.
            batch_wait: Seconds that the first job of a batch may wait for others.

        Raises:
            ConfigurationError: The kind has a handler, a value is out of range, or the
                function can't be a handler.
        """
        for name, text in (("kind", kind), ("queue", queue)):
            if not _is_name(text):
                raise ConfigurationError(f"{name} {text!r} must have 1 to 128 bytes")
        try:
            policy = Policy(
                max_attempts=max_attempts,
                timeout=timeout,
                lease=lease,
                priority=priority,
                backoff_base=backoff_base,
                backoff_cap=backoff_cap,
                backoff_jitter=backoff_jitter,
            )
        except ConfigurationError as error:
            raise ConfigurationError(f"{kind}: {error}") from None

        if process and batch is not None:
            raise ConfigurationError(
                f"{kind}: process=True and batch exclude each other"
            )

        def register(function: Callable[..., Any], /) -> Task[..., ..., Any]:
            if isinstance(function, Task):
                function = function.function
            many = (
                None if batch is None else Batch.of(kind, function, batch, batch_wait)
            )
            if kind in self._handlers and self._handlers[kind].handler != function:
                raise ConfigurationError(f"kind {kind!r} has two handlers")
            signature = Signature.of(kind, function) if many is None else many.signature
            self._handlers[kind] = self._surrounded(
                Handler(
                    kind,
                    function,
                    function,
                    queue,
                    policy,
                    signature,
                    inspect.iscoroutinefunction(function),
                    Location.of(kind, function) if process else None,
                    many,
                )
            )
            return Task(kind, function, queue, signature)

        return cast("Decorator", register)  # it is none of its overloads alone

    def surround(self, wrapper: Wrapper, setup: str) -> None:
        """Have a framework do something around each call of a handler by a worker.

        Of those that are registered, and of those to come.

        Args:
            wrapper: Makes a function of one, async if that is.
            setup: The module that a process=True handler's process imports first; that
                calls surround() there.
        """
        self._wrapper, self._setup = wrapper, setup
        for kind, handler in self._handlers.items():
            self._handlers[kind] = self._surrounded(handler)

    def wrapped(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """Return what is called in a function's place; see surround."""
        return function if self._wrapper is None else self._wrapper(function)

    def _surrounded(self, handler: Handler) -> Handler:
        location = handler.location
        return replace(
            handler,
            function=self.wrapped(handler.handler),
            location=location and location._replace(setup=self._setup),
        )

    def get(self, kind: str) -> Handler | None:
        """Return the handler of a kind, or None."""
        return self._handlers.get(kind)

    def check(self) -> None:
        """Look whether processes will find their handlers.

        Raises:
            ConfigurationError: One is not under its name in a module.
        """
        for kind, handler in self._handlers.items():
            if handler.location is not None:
                handler.location.check(kind, handler.handler)

    @property
    def kinds(self) -> list[str]:
        """The kinds with a handler."""
        return sorted(self._handlers)

    @property
    def queues(self) -> list[str]:
        """The queues that the handlers name, and those that were added."""
        named = {handler.queue for handler in self._handlers.values()}
        return sorted(named | self._queues)

    def add_queues(self, names: Iterable[str]) -> None:
        """Have workers work on queues that no handler names, too."""
        self._queues.update(names)

    @property
    def declaration(self) -> dict[str, dict[str, Any]]:
        """What is to be declared of each kind; see declare_kinds.sql."""
        return {
            kind: {
                **handler.policy.declared(),
                **({"schema": schema} if (schema := handler.signature.schema) else {}),
            }
            for kind, handler in self._handlers.items()
        }


registry = Registry()
job = registry.job


def _is_name(text: str) -> bool:
    try:
        return 1 <= len(text.encode()) <= 128 and "\0" not in text
    except UnicodeEncodeError:  # a lone surrogate
        return False
