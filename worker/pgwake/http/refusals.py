"""What an error is to a client: a refusal of the database, or a fault of ours."""

import asyncpg
import structlog

from pgwake.database.connection import describe, is_transient
from pgwake.http.problems import RETRY_SECONDS, ProblemError, unavailable

log = structlog.get_logger()

_OWN = {"PW001": 404, "PW002": 409, "PW003": 422, "PW005": 409}


def problem_of(error: Exception) -> ProblemError:
    """Return what an error is to a client; what is ours is logged, and not told."""
    if isinstance(error, ProblemError):
        return error
    if isinstance(error, asyncpg.PostgresError):
        found = _refusal(error)
        if found is not None:
            return found
    if is_transient(error):
        log.warning("database away from HTTP", error=describe(error))
        said = getattr(error, "message", None)
        return unavailable(said or "the database does not answer")
    if isinstance(error, asyncpg.PostgresError):  # whose DETAIL may show a payload
        log.error("request failed", error=describe(error), where=error.context)
    else:
        log.error("request failed", exc_info=error)
    return ProblemError(
        500, "something went wrong in pgwake; its log says what", "Report it."
    )


def _refusal(error: asyncpg.PostgresError) -> ProblemError | None:
    """Return what the server's refusal is; None: nothing that a client can do."""
    code, message = error.sqlstate or "", error.message or str(error)
    match code:
        case "PW001" | "PW002" | "PW003" | "PW005":
            detail = message if code == "PW003" else _with_detail(message, error.detail)
            return ProblemError(_OWN[code], detail, error.hint, code=code)
        case "PW007":
            later = {"Retry-After": str(RETRY_SECONDS)}
            return ProblemError(429, message, error.hint, headers=later, code=code)
        case "PW004" | "3F000" | "42P01" | "42883" if "pgwake" in message:
            return unavailable(
                message, "Run `pgwake init` with this version of pgwake."
            )
        case "23514" if error.schema_name == "pgwake":
            rule = (error.constraint_name or "").removeprefix("jobs_").replace("_", " ")
            return ProblemError(422, f"it must hold that {rule}", code=code)
        case "P0001":  # an installation's own trigger
            return ProblemError(422, message, error.hint, code=code)
        case "42501":
            return ProblemError(
                403,
                message,
                "Grant pgwake_admin to the role by which this service connects.",
                code=code,
            )
        case "25006":
            return unavailable("the database is read-only now", "Ask the primary.")
        case "57014":
            return unavailable(
                "the database needed too long",
                "Narrow the filter, such as by queue and status, or try again.",
            )
        case _ if code.startswith(("28", "3D")):
            log.warning("database away from HTTP", error=describe(error))
            return unavailable("the database refuses this service")
        case _ if code.startswith(("22", "23", "54")):
            return ProblemError(422, message, error.hint, code=code)
    return None


def _with_detail(message: str, detail: str | None) -> str:
    return f"{message}: {detail}" if detail else message
