"""The operation on findings: what is wrong."""

from typing import Any

from pgwake.database.statements import http
from pgwake.finding import Severity
from pgwake.http.context import ApiContext
from pgwake.http.fields import ResponseModel
from pgwake.http.operation import NoParameters, Operation, ParsedRequest


class Finding(ResponseModel):
    """What is wrong, and what to type against it."""

    check: str
    severity: Severity
    subject: str
    problem: str
    fix: str


class Findings(ResponseModel):
    """What pgwake.diagnose() finds, the worst first; pgwake doctor finds some more."""

    findings: list[Finding]


async def _list(context: ApiContext, _: ParsedRequest[NoParameters, None]) -> str:
    return await context.pool.read(http.diagnose)


OPERATIONS: tuple[Operation[Any, Any], ...] = (
    Operation(
        method="GET",
        path="/api/findings",
        summary="What is wrong, and what to type against it",
        parameters=NoParameters,
        answer=Findings,
        do=_list,
    ),
)
