"""A finding of `pgwake doctor`."""

from dataclasses import dataclass
from typing import Literal, TypeAlias

Severity: TypeAlias = Literal["error", "warning", "notice"]
SEVERITIES: tuple[Severity, ...] = ("error", "warning", "notice")


@dataclass(frozen=True, slots=True)
class Finding:
    """What is wrong, and what to type against it.

    Attributes:
        check: Which check has found it.
        severity: error (jobs don't run, or won't soon), warning (it will get worse) or
            notice (somebody may have meant it).
        subject: What it is about.
        problem: What is wrong.
        fix: A statement for psql or a command, its reason behind it as a comment.
        value: What was measured, in seconds where it is a time.
    """

    check: str
    severity: Severity
    subject: str
    problem: str
    fix: str
    value: float | None = None
