"""The kit's kinds in Python: pgwake run --import tests.clients.handlers."""

import asyncio
from typing import Any

from pgwake import Discard, Job, Retry, job


@job("conformance.echo")
async def echo(number: int, seconds: float = 0) -> dict[str, Any]:
    """Take that long."""
    await asyncio.sleep(seconds)
    return {"number": number, "by": "python"}


@job("conformance.fail_once")
async def fail_once(number: int, seconds: float = 0, *, job: Job) -> dict[str, Any]:
    """Fail at the first attempt."""
    if job.attempt == 1:
        raise Retry(0, "not yet")
    return await echo(number, seconds)


@job("conformance.fail")
async def fail(**payload: Any) -> None:  # noqa: ARG001, it takes whatever there is
    """Fail for good."""
    raise Discard("never")
