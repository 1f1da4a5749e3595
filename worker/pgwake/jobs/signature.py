"""A handler's signature: how a payload becomes its arguments."""

import inspect
from collections.abc import Callable, Collection, Mapping
from copy import deepcopy
from dataclasses import dataclass, field
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
from pgwake.jobs.resource import Values, call_of, injected_type
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
        resources: The types of the resources that it takes, by parameter.
    """

    kind: str
    schema: Mapping[str, Any] | None
    _validate: Callable[[str], dict[str, Any]] | None
    _defaults: Mapping[str, Any]
    _job_parameter: str | None
    _adapter: TypeAdapter[Any] | None
    _call: inspect.Signature  # with what a payload has
    resources: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def of(
        cls, kind: str, function: Callable[..., Any], types: Collection[Any] = ()
    ) -> Self:
        """Read it from a function.

        Args:
            kind: The kind.
            function: The function.
            types: The types of resources. What has no form in JSON can't be in a
                payload, so that is taken for a resource, too.

        Raises:
            ConfigurationError: The function can't be a handler.
        """
        return cls.read(kind, call_of(kind, function), types)

    @classmethod
    def read(
        cls, kind: str, call: inspect.Signature, types: Collection[Any] = ()
    ) -> Self:
        """Read it from how a function is called; see of."""
        job_parameter = None
        resources: dict[str, Any] = {}
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
            if (type_ := injected_type(kind, parameter, types)) is not None:
                resources[name] = type_
                continue
            is_bare = parameter.annotation is parameter.empty
            annotation = Any if is_bare else parameter.annotation
            if parameter.default is parameter.empty:
                fields[name] = annotation
            else:
                fields[name] = NotRequired[annotation]
                defaults[name] = parameter.default
        adapter = _adapter(kind, fields, extra)
        if opaque := opaque_fields(adapter):
            resources |= {name: fields.pop(name) for name in opaque}
            adapter = _adapter(kind, fields, extra)
        takes_any = bool(fields) or extra == "allow"
        validate = adapter.validator.validate_json if takes_any else None
        given = {job_parameter, *resources}
        call = call.replace(
            parameters=[p for p in call.parameters.values() if p.name not in given]
        )
        schema = schema_of(adapter)
        return cls(
            kind, schema, validate, defaults, job_parameter, adapter, call, resources
        )

    @classmethod
    def unbound(
        cls, kind: str, schema: Mapping[str, Any] | None, resources: Mapping[str, Any]
    ) -> Self:
        """Return one that reads no payload: of a handler of many jobs a call."""
        return cls(kind, schema, None, {}, None, None, inspect.Signature(), resources)

    @property
    def takes_more(self) -> bool:
        """Whether it takes anything but resources."""
        return self._validate is not None or self._job_parameter is not None

    def reads(self, type_: Any) -> bool:
        """Whether a field of the payload has this type."""
        return any(p.annotation == type_ for p in self._call.parameters.values())

    def given(self, values: Values) -> dict[str, Any]:
        """Return the arguments that are resources."""
        return {name: values[type_] for name, type_ in self.resources.items()}

    def bind(
        self, payload: str, job: Job, values: Mapping[Any, Any] = {}
    ) -> dict[str, Any]:
        """Read the arguments from a payload, JSON text.

        Args:
            payload: The payload.
            job: The job.
            values: What resources gave, by their types.

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
        if self.resources:
            bound |= self.given(values)
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


def opaque_fields(adapter: TypeAdapter[Any]) -> list[str]:
    """Return the required fields that nothing in JSON can be.

    Instances of a class that pydantic knows no form of, and dataclasses with such.
    """
    shape: Any = adapter.core_schema
    named = {}
    if shape["type"] == "definitions":
        named = {one["ref"]: one for one in shape["definitions"]}
        shape = shape["schema"]
    found = []
    for name, field_ in shape["fields"].items():
        schema = field_["schema"]
        if schema["type"] == "definition-ref":
            schema = named[schema["schema_ref"]]
        if field_["required"] and _is_opaque(schema):
            found.append(name)
    return found


def _is_opaque(schema: Any) -> bool:
    match schema:
        case {"type": "is-instance", "cls": cls}:
            return getattr(cls, "__module__", "") != "builtins"
        case {"type": "dataclass", "schema": {"fields": fields}}:
            return any(_is_opaque(one["schema"]) for one in fields)
    return False


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
