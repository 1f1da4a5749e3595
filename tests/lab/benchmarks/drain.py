"""How fast a backlog of no-op jobs is run, and what each job costs.

From the moment that the worker, already started, is let at them, until none is left.
"""

import json
import os
from functools import partial

from pgwake.cli.bench.measure import Figures

from .contenders import DELETING_REFERENCE, PGWAKE, REFERENCE, Contender
from .measure import Bench, Run

QUICK = {"jobs": 5_000, "repeats": 1}


async def run(bench: Bench, *, jobs: int = 50_000, repeats: int = 5) -> list[Run]:
    """Drain under each condition."""
    drain = partial(drained, bench, jobs)
    return await bench.rounds(
        {
            "10 slots": drain,
            "100 slots": partial(drain, slots=100),
            "2 kB": partial(drain, payload_bytes=2000),
            "2 kB, dropped": partial(
                drain, payload_bytes=2000, policy="drop_payloads = true"
            ),
            "2 processes": partial(drain, processes=2),
            "hand-written loop": partial(drain, REFERENCE),
            "hand-written loop, 2 kB": partial(drain, REFERENCE, payload_bytes=2000),
            "hand-written loop that deletes": partial(drain, DELETING_REFERENCE),
        },
        repeats,
    )


async def drained(
    bench: Bench,
    jobs: int,
    contender: Contender = PGWAKE,
    *,
    slots: int = 10,
    processes: int = 1,
    payload_bytes: int = 0,
    keys: int = 0,
    is_chain: bool = False,
    policy: str = "",
) -> Figures:
    """Drain a backlog, with so many keys and under that policy of its queue.

    is_chain: each job has the one before as its parent.
    """
    payload: dict[str, object] = {"number": 1}
    if payload_bytes:  # that no compression makes smaller
        payload["text"] = os.urandom(payload_bytes // 2).hex()
    async with contender.database(bench) as (url, connection):
        await connection.execute(contender.hold)
        if policy:
            await connection.execute(f"update pgwake.queues set {policy}")
        await contender.fill(connection, jobs, json.dumps(payload), keys, is_chain)
        arguments = ("--queue", f"default:{slots}") if slots != 10 else ()
        return await contender.drain(url, connection, *arguments, processes=processes)
