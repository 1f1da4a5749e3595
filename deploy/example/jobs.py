"""What the compose file's workers do: a job that waits, one that fails once."""

import asyncio

from pgwake import Job, Retry, job


@job("greet")
async def greet(name: str, seconds: float = 0) -> str:
    """Say hello, after so many seconds."""
    await asyncio.sleep(seconds)
    return f"hello, {name}"


@job("stumble")
async def stumble(job: Job) -> str:
    """Fail the first attempt: the job is tried again after a moment."""
    if job.attempt == 1:
        raise Retry(reason="as it is meant to")
    return f"done at attempt {job.attempt}"
