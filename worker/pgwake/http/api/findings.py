"""The operation on findings: what is wrong."""

from typing import Any

from pgwake.database.statements import http
from pgwake.finding import Severity
from pgwake.http.fields import ResponseModel
from pgwake.http.operation import Operation, listing


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


OPERATIONS: tuple[Operation[Any, Any], ...] = (
    listing(
        "/api/findings",
        "The problems of the database, and the command that mends each",
        Findings,
        http.diagnose,
    ),
)
