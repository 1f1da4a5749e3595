"""Errors as application/problem+json, RFC 9457."""

import json
import re
from collections.abc import Sequence
from http import HTTPStatus
from typing import Any

from pydantic import BaseModel, ConfigDict, Field
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from pgwake.jsontext import storable

MEDIA_TYPE = "application/problem+json"
HEADERS = {"Cache-Control": "no-store", "X-Content-Type-Options": "nosniff"}
RETRY_SECONDS = 5
_PLACE = re.compile(r"jobs\[(\d+)\]")


class FieldError(BaseModel):
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
    errors: list[FieldError] | None = Field(
        None, description="the first fields, at most 20"
    )


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
        403: "Ask by an address or as localhost, or set PGWAKE_HTTP_HOST to where it "
        "is to listen.",
        404: "Where PGWAKE_API_TOKEN is set, / is the status page, and /openapi.json "
        "tells the paths.",
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


def unavailable(detail: str, hint: str = "Try again.") -> ProblemError:
    """Return the problem that passes."""
    return ProblemError(503, detail, hint, headers={"Retry-After": str(RETRY_SECONDS)})
