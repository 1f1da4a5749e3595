"""What the shop does later."""

import asyncio

from database import Order, sessions
from pgwake import Job, job


@job("send_receipt", max_attempts=5)
async def send_receipt(job: Job, order: int, seconds: float = 0) -> None:
    """Send the receipt of an order, and count it once: with the end of the job."""
    await asyncio.sleep(seconds)  # the mail server
    async with sessions.begin() as session:
        row = await session.get_one(Order, order, with_for_update=True)
        row.receipts += 1
        await job.complete(session, {"sent_to": row.email})
