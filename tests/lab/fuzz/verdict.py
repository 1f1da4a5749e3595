"""What may become of an input: it is accepted, or refused as was promised."""

from typing import NoReturn

import psycopg

ACCEPTED = "accepted"
CLIENT = "by the driver"  # NUL and lone surrogates do not even leave the client
OWN = {"PW001", "PW002", "PW003", "PW005", "PW007", "55P03"}


class FaultError(AssertionError):
    """An input has done what no input may do."""


def fault(what: str, said: object) -> NoReturn:
    raise FaultError(f"{what}\n  {said}".rstrip())


def of_database(error: psycopg.Error, *, is_of_text: bool = True) -> str:
    """Return the code of a refusal that may be.

    - PW001, PW002, PW003, PW005, PW007, and 55P03 of a notify lock that somebody else
      has: with a message and a hint.
    - 23514 of a check of pgwake's, which is named by a sentence; 23502 and 23505 of
      what a client has inserted itself.
    - 22... and 54..., for a text that is none of its type: said by PostgreSQL of the
      client's own statement, before any function has begun.

    Args:
        error: The refusal.
        is_of_text: Whether the client's texts may be what is refused.

    Raises:
        FaultError: Any other.
    """
    code, said = error.sqlstate, error.diag
    if code is None:
        if isinstance(error, psycopg.DataError):
            return CLIENT
        fault("the session is lost", error)
    told = f"{code} {said.message_primary}\n  {said.context}"
    if not said.message_primary:
        fault("a refusal without a message", told)
    if code in OWN:
        if not said.message_hint:
            fault("a refusal without a hint", told)
        return code
    if code == "23514" and said.schema_name == "pgwake" and said.constraint_name:
        return code
    is_within = "function pgwake." in (said.context or "")
    if code in ("23502", "23505") and not is_within:
        return code
    if code[:2] in ("22", "54") and is_of_text and not is_within:
        return code
    fault("an error from within", told)
