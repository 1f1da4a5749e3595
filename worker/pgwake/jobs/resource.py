"""Resources: opened when a process starts, closed when it ends, given to handlers."""

import inspect
from collections.abc import (
    AsyncGenerator,
    AsyncIterable,
    AsyncIterator,
    Callable,
    Collection,
    Generator,
    Iterable,
    Iterator,
    Mapping,
)
from contextlib import (
    AbstractAsyncContextManager,
    AbstractContextManager,
    asynccontextmanager,
    contextmanager,
)
from dataclasses import dataclass
from types import NoneType, UnionType
from typing import Any, NoReturn, Self, TypeAlias, Union, cast, get_args, get_origin

from pgwake.errors import ConfigurationError, ResourceError
from pgwake.jobs.error_reports import describe
from pgwake.jobs.job import Job

Opening: TypeAlias = AbstractContextManager[Any] | AbstractAsyncContextManager[Any]
Values: TypeAlias = Mapping[Any, Any]  # what resources gave, by their type

_YIELDING = (
    *(Iterator, Generator, Iterable, AsyncIterator, AsyncGenerator, AsyncIterable),
    *(AbstractContextManager, AbstractAsyncContextManager),
)


class _Injected:
    """The default of a parameter that the worker gives; see injected."""

    def __repr__(self) -> str:
        return "injected"

    def __getattr__(self, name: str) -> NoReturn:
        raise AttributeError(
            f"no {name!r}: a worker gives this parameter; who calls the function itself"
            " has to pass it"
        )


# The default of a parameter that the worker gives: a resource, or the job. So type
# checkers know that enqueue() does not take it.
injected: Any = _Injected()


@dataclass(frozen=True, slots=True, eq=False)
class Resource:
    """A function that opens something, and closes it when it goes on after its yield.

    Attributes:
        name: The function's, with its module, for messages.
        function: The function.
        type: What parameters that get it are annotated with; None: it gives nothing.
        needs: The types of the resources that it takes, by parameter.
        is_async: Whether it is opened on the loop.
    """

    name: str
    function: Callable[..., Any]
    type: Any
    needs: Mapping[str, Any]
    is_async: bool
    _open: Callable[..., Opening]

    @classmethod
    def of(cls, function: Callable[..., Any]) -> Self:
        """Read it from a function.

        Raises:
            ConfigurationError: The function can't be a resource.
        """
        name = name_of(function)
        call = call_of(name, function)
        needs = {}
        for parameter in call.parameters.values():
            if parameter.annotation in (parameter.empty, Job):
                raise ConfigurationError(
                    f"{name}: annotate {parameter.name} with the type of a resource,"
                    " a resource takes nothing else"
                )
            needs[parameter.name] = parameter.annotation
        inner = inspect.unwrap(function)  # of @contextmanager
        is_async = inspect.isasyncgenfunction(inner)
        given = call.return_annotation
        if is_async or inspect.isgeneratorfunction(inner):
            if get_origin(given) not in _YIELDING:
                given = call.empty
            else:
                given = get_args(given)[0]
        if given is call.empty:
            raise ConfigurationError(
                f"{name}: say what it gives, since handlers get it by that: -> Pool, or"
                " -> Iterator[Pool] or AsyncIterator[Pool] if it yields it. None: it"
                " gives nothing"
            )
        is_async = is_async or inspect.iscoroutinefunction(function)
        type_ = None if given in (None, NoneType) else _own_type(name, given)
        return cls(name, function, type_, needs, is_async, _opener(function))

    def open(self, values: Values) -> Opening:
        """Return what opens and closes it, given those that it needs."""
        needs = {name: values[type_] for name, type_ in self.needs.items()}
        return self._open(**needs)

    @contextmanager
    def told(self, what: str) -> Iterator[None]:
        """Say of which resource it is told that it could not be opened, or closed.

        Raises:
            ResourceError: What was raised in the block, from where that was.
        """
        try:
            yield
        except (Exception, SystemExit) as error:
            message = f"resource {self.name} could not be {what}: {describe(error)[0]}"
            raise ResourceError(message).with_traceback(error.__traceback__) from error


class Resources:
    """The resources of a registry, in the order of their registration."""

    def __init__(self) -> None:
        self._all: list[Resource] = []

    def __iter__(self) -> Iterator[Resource]:
        return iter(self._all)

    def add(self, function: Callable[..., Any]) -> Resource:
        """Add one, if it is not there.

        Raises:
            ConfigurationError: The function can't be one, or another gives the type.
        """
        resource = Resource.of(function)
        for other in self._all:
            if other.function == function:
                return other
            if resource.type is not None and resource.type == other.type:
                raise ConfigurationError(
                    f"{other.name} and {resource.name} give {shown(resource.type)}:"
                    ' tell them apart by a NewType, or by Annotated[..., "name"]'
                )
        self._all.append(resource)
        return resource

    @property
    def types(self) -> list[Any]:
        """What they give."""
        return [one.type for one in self._all if one.type is not None]

    def needed(self, by: str, needs: Mapping[str, Any]) -> list[Resource]:
        """Return what somebody needs, and what that needs, in the order of opening.

        Raises:
            ConfigurationError: There is no such resource, or some need each other.
        """
        found: list[Resource] = []
        self._collect(by, needs, found, ())
        return found

    def in_order(self, wanted: Collection[Resource]) -> list[Resource]:
        """Return resources, and what they need, in the order of opening.

        Raises:
            ConfigurationError: As needed().
        """
        found: list[Resource] = []
        for resource in self._all:
            if resource in wanted:
                self._add(resource, found, ())
        return found

    def _add(
        self, resource: Resource, found: list[Resource], path: tuple[Resource, ...]
    ) -> None:
        if resource in path:
            circle = " -> ".join(one.name for one in (*path, resource))
            raise ConfigurationError(f"resources need each other: {circle}")
        if resource not in found:
            self._collect(resource.name, resource.needs, found, (*path, resource))
            found.append(resource)

    def _collect(
        self,
        by: str,
        needs: Mapping[str, Any],
        found: list[Resource],
        path: tuple[Resource, ...],
    ) -> None:
        for name, type_ in needs.items():
            for resource in self._all:
                if resource.type is not None and resource.type == type_:
                    self._add(resource, found, path)
                    break
            else:
                raise ConfigurationError(
                    f"{by}: no resource gives {shown(type_)} for {name}: register one"
                    " (@resource) in a module that the worker imports. There are"
                    f" {', '.join(map(shown, self.types)) or 'none'}"
                )


def injected_type(
    by: str, parameter: inspect.Parameter, types: Collection[Any]
) -> Any | None:
    """Return which resource a parameter gets; None: none, as far as can be told yet.

    Raises:
        ConfigurationError: It does not say, or only as one of several types.
    """
    annotation = parameter.annotation
    if annotation in [*types]:  # a list: an annotation may have no hash
        return annotation
    if parameter.default is injected:
        if annotation is parameter.empty:
            raise ConfigurationError(
                f"{by}: annotate {parameter.name} with the type of its resource"
            )
        return annotation
    if getattr(annotation, "_is_protocol", False):
        return annotation  # of which no payload can have an instance
    if get_origin(annotation) in (Union, UnionType):
        for one in get_args(annotation):
            if one is Job or one in [*types]:
                raise ConfigurationError(
                    f"{by}: {parameter.name} gets {shown(one)} if it is annotated with"
                    " that alone"
                )
    return None


def call_of(by: str, function: Callable[..., Any]) -> inspect.Signature:
    """Return how a function is called, its annotations evaluated.

    Raises:
        ConfigurationError: That can't be read.
    """
    try:
        return inspect.signature(function, eval_str=True)
    except (NameError, TypeError, ValueError) as error:
        raise ConfigurationError(
            f"{by}: its signature can't be read: {error}"
        ) from None


def name_of(function: Callable[..., Any]) -> str:
    """Return a function's name with its module, for messages."""
    name = getattr(function, "__qualname__", None)
    return repr(function) if name is None else f"{function.__module__}.{name}"


def shown(annotation: Any) -> str:
    """Return an annotation as it is written."""
    return annotation.__qualname__ if type(annotation) is type else str(annotation)


def _own_type(name: str, given: Any) -> Any:
    """Refuse a type that the fields of payloads have, too."""
    is_plain = getattr(given, "__module__", None) == "builtins"
    is_plain = is_plain or getattr(get_origin(given), "__module__", "") == "builtins"
    if is_plain or given in (Any, Job) or get_origin(given) in (Union, UnionType):
        raise ConfigurationError(
            f"{name} gives {shown(given)}, which is no type of its own: use a class, or"
            ' NewType("ApiKey", str)'
        )
    return given


def _opener(function: Callable[..., Any]) -> Callable[..., Opening]:
    if inspect.isasyncgenfunction(function):
        return asynccontextmanager(function)
    if inspect.isgeneratorfunction(function):
        return contextmanager(function)
    inner = inspect.unwrap(function)
    if inspect.isasyncgenfunction(inner) or inspect.isgeneratorfunction(inner):
        return cast("Callable[..., Opening]", function)
    if inspect.iscoroutinefunction(function):

        async def called_async(**needs: Any) -> AsyncIterator[Any]:
            yield await function(**needs)

        return asynccontextmanager(called_async)

    def called(**needs: Any) -> Iterator[Any]:
        yield function(**needs)

    return contextmanager(called)
