"""Handlers that pay into an account: pgwake run --import worker.paying."""

import asyncio
import os
import random
import signal
from pathlib import Path

from pgwake import Job, job
from support.worker.handlers import note

SCHEMA = """
create table account (balance int not null);
insert into account values (0);
create table ledger (job bigint not null);
"""
PAY = (
    "with paid as (insert into ledger values ($1))"
    " update account set balance = balance + 1"
)


@job("pay")
async def pay(job: Job) -> None:
    """Pay, taking up to 20 ms before the commit."""
    async with job.transaction() as connection:
        await connection.execute(PAY, job.id)
        await connection.execute("select pgwake.enqueue('tell')")
        await asyncio.sleep(random.uniform(0, 0.02))  # noqa: S311


@job("tell")
async def tell() -> None:
    """Come after a payment."""


@job("pay and die once")
async def pay_and_die_once(job: Job, mark: Path) -> None:
    """Take the process down between the write and the commit, the first time."""
    async with job.transaction() as connection:
        await connection.execute(PAY, job.id)
        await connection.execute("select pgwake.enqueue('tell')")
        note(job, "written")
        if not mark.exists():  # noqa: ASYNC240, a look costs microseconds
            mark.touch()  # noqa: ASYNC240
            os.kill(os.getpid(), signal.SIGKILL)
