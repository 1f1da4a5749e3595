"""A handler's signature: how a payload becomes its arguments."""

import inspect
from collections.abc import Callable, Mapping
from copy import deepcopy
from dataclasses import dataclass
from math import isfinite
from typing import Any, Literal, NotRequired, Self

from pydantic import ConfigDict, PydanticUserError, TypeAdapter, ValidationError
from pydantic.errors import PydanticInvalidForJsonSchema
from pydantic.json_schema import GenerateJsonSchema, JsonSchemaWarningKind
from pydantic_core import SchemaError
from typing_extensions import TypedDict  # pydantic refuses typing's before 3.12

from pgwake.errors import (
    ConfigurationError,
    InvalidPayloadError,
    InvalidValueError,
)
from pgwake.jobs.job import Job
from pgwake.jsontext import dumps

# Of a payload's schema as we write it: 64 KiB at most as the database does, which is
# what it takes.
_SCHEMA_BYTES = 40_000


@dataclass(frozen=True, slots=True)
class Signature:
    """What a handler takes.

    Attributes:
        kind: The kind of job, for messages.
        schema: The JSON Schema of its payload; None where there is none that is whole
            and can be stored.
    """

    kind: str
    schema: Mapping[str, Any] | None
    _validate: Callable[[str], dict[str, Any]] | None
    _defaults: Mapping[str, Any]
    _job_parameter: str | None
    _adapter: TypeAdapter[Any] | None
    _call: inspect.Signature  # without the job

    @classmethod
    def of(cls, kind: str, function: Callable[..., Any]) -> Self:
        """Read it from a function.

        Raises:
            ConfigurationError: The function can't be a handler.
        """
        call = call_of(kind, function)
        job_parameter = None
        fields: dict[str, Any] = {}
        defaults: dict[str, Any] = {}
        extra: Literal["forbid", "allow"] = "forbid"
        for name, parameter in call.parameters.items():
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
            is_bare = parameter.annotation is parameter.empty
            annotation = Any if is_bare else parameter.annotation
            if parameter.default is parameter.empty:
                fields[name] = annotation
            else:
                fields[name] = NotRequired[annotation]
                defaults[name] = parameter.default
        adapter = _adapter(kind, fields, extra)
        takes_any = bool(fields) or extra == "allow"
        validate = adapter.validator.validate_json if takes_any else None
        call = call.replace(
            parameters=[p for p in call.parameters.values() if p.annotation is not Job]
        )
        schema = schema_of(adapter)
        return cls(kind, schema, validate, defaults, job_parameter, adapter, call)

    @classmethod
    def unbound(cls, kind: str, schema: Mapping[str, Any] | None) -> Self:
        """Return one that only shows its schema: of a handler of many jobs a call."""
        return cls(kind, schema, None, {}, None, None, inspect.Signature())

    def bind(self, payload: str, job: Job) -> dict[str, Any]:
        """Read the arguments from a payload, JSON text.

        Raises:
            InvalidPayloadError: A field is missing, unknown or of the wrong type.
        """
        bound: dict[str, Any] = {}
        if self._validate is not None:
            try:
                bound = self._validate(payload)
            except ValidationError as error:
                raise InvalidPayloadError(explain(self.kind, error)) from None
            for name, default in self._defaults.items():
                if name not in bound:
                    # A handler may change its list: the next job's is another.
                    is_shared = isinstance(default, list | dict | set)
                    bound[name] = deepcopy(default) if is_shared else default
        elif payload != "{}":
            raise InvalidPayloadError(
                f"{self.kind} takes no arguments, but the payload has some"
            )
        if self._job_parameter is not None:
            bound[self._job_parameter] = job
        return bound

    def payload(self, *args: Any, **kwargs: Any) -> dict[str, Any]:
        """Make the payload of which the handler's arguments will be these again.

        What is left out stays out: the handler's default is that of the day it runs.

        Raises:
            TypeError: They are none that the handler takes, or one is missing.
            InvalidPayloadError: One is of the wrong type, or does not survive as JSON.
            InvalidValueError: JSON or PostgreSQL has no word for one.
        """
        if self._adapter is None:
            raise InvalidPayloadError(
                f"{self.kind} takes many jobs a call: enqueue each by its payload, "
                f"queue.enqueue({self.kind!r}, {{...}})"
            )
        fields: dict[str, Any] = {}
        for name, value in self._call.bind(*args, **kwargs).arguments.items():
            is_rest = self._call.parameters[name].kind is inspect.Parameter.VAR_KEYWORD
            fields.update(value if is_rest else {name: value})
        try:
            checked = self._adapter.validator.validate_python(fields)
            payload: dict[str, Any] = self._adapter.serializer.to_python(
                checked, mode="json", by_alias=True
            )
        except ValidationError as error:
            raise InvalidPayloadError(explain(self.kind, error)) from None
        except ValueError as error:  # pydantic's own for one, and UnicodeDecodeError
            raise InvalidValueError(f"not a JSON value: {error}") from None
        text = dumps(payload)
        if "null" in text and not _is_finite(fields):
            raise InvalidValueError("not a JSON value: a number is NaN or infinite")
        try:
            self._adapter.validator.validate_json(text)
        except ValidationError as error:
            raise InvalidPayloadError(explain(self.kind, error)) from None
        return payload


def call_of(kind: str, function: Callable[..., Any]) -> inspect.Signature:
    """Return how a handler is called, its annotations evaluated.

    Raises:
        ConfigurationError: That can't be read.
    """
    try:
        return inspect.signature(function, eval_str=True)
    except (NameError, TypeError, ValueError) as error:
        raise ConfigurationError(
            f"{kind}: its signature can't be read: {error}"
        ) from None


def _adapter(
    kind: str, fields: Mapping[str, Any], extra: Literal["forbid", "allow"]
) -> TypeAdapter[Any]:
    try:
        # Not a model: what becomes of it is a dictionary, read five times as fast.
        shape: Any = TypedDict(kind, dict(fields))  # type: ignore[misc]  # made at run time
        config = ConfigDict(arbitrary_types_allowed=True, extra=extra)
        setattr(shape, "__pydantic_config__", config)  # noqa: B010
        return TypeAdapter(shape)
    except (PydanticUserError, SchemaError, TypeError) as error:
        raise ConfigurationError(
            f"{kind}: its annotations can't be used: {error}"
        ) from None


def _is_finite(value: object) -> bool:
    """Whether no number in it is NaN or infinite, which pydantic makes null of."""
    match value:
        case float():
            return isfinite(value)
        case dict():
            return all(map(_is_finite, value.values()))
        case list() | tuple() | set() | frozenset():
            return all(map(_is_finite, value))
    return True


def schema_of(adapter: TypeAdapter[Any]) -> Mapping[str, Any] | None:
    """Return the JSON Schema of what an adapter takes, if it is whole and small."""
    try:
        schema = adapter.json_schema(schema_generator=_Generator)
        is_small = len(dumps(schema).encode()) <= _SCHEMA_BYTES
    except Exception:  # noqa: BLE001, an annotation's own code; handlers do without it
        return None
    return schema if is_small else None


class _Generator(GenerateJsonSchema):
    def emit_warning(self, kind: JsonSchemaWarningKind, detail: str) -> None:
        # A choice that is left out would be refused. Defaults are none of its business.
        if kind == "skipped-choice":
            raise PydanticInvalidForJsonSchema(detail)


def explain(kind: str, error: ValidationError) -> str:
    """Say what of a payload does not fit, in one line."""
    problems = "; ".join(
        f"{'.'.join(map(str, item['loc'])) or 'payload'}: {item['msg']}"
        for item in error.errors(include_url=False, include_input=False)[:5]
    )
    return f"the payload does not fit {kind}: {problems}"
