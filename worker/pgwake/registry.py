"""Handlers: which function runs which kind of job, and how its arguments are read."""

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, TypeVar

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    PydanticUserError,
    ValidationError,
    create_model,
)
from pydantic_core import SchemaError

from pgwake.errors import ConfigurationError, InvalidPayloadError
from pgwake.job import Job

F = TypeVar("F", bound=Callable[..., Any])


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
    arguments: type[BaseModel] | None
    job_parameter: str | None

    def bind(self, payload: str, job: Job) -> dict[str, Any]:
        """Read the arguments from a payload, JSON text.

        Raises:
            InvalidPayloadError: A field is missing, unknown or of the wrong type.
        """
        bound: dict[str, Any] = {}
        if self.arguments is not None:
            try:
                model = self.arguments.model_validate_json(payload)
            except ValidationError as error:
                raise InvalidPayloadError(_explain(self.kind, error)) from None
            for name, field in self.arguments.model_fields.items():
                bound[str(field.validation_alias)] = getattr(model, name)
            bound |= model.model_extra or {}
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
    job_parameter, arguments = _arguments(kind, function)
    return Handler(
        kind,
        function,
        queue,
        max_attempts,
        timeout,
        inspect.iscoroutinefunction(function),
        arguments,
        job_parameter,
    )


def _arguments(
    kind: str, function: Callable[..., Any]
) -> tuple[str | None, type[BaseModel] | None]:
    try:
        parameters = inspect.signature(function, eval_str=True).parameters
    except (NameError, TypeError, ValueError) as error:
        raise ConfigurationError(
            f"{kind}: its signature can't be read: {error}"
        ) from None
    job_parameter = None
    fields: dict[str, Any] = {}
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
        # Under other names, since a model can't have fields such as "copy" or "_id".
        annotation = (
            Any if parameter.annotation is parameter.empty else parameter.annotation
        )
        default = ... if parameter.default is parameter.empty else parameter.default
        fields[f"field_{len(fields)}"] = (
            annotation,
            Field(default, validation_alias=name),
        )
    if not fields and extra == "forbid":
        return job_parameter, None
    config = ConfigDict(arbitrary_types_allowed=True, extra=extra)
    try:
        return job_parameter, create_model(kind, __config__=config, **fields)
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
