"""Handlers: which function runs which kind of job."""

import inspect
from collections.abc import Callable, Iterable
from dataclasses import dataclass
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
from pgwake.jobs.location import ChildParts, Location
from pgwake.jobs.middleware import Middleware
from pgwake.jobs.policy import Policy
from pgwake.jobs.resource import Resource, Resources, shown
from pgwake.jobs.signature import Signature
from pgwake.jobs.task import Task

# Of webhooks: as sql/functions/announce/send_webhooks.sql enqueues them.
WEBHOOK_KIND = "pgwake.webhook"
WEBHOOK_QUEUE = "pgwake.webhooks"

P = ParamSpec("P")
R = TypeVar("R")
R_co = TypeVar("R_co", covariant=True)
F = TypeVar("F", bound=Callable[..., Any])


class _TakesAnything(Protocol[P, R_co]):
    """A function whose first parameter may be anything, and so not only the job."""

    @overload
    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R_co: ...

    @overload
    def __call__(self, first: object, /, *args: Any, **kwargs: Any) -> R_co: ...


_TakesJobLater: TypeAlias = (
    Callable[Concatenate[Any, Job, ...], R]
    | Callable[Concatenate[Any, Any, Job, ...], R]
    | Callable[Concatenate[Any, Any, Any, Job, ...], R]
)


class Decorator(Protocol):
    """Makes a task of a handler: with its parameters, but for the job.

    Python's types can leave out the first parameter, and no other: where the job comes
    later, enqueue() takes anything.
    """

    @overload
    def __call__(  # type: ignore[overload-overlap]  # the first that fits is meant
        self, function: _TakesAnything[P, R], /
    ) -> Task[P, P, R]: ...

    @overload
    def __call__(
        self, function: Callable[Concatenate[Job, P], R], /
    ) -> Task[Concatenate[Job, P], P, R]: ...

    @overload
    def __call__(self, function: _TakesJobLater[R], /) -> Task[..., ..., R]: ...

    @overload
    def __call__(self, function: Callable[P, R], /) -> Task[P, P, R]: ...


@dataclass(frozen=True, slots=True)
class Handler:
    """A function that runs jobs of one kind.

    Args:
        kind: The kind of job.
        function: An async function, run on the loop, or a plain one, run in a thread.
        queue: Where its jobs usually are; what a worker without --queue works on.
        policy: What its attempts go by.
        signature: How a payload becomes its arguments.
        is_async: Whether it runs on the loop.
        location: Where a process finds it; None: it runs in this one.
        batch: How it takes many jobs; None: it takes one.
    """

    kind: str
    function: Callable[..., Any]
    queue: str
    policy: Policy
    signature: Signature
    is_async: bool
    location: Location | None = None
    batch: Batch | None = None


class Registry:
    """The handlers of a worker, by kind, and what is shared by them and around them.

    Attributes:
        middlewares: What is around each call of a handler, the outermost first.
        process_imports: Modules that a process=True handler's process imports first.
    """

    def __init__(self) -> None:
        self._handlers: dict[str, Handler] = {}
        self._queues: set[str] = set()
        self._resources = Resources()
        self.middlewares: list[Middleware] = []
        self.process_imports: list[str] = []

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
        pydantic; a parameter annotated with pgwake.Job gets the job itself, one with
        the type of a resource what that gave (see resource). What it returns is stored
        as the job's result.

        The function becomes a Task: called, it is the function itself, and
        `await function.enqueue(...)` adds a job for it. For type checkers that leaves
        out the job where it is the first parameter, and what is `= injected`.

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
        if callable(kind):  # @job alone
            name = getattr(kind, "__name__", "kind")
            raise ConfigurationError(f'a handler names its kind: @job("{name}")')
        for name, text in (("kind", kind), ("queue", queue)):
            if not _is_name(text):
                raise ConfigurationError(
                    f"{name} {text!r} must be a text of 1 to 128 bytes"
                )
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
            types = self._resources.types
            many = (
                None
                if batch is None
                else Batch.of(kind, function, batch, batch_wait, types)
            )
            if kind in self._handlers and self._handlers[kind].function != function:
                raise ConfigurationError(f"kind {kind!r} has two handlers")
            signature = (
                Signature.of(kind, function, types) if many is None else many.signature
            )
            self._handlers[kind] = Handler(
                kind,
                function,
                queue,
                policy,
                signature,
                inspect.iscoroutinefunction(function),
                Location.of(kind, function) if process else None,
                many,
            )
            return Task(kind, function, queue, signature)

        return cast("Decorator", register)  # it is none of its overloads alone

    def resource(self, function: F, /) -> F:
        """Register a function that opens something which handlers share.

            @resource
            async def pool() -> AsyncIterator[Pool]:
                async with create_pool() as pool:
                    yield pool

        What it yields goes to each parameter of a handler that is annotated with that
        type, Pool. It is opened when a worker's process starts, after what its own
        parameters name, and closed when it ends, after the last handler: on the loop if
        it is async, in a thread of its own otherwise. One that nobody names, or that
        gives None, is opened too: a hook. A process of process=True handlers opens its
        own, the plain ones only.

        Args:
            function: A generator function that yields once, async or plain, with
                @contextmanager or without; or one that returns what needs no closing.

        Returns:
            The function itself.

        Raises:
            ConfigurationError: The function can't be one, or another gives the type.
        """
        resource = self._resources.add(function)
        for kind, handler in self._handlers.items():
            if resource.type is not None and handler.signature.reads(resource.type):
                raise ConfigurationError(
                    f"{kind} takes {shown(resource.type)} from its payload: for it"
                    f" to be a resource, import {resource.name} before, or give the"
                    " parameter the default pgwake.injected"
                )
        return function

    def middleware(self, function: F, /) -> F:
        """Register a generator function that is called around each call of a handler.

            @middleware
            def timed(jobs: list[Job]) -> Iterator[None]:
                started = monotonic()
                try:
                    result = yield
                finally:
                    log(jobs, monotonic() - started)

        What the handler returns is the value of the yield, what it raises is raised
        there. Middleware may raise something else, as Retry; what it swallows fails the
        attempt all the same. A plain one runs where the handler does, an async one on
        the loop. That which was registered first is the outermost, but async ones are
        around a thread and a process, outside of all plain ones.

        Args:
            function: It yields once. Its parameters are annotated with list[Job] (of a
                batch all, else one), Job (where no handler takes a batch), or the type
                of a resource.

        Returns:
            The function itself.

        Raises:
            ConfigurationError: The function can't be middleware.
        """
        if function not in [one.function for one in self.middlewares]:
            self.middlewares.append(Middleware.of(function))
        return function

    def get(self, kind: str) -> Handler | None:
        """Return the handler of a kind, or None."""
        return self._handlers.get(kind)

    def check(self) -> None:
        """Look whether handlers, resources and middleware fit together.

        Raises:
            ConfigurationError: A process would not find what it needs, nothing gives a
                resource, or middleware can't be around a handler.
        """
        self.worker_resources()
        resources, middlewares = self._apart()
        located: list[Resource | Middleware] = [*resources, *middlewares]
        functions = {one.name: one.function for one in located} | {
            handler.kind: handler.function
            for handler in self._handlers.values()
            if handler.location is not None
        }
        for whose, function in functions.items():
            Location.of(whose, function).check(whose, function)

    def needed_by(self, handler: Handler) -> list[Resource]:
        """Return the resources that calls of a handler need here, in order.

        Raises:
            ConfigurationError: One is missing, or middleware can't be around it.
        """
        return self._resources.in_order(self._needed(handler, is_apart=False))

    def worker_resources(self) -> list[Resource]:
        """Return what a worker opens, in order: all but what only other processes need.

        Raises:
            ConfigurationError: As needed_by().
        """
        here, apart = self._all_needed(is_apart=False), self._all_needed(is_apart=True)
        wanted = [one for one in self._resources if one in here or one not in apart]
        return self._resources.in_order(wanted)

    @property
    def child_parts(self) -> ChildParts:
        """What a process of process=True handlers has beside them.

        Raises:
            ConfigurationError: It can't have that.
        """
        resources, middlewares = self._apart()
        return ChildParts(
            self.process_imports,
            [Location.of(one.name, one.function) for one in resources],
            [Location.of(one.name, one.function) for one in middlewares],
        )

    def _needed(self, handler: Handler, *, is_apart: bool) -> list[Resource]:
        """Return what a handler's calls need in the worker, or in their process."""
        wanted: list[Resource] = []
        if is_apart == (handler.location is not None):
            wanted += self._resources.needed(handler.kind, handler.signature.resources)
        for one in self.middlewares:
            if one.takes_job and handler.batch is not None:
                raise ConfigurationError(
                    f"{one.name} takes a Job, and {handler.kind} many jobs a call: let"
                    " it take list[Job]"
                )
            if handler.location is None or one.is_async != is_apart:
                wanted += self._resources.needed(one.name, one.needs)
        return wanted

    def _all_needed(self, *, is_apart: bool) -> list[Resource]:
        return [
            resource
            for handler in self._handlers.values()
            if not is_apart or handler.location is not None
            for resource in self._needed(handler, is_apart=is_apart)
        ]

    def _apart(self) -> tuple[list[Resource], list[Middleware]]:
        """Return what a process of process=True handlers opens, and calls."""
        if all(handler.location is None for handler in self._handlers.values()):
            return [], []
        apart = self._all_needed(is_apart=True)
        for one in apart:
            if one.is_async:
                raise ConfigurationError(
                    f"{one.name} is async, and processes of process=True handlers open"
                    f" plain resources only: write it as a plain generator function"
                )
        here = self._all_needed(is_apart=False)
        for one in self._resources:
            needed = self._resources.in_order([one])
            if one not in here and not any(other.is_async for other in needed):
                apart.append(one)
        middlewares = [one for one in self.middlewares if not one.is_async]
        return self._resources.in_order(apart), middlewares

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
resource = registry.resource
middleware = registry.middleware


def _is_name(text: str) -> bool:
    try:
        return 1 <= len(text.encode()) <= 128 and "\0" not in text
    except (AttributeError, UnicodeEncodeError):  # no text, a lone surrogate
        return False
