"""Whatever arrives, the series of a worker stay as many as its own names allow."""

import gc
from pathlib import Path

import pytest

from pgwake import Registry
from support import Connection, wait_for
from support.worker.helpers import embedded
from support.worker.metrics import Samples

JOBS = 10_000
ARRIVE = """
insert into pgwake.jobs
  (kind, queue, payload, unique_key, concurrency_key, max_attempts)
select case when n % 2 = 0 then 'fails' else 'stranger ' || n end,
  case when n % 2 = 0 then 'default' else 'q' || n / 2 % 1000 end,
  jsonb_build_object('message', 'unlike any other: ' || n), 'unique ' || n, 'key ' || n,
  1
from generate_series($1::int, $2) as n
"""


def memory() -> int:
    """Bytes of this process that are in memory."""
    gc.collect()
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096


def series(page: bytes) -> int:
    return sum(not line.startswith(b"#") for line in page.splitlines())


async def test_ten_thousand_jobs_with_nothing_in_common_add_no_series_of_their_own(
    connection: Connection, database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pgwake.engine.upkeep.SAMPLE_SECONDS", 0.2)
    monkeypatch.setattr("pgwake.observe.sampler.MAX_SAMPLE_SECONDS", 0.2)
    registry = Registry()

    @registry.job("fails")
    async def fails(message: str) -> None:
        raise ValueError(message)

    queues = "default:100,q1,q3"
    async with embedded(
        database, registry, queues=queues, log_jobs_per_second=1
    ) as worker:

        async def arrive(first: int, last: int) -> None:
            await connection.execute(ARRIVE, first, last)

            async def none_is_left() -> bool:
                return not await connection.fetchval(
                    "select exists (select from pgwake.jobs_live where kind = 'fails')"
                )

            await wait_for(none_is_left)

        async def all_queues_are_shown() -> bool:
            page = Samples(worker.metrics.render())
            return "(other)" in page.label_values("pgwake_queue_paused", "queue")

        await arrive(1, 2000)
        await wait_for(all_queues_are_shown)
        before = series(worker.metrics.render()), memory()
        await arrive(2001, JOBS)
        after = series(worker.metrics.render()), memory()

    page = Samples(worker.metrics.render())
    assert page.total("pgwake_jobs_failed", kind="fails") == JOBS / 2
    # 201 queues of the database, and of this worker three, with two kinds.
    assert after[0] - before[0] <= 20
    assert after[0] < 201 * 11 + 300
    assert page.label_values("pgwake_jobs_claimed", "kind") <= {"fails", "(unknown)"}
    assert len(page.label_values("pgwake_queue_paused", "queue")) == 201
    text = worker.metrics.render().decode()
    for distinct in ("unlike", "unique", "key ", "stranger"):
        assert distinct not in text
    assert after[1] - before[1] < 30e6
