"""Where a function is found: how a handler is named to another process."""

import inspect
from collections.abc import Callable
from functools import reduce
from importlib import import_module
from typing import Any, NamedTuple, Self

from pgwake.errors import ConfigurationError


class Location(NamedTuple):
    """A function's module, and its name in there.

    Attributes:
        setup: A module that another process has to import before; None: none.
    """

    module: str
    name: str
    setup: str | None = None

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

    def check(self, kind: str, function: Callable[..., Any]) -> None:
        """See to it that a process will find this function here.

        Raises:
            ConfigurationError: It would not.
        """
        if self.module == "__main__":
            raise ConfigurationError(
                f"{kind}: {self.name} is in the program that was started, which a"
                " process can't import: put it into a module"
            )
        try:
            found = self.find()
        except (AttributeError, ImportError):
            found = None
        if found is not function:
            raise ConfigurationError(
                f"{kind}: its process would not find it: {self.name} of {self.module}"
                " is another object by now"
            )
