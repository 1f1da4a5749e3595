"""What a database refuses, whatever the driver, as pgwake's own errors."""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import asyncpg

from pgwake.errors import (
    ROLES_HINT,
    ConfigurationError,
    DuplicateJobError,
    InvalidArgumentError,
    NoSuchJobError,
    PgwakeError,
)


@dataclass(frozen=True, slots=True)
class _Refusal:
    code: str
    message: str
    detail: str
    hint: str
    schema: str
    constraint: str


@contextmanager
def refusals() -> Iterator[None]:
    """Where the database refuses a call, raise pgwake's own error from the driver's."""
    try:
        yield
    except PgwakeError:
        raise
    except Exception as error:
        refusal = _refusal(error)
        own = None if refusal is None else _own_error(refusal)
        if own is None:
            raise
        raise own from error


def _refusal(error: BaseException) -> _Refusal | None:
    """What the server said: frameworks wrap the error of their driver."""
    seen: BaseException | None = error
    while seen is not None:
        if isinstance(seen, asyncpg.PostgresError) and seen.sqlstate:
            return _Refusal(
                seen.sqlstate,
                seen.message or "",
                seen.detail or "",
                seen.hint or "",
                seen.schema_name or "",
                seen.constraint_name or "",
            )
        diagnosis = getattr(seen, "diag", None)  # psycopg's
        if diagnosis is not None and diagnosis.sqlstate:
            return _Refusal(
                diagnosis.sqlstate,
                diagnosis.message_primary or "",
                diagnosis.message_detail or "",
                diagnosis.message_hint or "",
                diagnosis.schema_name or "",
                diagnosis.constraint_name or "",
            )
        seen = getattr(seen, "orig", None) or seen.__cause__
    return None


def _own_error(refusal: _Refusal) -> PgwakeError | None:
    said = f"{refusal.message}. {refusal.hint}" if refusal.hint else refusal.message
    match refusal.code:
        case "PW001":
            return NoSuchJobError(said)
        case "PW003":
            return InvalidArgumentError(said)
        case "42501":
            return ConfigurationError(f"{refusal.message}. {ROLES_HINT}")
        case "PW005":
            found = re.search(r"\d+", refusal.detail)
            return DuplicateJobError(said, int(found[0]) if found else None)
        case "23505" if refusal.constraint == "jobs_unique_key_idx":
            return DuplicateJobError(
                "a live job has the unique key of one that was to be copied. Use"
                " enqueue_many, which can return or replace it"
            )
        case "23514" if refusal.schema == "pgwake":
            rule = refusal.constraint.replace("_", " ")
            return InvalidArgumentError(f"refused, since it must hold that: {rule}")
        case "54000":
            return InvalidArgumentError(
                f"{refusal.message}. Use copy, or fewer jobs a call"
            )
        case "3F000" | "42883" | "42P01" if "pgwake" in refusal.message:
            return ConfigurationError(
                f"{refusal.message}: run `pgwake init` on this database, with this"
                " version of pgwake"
            )
        case code if code.startswith("22"):
            return InvalidArgumentError(said)
    return None
