"""What every adapter can do, and which targets are asynchronous, for type checkers."""

from abc import ABC, abstractmethod
from collections.abc import Awaitable, Iterable, Sequence
from typing import Any, Protocol, TypeAlias

from pgwake.errors import ConfigurationError


class _AsyncClosable(Protocol):
    def close(self) -> Awaitable[None]: ...


class _AsyncDisposable(Protocol):
    def dispose(self) -> Awaitable[None]: ...


class _Closable(Protocol):
    def close(self) -> None: ...


class _Disposable(Protocol):
    def dispose(self) -> None: ...


# By shape: so no driver has to be there for its types.
AsyncTarget: TypeAlias = str | _AsyncClosable | _AsyncDisposable
SyncTarget: TypeAlias = _Closable | _Disposable


class AsyncAdapter(ABC):
    """Asks on an asynchronous connection.

    Attributes:
        is_pool: Whether the next statement may go to another session.
    """

    is_pool = False

    @abstractmethod
    async def fetch(self, sql: str, *arguments: Any) -> Sequence[Any]:
        """Run a statement with arguments $1, $2, ...; its rows, which are sequences."""

    async def ask(self, sql: str, argument: str | None) -> str:
        """Run a statement with one argument, $1, that answers with one text."""
        return str((await self.fetch(sql, argument))[0][0])

    @abstractmethod
    async def copy(self, chunks: Iterable[str]) -> None:
        """COPY text into pgwake.jobs; see produce/options.py for the columns."""

    async def close(self) -> None:  # noqa: B027, most have opened nothing
        """Close what was opened here."""

    def check_transaction(self) -> None:
        """See SyncAdapter."""
        _check_one(is_pool=self.is_pool)


class SyncAdapter(ABC):
    """Asks on a connection that blocks; as AsyncAdapter otherwise."""

    is_pool = False

    @abstractmethod
    def fetch(self, sql: str, *arguments: Any) -> Sequence[Any]:
        """Run a statement; its rows."""

    def ask(self, sql: str, argument: str | None) -> str:
        """Run a statement that answers with one text."""
        return str(self.fetch(sql, argument)[0][0])

    @abstractmethod
    def copy(self, chunks: Iterable[str]) -> None:
        """COPY text."""

    def check_transaction(self) -> None:
        """Look whether its next statement is part of a transaction of its owner's.

        Raises:
            ConfigurationError: It is one of its own.
        """
        _check_one(is_pool=self.is_pool)


def _check_one(*, is_pool: bool) -> None:
    if is_pool:
        raise ConfigurationError(
            "a pool, an engine or a URL has no transaction of yours: use a connection"
        )
