"""A Django project through lost sessions, a killed process and a failover."""

import asyncio
import os
import signal
from pathlib import Path

from pgwake.database.embedded import EmbeddedServer
from support import OWNER, Connect, Connection, database_url, wait_for
from support.standby import promote, standby_of
from support.worker.django_shop import manage, working
from support.worker.helpers import all_ended

HANDLERS = ["bill_once", "abill_once", "bill_apart"]
ORDER = """
with shop_order as (
  insert into shop_order (email, receipts)
  select 'ada', 0 from generate_series(1, 30)
  returning id
)
insert into pgwake.jobs (kind, payload)
select ($1::text[])[1 + id % 3], jsonb_build_object('order', id) from shop_order
"""
IS_BILLING = """
select exists (
  select from pg_stat_activity
  where query like '%pg_sleep%' and state = 'active' and pid <> pg_backend_pid()
)
"""
LOSE_ALL = """
select pg_terminate_backend(pid) from pg_stat_activity
where datname = current_database() and pid <> pg_backend_pid()
"""


async def sell(db: Connection) -> None:
    """Have orders billed, and wait until transactions of handlers are open."""
    await db.execute(ORDER, HANDLERS)
    await wait_for(lambda: db.fetchval(IS_BILLING))


async def test_a_project_loses_nothing_and_needs_no_restart(
    own_server: EmbeddedServer, own_database: str, connect: Connect
) -> None:
    with standby_of(own_server) as other:
        hosts = ",".join(f"127.0.0.1:{one.port}" for one in (own_server, other))
        name = Path(own_database).name
        url = f"postgresql://{OWNER}:owner@{hosts}/{name}?target_session_attrs="
        manage(url + "read-write", "migrate", "shop")
        words = (
            "--import support.worker.django_handlers --processes 2 --queue default:4"
        )
        async with working(url + "read-write", *words.split()) as worker:
            await worker.started(2)
            old = await connect(own_database)
            await old.execute("delete from pgwake.jobs")  # of the migration's
            await sell(old)
            await old.execute(LOSE_ALL)
            await sell(old)
            os.kill(worker.children[0], signal.SIGKILL)
            await sell(old)
            await asyncio.to_thread(own_server._halt, "fast")
            await asyncio.to_thread(promote, other)

            new = await connect(database_url(other, name))
            await all_ended(new)
            await sell(new)
            await all_ended(new)
            assert worker.log("attempt failed, will retry")
            assert worker.log("process died", exit=-9)
            assert len(worker.children) == 3
        count = 4 * 30
        rows = await new.fetch(
            "select status, kind like 'shop.%' as is_task, count(*)::int"
            " from pgwake.jobs group by 1, 2 order by 2"
        )
        assert [tuple(row) for row in rows] == [
            ("completed", False, count),
            ("completed", True, count),
        ]
        receipts = await new.fetch(
            "select receipts, count(*) from shop_order group by 1"
        )
        assert [tuple(row) for row in receipts] == [(1, count)]
        await new.close()
