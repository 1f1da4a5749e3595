"""Handlers: which function runs which kind of job, and how its arguments are read."""

import inspect
from collections.abc import Callable, Mapping
from copy import deepcopy
from dataclasses import dataclass
from typing import Any, Literal, NotRequired, TypeAlias, TypeVar

from pydantic import ConfigDict, PydanticUserError, TypeAdapter, ValidationError
from pydantic_core import SchemaError
from typing_extensions import TypedDict  # pydantic refuses typing's before 3.12

from pgwake.errors import ConfigurationError, InvalidPayloadError
from pgwake.job import Job

F = TypeVar("F", bound=Callable[..., Any])
Arguments: TypeAlias = Callable[[str], dict[str, Any]]


@dataclass(frozen=True, slots=True)
class Handler:
    """A function that runs jobs of one kind.

    Args:
        kind: The kind of job.
        function: An async function, run on the loop, or a plain one, run in a thread.
        queue: Where its jobs usually are; what a worker without --queue works on.
        max_attempts: Where the job has none of its own; None: the queue's policy.
        timeout: Seconds an attempt may take; None: as long as it likes.
    """

    kind: str
    function: Callable[..., Any]
    queue: str
    max_attempts: int | None
    timeout: float | None
    is_async: bool
    arguments: Arguments | None
    defaults: Mapping[str, Any]
    job_parameter: str | None

    def bind(self, payload: str, job: Job) -> dict[str, Any]:
        """Read the arguments from a payload, JSON text.

        Raises:
            InvalidPayloadError: A field is missing, unknown or of the wrong type.
        """
        bound: dict[str, Any] = {}
        if self.arguments is not None:
            try:
                bound = self.arguments(payload)
            except ValidationError as error:
                raise InvalidPayloadError(_explain(self.kind, error)) from None
            for name, default in self.defaults.items():
                if name not in bound:
                    # A handler may change its list: the next job's is another.
                    is_shared = isinstance(default, list | dict | set)
                    bound[name] = deepcopy(default) if is_shared else default
        elif payload != "{}":
            raise InvalidPayloadError(
                f"{self.kind} takes no arguments, but the payload has some"
            )
        if self.job_parameter is not None:
            bound[self.job_parameter] = job
        return bound


class Registry:
    """The handlers of a worker, by kind."""

    def __init__(self) -> None:
        self._handlers: dict[str, Handler] = {}

    def job(
        self,
        kind: str,
        *,
        queue: str = "default",
        max_attempts: int | None = None,
        timeout: float | None = None,
    ) -> Callable[[F], F]:
        """Register a function as the handler of a kind of job.

        The payload's fields become its arguments, checked against its annotations by
        pydantic; a parameter annotated with pgwake.Job gets the job itself. What it
        returns is stored as the job's result.

        Args:
            kind: The kind of job, 1 to 128 bytes.
            queue: Where its jobs usually are.
            max_attempts: Attempts until the dead letters, where the job has no own.
            timeout: Seconds an attempt may take.

        Raises:
            ConfigurationError: The kind has a handler, or the function can't be one.
        """

        def register(function: F) -> F:
            if kind in self._handlers and self._handlers[kind].function != function:
                raise ConfigurationError(f"kind {kind!r} has two handlers")
            self._handlers[kind] = _handler(
                kind, function, queue, max_attempts, timeout
            )
            return function

        return register

    def get(self, kind: str) -> Handler | None:
        """Return the handler of a kind, or None."""
        return self._handlers.get(kind)

    @property
    def kinds(self) -> list[str]:
        """The kinds with a handler."""
        return sorted(self._handlers)

    @property
    def queues(self) -> list[str]:
        """The queues that the handlers name."""
        return sorted({handler.queue for handler in self._handlers.values()})


registry = Registry()
job = registry.job


def _handler(
    kind: str,
    function: Callable[..., Any],
    queue: str,
    max_attempts: int | None,
    timeout: float | None,
) -> Handler:
    for name, text in (("kind", kind), ("queue", queue)):
        if not _is_name(text):
            raise ConfigurationError(f"{name} {text!r} must have 1 to 128 bytes")
    if max_attempts is not None and not 1 <= max_attempts <= 10_000:
        raise ConfigurationError(f"{kind}: max_attempts must be from 1 to 10000")
    if timeout is not None and not 0 < timeout <= 86_400:
        raise ConfigurationError(f"{kind}: timeout must be from 0 to 86400 seconds")
    job_parameter, arguments, defaults = _arguments(kind, function)
    return Handler(
        kind,
        function,
        queue,
        max_attempts,
        timeout,
        inspect.iscoroutinefunction(function),
        arguments,
        defaults,
        job_parameter,
    )


def _arguments(
    kind: str, function: Callable[..., Any]
) -> tuple[str | None, Arguments | None, dict[str, Any]]:
    try:
        parameters = inspect.signature(function, eval_str=True).parameters
    except (NameError, TypeError, ValueError) as error:
        raise ConfigurationError(
            f"{kind}: its signature can't be read: {error}"
        ) from None
    job_parameter = None
    fields: dict[str, Any] = {}
    defaults: dict[str, Any] = {}
    extra: Literal["forbid", "allow"] = "forbid"
    for name, parameter in parameters.items():
        match parameter.kind:
            case parameter.VAR_KEYWORD:
                extra = "allow"
                continue
            case parameter.POSITIONAL_ONLY | parameter.VAR_POSITIONAL:
                raise ConfigurationError(
                    f"{kind}: parameter {name} can't be given by name"
                )
        if parameter.annotation is Job:
            job_parameter = name
            continue
        annotation = (
            Any if parameter.annotation is parameter.empty else parameter.annotation
        )
        if parameter.default is parameter.empty:
            fields[name] = annotation
        else:
            fields[name] = NotRequired[annotation]
            defaults[name] = parameter.default
    if not fields and extra == "forbid":
        return job_parameter, None, defaults
    try:
        # Not a model: what becomes of it is a dictionary, read five times as fast.
        shape: Any = TypedDict(kind, fields)  # type: ignore[misc]  # made at run time
        config = ConfigDict(arbitrary_types_allowed=True, extra=extra)
        setattr(shape, "__pydantic_config__", config)  # noqa: B010
        return job_parameter, TypeAdapter(shape).validator.validate_json, defaults
    except (PydanticUserError, SchemaError, TypeError) as error:
        raise ConfigurationError(
            f"{kind}: its annotations can't be used: {error}"
        ) from None


def _is_name(text: str) -> bool:
    try:
        return 1 <= len(text.encode()) <= 128 and "\0" not in text
    except UnicodeEncodeError:  # a lone surrogate
        return False


def _explain(kind: str, error: ValidationError) -> str:
    problems = "; ".join(
        f"{'.'.join(map(str, item['loc'])) or 'payload'}: {item['msg']}"
        for item in error.errors(include_url=False, include_input=False)[:5]
    )
    return f"the payload does not fit {kind}: {problems}"
