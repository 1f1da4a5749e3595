"""What the worker runs: the good jobs, and one kind that takes what comes."""

from typing import Any

from pgwake import job

GOOD = "good jobs"  # their queue and kind, which no input names


@job(GOOD, queue=GOOD)
async def good(number: int) -> int:
    return number


@job("fuzz.echo", queue="default", max_attempts=2)
async def echo(kind: str, priority: int = 0, **others: Any) -> dict[str, Any]:
    return {"kind": kind, "priority": priority, **others}
