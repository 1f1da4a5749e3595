"""Batch handlers for worker processes: --import worker.batch_handlers."""

import asyncio

from typing_extensions import TypedDict  # pydantic refuses typing's before 3.12

from pgwake import job


class Nap(TypedDict):
    """A payload."""

    seconds: float


@job("batched nap", batch=2, batch_wait=5)
async def batched_nap(naps: list[Nap]) -> list[int]:
    """Sleep as long as the longest; the size of the batch is each one's result."""
    await asyncio.sleep(max(nap["seconds"] for nap in naps))
    return [len(naps)] * len(naps)
