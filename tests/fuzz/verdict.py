"""What may become of an input: it is accepted, or refused as was promised."""

from typing import NoReturn

import psycopg

ACCEPTED = "accepted"
CLIENT = "by the driver"  # NUL and lone surrogates do not even leave the client
OWN = {"PW001", "PW002", "PW003", "PW005", "55P03"}


class FaultError(AssertionError):
    """An input has done what no input may do."""


def fault(what: str, said: object) -> NoReturn:
    raise FaultError(f"{what}\n  {said}".rstrip())


def of_database(error: psycopg.Error, *, may_be_of_class_22: bool = False) -> str:
    """Return the code of a refusal that may be.

    - PW001, PW002, PW003, PW005, and 55P03 of a bell that somebody else has: with a
      message and a hint.
    - 23514 of a check of pgwake's, which is named by a sentence; 23502, 23505 and 23503
      of what a client has inserted itself.
    - 22... and 54..., for a text that is none of its argument's type: said by
      PostgreSQL of the client's own statement, before any function has begun; 22...
      from within a function only where its contract has it.

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
    is_own = code[:2] in ("22", "54") or code in ("23502", "23505")
    if is_own and (not is_within or (may_be_of_class_22 and code[:2] == "22")):
        return code
    fault("an error from within", told)
