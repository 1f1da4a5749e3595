"""Batch handlers: how one call takes many jobs, and what it says of each."""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from types import UnionType
from typing import Any, Self, get_args, get_origin

from pydantic import PydanticUserError, TypeAdapter, ValidationError

from pgwake.errors import ConfigurationError, InvalidPayloadError, InvalidValueError
from pgwake.jobs.job import Job
from pgwake.jobs.resource import call_of
from pgwake.jobs.signature import Signature, explain, schema_of
from pgwake.jsontext import dumps_result


@dataclass(frozen=True, slots=True)
class Batch:
    """What a batch handler takes.

    Attributes:
        size: Jobs a call, at most.
        seconds: How long the first of them may wait for others.
        signature: Of the kind; it binds nothing.
    """

    size: int
    seconds: float
    signature: Signature
    _validate: Callable[[str], Any] | None
    _jobs_parameter: str | None
    _items_parameter: str | None

    @classmethod
    def of(
        cls,
        kind: str,
        function: Callable[..., Any],
        size: int,
        seconds: float,
        types: Collection[Any] = (),
    ) -> Self:
        """Read it from a function.

        Raises:
            ConfigurationError: The function can't be a batch handler, or a number is
                out of range.
        """
        _check(kind, "batch", size, 1, 1000, int)
        _check(kind, "batch_wait", seconds, 0, 3600, int | float)
        jobs_parameter = items_parameter = adapter = None
        call = call_of(kind, function)
        others = []
        for name, parameter in call.parameters.items():
            of = get_args(parameter.annotation)
            if get_origin(parameter.annotation) is not list or len(of) != 1:
                others.append(parameter)
            elif of[0] is Job and jobs_parameter is None:
                jobs_parameter = name
            elif of[0] is not Job and items_parameter is None:
                items_parameter, adapter = name, _adapter(kind, of[0])
            else:
                break
        else:
            rest = Signature.read(kind, call.replace(parameters=others), types)
            if (jobs_parameter or items_parameter) and not rest.takes_more:
                return cls(
                    size,
                    seconds,
                    Signature.unbound(
                        kind, adapter and schema_of(adapter), rest.resources
                    ),
                    adapter and adapter.validator.validate_json,
                    jobs_parameter,
                    items_parameter,
                )
        raise ConfigurationError(
            f"{kind}: a batch handler takes list[Job], or a list of what the payloads"
            " are (list[Model]), or one of each; and resources"
        )

    def read(self, job: Job) -> Any:
        """Read a job's item from its payload.

        Raises:
            InvalidPayloadError: It does not fit.
        """
        if self._validate is None:
            return None
        try:
            return self._validate(job.payload_text)
        except ValidationError as error:
            raise InvalidPayloadError(explain(self.signature.kind, error)) from None

    def arguments(self, jobs: Sequence[Job], items: Sequence[Any]) -> dict[str, Any]:
        """Return the arguments of a call; lists of the handler's own."""
        given: dict[str, Any] = {}
        if self._jobs_parameter is not None:
            given[self._jobs_parameter] = list(jobs)
        if self._items_parameter is not None:
            given[self._items_parameter] = list(items)
        return given


def _check(
    kind: str, name: str, value: Any, low: int, high: int, numbers: type | UnionType
) -> None:
    is_number = isinstance(value, numbers) and not isinstance(value, bool)
    if not (is_number and low <= value <= high):
        raise ConfigurationError(f"{kind}: {name} is {value!r}: use {low} to {high}")


def _adapter(kind: str, annotation: Any) -> TypeAdapter[Any]:
    try:
        return TypeAdapter(annotation)
    except (PydanticUserError, TypeError) as error:
        raise ConfigurationError(
            f"{kind}: its annotations can't be used: {error}"
        ) from None


def ends_of(value: Any, jobs: Sequence[Job]) -> list[BaseException | str | None]:
    """Return the end of each job: an error, or its result as JSON text, or neither.

    Args:
        value: What the handler returned: nothing, a list with as many values, or a
            dict of values by job id. An exception among them fails its job.
        jobs: The jobs, in order.

    Raises:
        InvalidValueError: It is none of that, so nobody can tell what is whose.
    """
    match value:
        case None:
            return [None] * len(jobs)
        case Mapping() if value.keys() <= {job.id for job in jobs}:
            return [_end(value.get(job.id)) for job in jobs]
        case list() | tuple() if len(value) == len(jobs):
            return [_end(item) for item in value]
        case Mapping():
            what = "keys that are no job's id"
        case list() | tuple():
            what = f"{len(value)} of them"
        case _:
            what = f"{type(value).__name__}"
    raise InvalidValueError(
        f"a batch of {len(jobs)} jobs has a result each, in a list or in a dict by"
        f" job id, or None for all: its handler returned {what}"
    )


def _end(value: Any) -> BaseException | str | None:
    if value is None or isinstance(value, BaseException):
        return value
    try:
        return dumps_result(value)
    except InvalidValueError as error:
        return error
