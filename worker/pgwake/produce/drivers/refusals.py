"""What a database refuses, whatever the driver, as pgwake's own errors."""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from pgwake.errors import (
    ROLES_HINT,
    ConfigurationError,
    DuplicateJobError,
    InvalidArgumentError,
    NoSuchJobError,
    PgwakeError,
    QueueFullError,
)

if TYPE_CHECKING:
    import asyncpg


@contextmanager
def refusals() -> Iterator[None]:
    """Where the database refuses a call, raise pgwake's own error from the driver's."""
    try:
        yield
    except PgwakeError:
        raise
    except Exception as error:
        refusal = said_by_server(error)
        own = None if refusal is None else _own_error(refusal)
        if own is None:
            raise
        raise own from error


def said_by_server(error: BaseException) -> "asyncpg.PostgresError | None":
    """What the server said, as asyncpg tells it: frameworks wrap their driver's error.

    None: it was not the server.
    """
    import asyncpg  # noqa: PLC0415, who is not refused does without

    seen: BaseException | None = error
    while seen is not None:
        if isinstance(seen, asyncpg.PostgresError) and seen.sqlstate:
            return seen
        diagnosis = getattr(seen, "diag", None)  # psycopg's
        if diagnosis is not None and diagnosis.sqlstate:
            return asyncpg.PostgresError.new(
                {
                    "C": diagnosis.sqlstate,
                    "M": diagnosis.message_primary,
                    "D": diagnosis.message_detail,
                    "H": diagnosis.message_hint or "",
                    "s": diagnosis.schema_name,
                    "n": diagnosis.constraint_name,
                }
            )
        seen = getattr(seen, "orig", None) or seen.__cause__
    return None


def _own_error(refusal: "asyncpg.PostgresError") -> PgwakeError | None:
    message, constraint = refusal.message or "", refusal.constraint_name or ""
    said = f"{message}. {refusal.hint}" if refusal.hint else message
    match refusal.sqlstate:
        case "PW001":
            return NoSuchJobError(said)
        case "PW003":
            return InvalidArgumentError(said)
        case "42501":
            return ConfigurationError(f"{message}. {ROLES_HINT}")
        case "PW005":
            found = re.search(r"\d+", refusal.detail or "")
            return DuplicateJobError(said, int(found[0]) if found else None)
        case "PW007":
            return QueueFullError(said)
        case "23505" if constraint == "jobs_unique_key_idx":
            return DuplicateJobError(
                "a live job has the unique key of one that was to be copied. Use"
                " enqueue_many, which can return or replace it"
            )
        case "23514" if refusal.schema_name == "pgwake":
            rule = constraint.replace("_", " ")
            return InvalidArgumentError(f"refused, since it must hold that: {rule}")
        case "54000":
            return InvalidArgumentError(f"{message}. Use copy, or fewer jobs a call")
        case "3F000" | "42883" | "42P01" if "pgwake" in message:
            return ConfigurationError(
                f"{message}: run `pgwake init` on this database, with this"
                " version of pgwake"
            )
        case str(code) if code.startswith("22"):
            return InvalidArgumentError(said)
    return None
