"""The small disk: it takes root, and says so to others."""

import asyncpg
import pytest

from lab.chaos.disk import SmallDisk
from pgwake.database.embedded import EmbeddedServer

_ON_IT = """
select count(*) from pg_class as c
join pg_tablespace as t on t.oid = c.reltablespace where t.spcname = 'pgwake_chaos'
"""


def test_it_can_be_made_under_a_server_of_ones_own_only() -> None:
    problem = SmallDisk.obstacle(None)

    assert problem is not None
    assert "has started itself" in problem


async def test_a_full_disk_refuses_rows_until_it_is_large_again(
    own_server: EmbeddedServer,
) -> None:
    problem = SmallDisk.obstacle(own_server)
    if problem is not None:
        assert "can mount a small disk" in problem or "can be had" in problem
        return
    connection = await asyncpg.connect(own_server.url)
    await connection.execute("create table rows (words text)")
    fill = "insert into rows select repeat('x', 100) from generate_series(1, 10000)"

    async with SmallDisk.under(own_server) as disk:
        assert await connection.fetchval(_ON_IT) > 0
        disk.fill()
        with pytest.raises(asyncpg.DiskFullError):
            await connection.execute(fill)
        disk.free()
        assert await connection.execute(fill) == "INSERT 0 10000"

    assert await connection.fetchval(_ON_IT) == 0
    assert await connection.fetchval("select count(*) from rows") == 10_000
    await connection.close()
