"""Where a function is found: how a handler is named to another process."""

import inspect
from collections.abc import Callable, Sequence
from functools import reduce
from importlib import import_module
from typing import Any, NamedTuple, Self

from pgwake.errors import ConfigurationError


class Location(NamedTuple):
    """A function's module, and its name in there."""

    module: str
    name: str

    @classmethod
    def of(cls, whose: str, function: Callable[..., Any]) -> Self:
        """Return the location of a handler, of a resource, or of middleware.

        Raises:
            ConfigurationError: No other process could find it.
        """
        if not inspect.isfunction(function):
            problem = "is no function"
        elif inspect.iscoroutinefunction(function):
            problem = "is async, and a process runs plain functions"
        elif "<" in function.__qualname__:  # <locals>, <lambda>
            problem = "is not at the top of its module, where a process would find it"
        else:
            return cls(function.__module__, function.__qualname__)
        raise ConfigurationError(
            f"{whose}: with process=True, use a plain function with a name of its own"
            f" in a module; {getattr(function, '__qualname__', function)!r} {problem}"
        )

    def find(self) -> Any:
        """Return the function, importing its module.

        Raises:
            AttributeError: It isn't there. What the module raises is raised too.
        """
        found: Any = reduce(getattr, self.name.split("."), import_module(self.module))
        return inspect.unwrap(found, stop=inspect.isfunction)  # what a decorator made

    def check(self, whose: str, function: Callable[..., Any]) -> None:
        """See to it that a process will find this function here.

        Raises:
            ConfigurationError: It would not.
        """
        if self.module == "__main__":
            raise ConfigurationError(
                f"{whose}: {self.name} is in the program that was started, which a"
                " process can't import: put it into a module"
            )
        try:
            found = self.find()
        except (AttributeError, ImportError):
            found = None
        if found is not function:
            raise ConfigurationError(
                f"{whose}: its process would not find it: {self.name} of {self.module}"
                " is another object by now"
            )


class ChildParts(NamedTuple):
    """What a process of process=True handlers has beside them.

    Attributes:
        imports: Modules to import first.
        resources: What to open, in order.
        middlewares: What is around each call, the outermost first.
    """

    imports: Sequence[str] = ()
    resources: Sequence[Location] = ()
    middlewares: Sequence[Location] = ()
