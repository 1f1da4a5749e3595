"""Errors as application/problem+json, RFC 9457."""

import json
import re
from collections.abc import Sequence
from http import HTTPStatus
from typing import Any

import asyncpg
import structlog
from pydantic import BaseModel, ConfigDict, Field
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from pgwake.connection import describe, is_transient
from pgwake.jsontext import storable

log = structlog.get_logger()

MEDIA_TYPE = "application/problem+json"
HEADERS = {"Cache-Control": "no-store", "X-Content-Type-Options": "nosniff"}
RETRY_SECONDS = 5
_PLACE = re.compile(r"jobs\[(\d+)\]")
_OWN = {"PW001": 404, "PW002": 409, "PW003": 422, "PW005": 409}


class Fault(BaseModel):
    """What is wrong with one field."""

    model_config = ConfigDict(extra="forbid")

    field: str = Field(examples=["jobs[3].priority"])
    problem: str = Field(examples=["Input should be less than or equal to 100"])


class Problem(BaseModel):
    """An error, as RFC 9457 has it."""

    model_config = ConfigDict(extra="forbid")

    type: str = Field("about:blank", description="says no more than the status")
    title: str = Field(description="the status in words", examples=["Not Found"])
    status: int = Field(examples=[404])
    detail: str = Field(description="what is wrong", examples=["there is no job 17"])
    hint: str | None = Field(None, description="what to do")
    code: str | None = Field(
        None,
        description="the SQLSTATE: PW001 no such job, PW003 ...",
        examples=["PW001"],
    )
    index: int | None = Field(None, description="which job of a batch, from 0")
    errors: list[Fault] | None = Field(None, description="the first fields, at most 20")


class ProblemError(Exception):
    """A request can't be done; becomes a problem.

    Args:
        status: Of HTTP.
        detail: What is wrong.
        hint: What to do.
        headers: Headers of the answer.
        fields: Other fields of Problem.
    """

    def __init__(
        self,
        status: int,
        detail: str,
        hint: str | None = None,
        *,
        headers: dict[str, str] | None = None,
        **fields: Any,
    ) -> None:
        super().__init__(detail)
        self.status = status
        self.detail = detail
        self.hint = hint
        self.headers = headers or {}
        self.fields = fields


def field_problem(faults: Sequence[tuple[str, str]]) -> ProblemError:
    """Return the problem of fields: the path of each, and what is wrong with it."""
    path, problem = faults[0]
    index = _PLACE.match(path)
    return ProblemError(
        422,
        storable(f"{path[:200]}: {problem}" if path else problem),
        "Correct it; nothing has been done. /openapi.json says what is taken.",
        index=int(index[1]) if index else None,
        errors=[
            {"field": storable(path[:200]), "problem": storable(problem)}
            for path, problem in faults[:20]
        ],
    )


def answer(problem: ProblemError) -> Response:
    """Return the answer that tells a problem."""
    fields = {
        "type": "about:blank",
        "title": HTTPStatus(problem.status).phrase,
        "status": problem.status,
        "detail": problem.detail,
        "hint": problem.hint,
        **problem.fields,
    }
    return Response(
        json.dumps(
            {name: value for name, value in fields.items() if value is not None}
        ),
        problem.status,
        {**HEADERS, **problem.headers},
        MEDIA_TYPE,
    )


async def answer_http(_: Request, error: Exception) -> Response:
    """Return the answer to an HTTPException: no such path, or not by this method."""
    assert isinstance(error, HTTPException)  # noqa: S101, the application sees to it
    hints = {
        404: "The paths are told by /openapi.json, where PGWAKE_API_TOKEN is set.",
        405: "Use a method of the header Allow.",
    }
    return answer(
        ProblemError(
            error.status_code,
            error.detail,
            hints.get(error.status_code),
            headers=dict(error.headers or {}),
        )
    )


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
        return unavailable("the database does not answer")
    log.error("request failed", exc_info=error)
    return ProblemError(
        500, "something went wrong in pgwake; its log says what", "Report it."
    )


def unavailable(detail: str, hint: str = "Try again.") -> ProblemError:
    """Return the problem that passes."""
    return ProblemError(503, detail, hint, headers={"Retry-After": str(RETRY_SECONDS)})


def _refusal(error: asyncpg.PostgresError) -> ProblemError | None:
    """Return what the server's refusal is; None: nothing that a client can do."""
    code, message = error.sqlstate or "", error.message or str(error)
    match code:
        case "PW001" | "PW002" | "PW003" | "PW005":
            detail = message if code == "PW003" else _with_detail(message, error.detail)
            return ProblemError(_OWN[code], detail, error.hint, code=code)
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
                "Grant it to the role by which this service connects.",
                code=code,
            )
        case "25006":
            return unavailable("the database is read-only now", "Ask the primary.")
        case "57014":
            return unavailable(
                "the database needed too long",
                "Narrow the filter, such as by queue and status, or try again.",
            )
        case "54001":
            return ProblemError(422, "it is nested too deeply", code=code)
        case _ if code.startswith(("22", "54")):
            return ProblemError(422, message, error.hint or error.detail, code=code)
    return None


def _with_detail(message: str, detail: str | None) -> str:
    return f"{message}: {detail}" if detail else message
