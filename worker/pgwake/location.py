"""Where a function is found: how a handler is named to another process."""

import inspect
from collections.abc import Callable
from functools import reduce
from importlib import import_module
from typing import Any, NamedTuple, Self

from pgwake.errors import ConfigurationError


class Location(NamedTuple):
    """A function's module, and its name in there."""

    module: str
    name: str

    @classmethod
    def of(cls, kind: str, function: Callable[..., Any]) -> Self:
        """Return the location of a kind's handler.

        Raises:
            ConfigurationError: No other process could find it.
        """
        if not inspect.isfunction(function):
            problem = "is no function"
        elif inspect.iscoroutinefunction(function):
            problem = "is async, and a process runs plain functions"
        elif "<" in function.__qualname__:  # <locals>, <lambda>
            problem = "is not at the top of its module, where a process would find it"
        elif function.__module__ == "__main__":
            problem = "is in the program that was started: a process imports modules"
        else:
            return cls(function.__module__, function.__qualname__)
        raise ConfigurationError(
            f"{kind}: with process=True, use a plain function with a name of its own in"
            f" a module; {getattr(function, '__qualname__', function)!r} {problem}"
        )

    def find(self) -> Any:
        """Return the function, importing its module.

        Raises:
            AttributeError: It isn't there. What the module raises is raised too.
        """
        found: Any = reduce(getattr, self.name.split("."), import_module(self.module))
        return inspect.unwrap(found, stop=inspect.isfunction)  # what a decorator made

    def has(self, function: Callable[..., Any]) -> bool:
        """Whether it is this function that is found."""
        try:
            return bool(self.find() is function)
        except (AttributeError, ImportError):
            return False
