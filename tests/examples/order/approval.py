"""An order that is charged, waits for a person, is sent or refunded: one job."""

import os
from datetime import timedelta

import asyncpg

from pgwake import Job, WaitTimeoutError, job


@job("order", queue="orders")
async def order(number: int, job: Job) -> str:
    """Reserve and charge at once; send when a person says yes, else refund."""
    async with job.step_transaction("reserve") as step:
        if not step.is_done:
            step.result = await step.connection.fetchval(
                "update stock set pieces = pieces - 1 returning pieces"
            )
    await job.step("charge", move_money, number, 20, key=f"{job.id}:charge")

    approved = f"order:{number}:approved"
    try:
        answer = await job.wait_for(approved, timeout=timedelta(days=1))
    except WaitTimeoutError:
        async with job.step_transaction("remind") as step:
            if not step.is_done:
                await step.connection.execute("insert into mails values ($1)", number)
        answer = await job.wait_for(approved, name="approved after the reminder")

    if answer["yes"]:
        async with job.step_transaction("send") as step:
            if not step.is_done:
                await step.connection.execute("insert into parcels values ($1)", number)
        return "sent"

    await job.sleep("time for second thoughts", hours=1)
    await job.step("refund", move_money, number, -20, key=f"{job.id}:refund")
    async with job.step_transaction("put back") as step:
        if not step.is_done:
            await step.connection.execute("update stock set pieces = pieces + 1")
    return "refunded"


async def move_money(number: int, amount: int, *, key: str) -> str:
    """Ask a bank, which does once what it is asked twice under the same key."""
    bank = await asyncpg.connect(os.environ["BANK_URL"])
    try:
        await bank.execute(
            "insert into payments values ($1, $2, $3) on conflict (key) do nothing",
            key,
            number,
            amount,
        )
    finally:
        await bank.close()
    return key
