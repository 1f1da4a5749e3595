"""An order with steps, killed before every line: each effect is there once."""

import asyncio
import os
import sys
from pathlib import Path

import psycopg
import pytest

import approval

TABLES = """
create table stock (pieces int);
insert into stock values (10);
create table payments (key text primary key, number bigint, amount int);
create table mails (number bigint);
create table parcels (number bigint);
"""
PROGRAM = "from support.worker.killing import main; import sys; main(*sys.argv[1:])"


@pytest.mark.parametrize(
    ("acts", "effects"),
    [
        (("+86401", "yes"), {"paid": [20], "pieces": 9, "mails": 1, "parcels": 1}),
        (("no", "+3601"), {"paid": [20, -20], "pieces": 10, "mails": 0, "parcels": 0}),
    ],
    ids=["reminded and sent", "refunded"],
)
async def test_killed_before_every_line_each_effect_is_there_once(
    own_database: str, tmp_path: Path, acts: tuple[str], effects: dict[str, object]
) -> None:
    with psycopg.connect(own_database) as connection:
        connection.execute(TABLES)
    died_at = tmp_path / "died_at"
    died_at.touch()
    driver = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", PROGRAM, "42", str(died_at), *acts),
        env={
            **os.environ,
            "BANK_URL": own_database,
            "PYTHONPATH": os.pathsep.join(sys.path),
        },
    )
    assert await driver.wait() == 0
    lines = {int(line) for line in died_at.read_text().split()}
    assert len(lines) >= 15
    assert max(lines) > approval.move_money.__code__.co_firstlineno > min(lines)
    with psycopg.connect(own_database) as connection:
        row = connection.execute(
            "select (select array_agg(amount order by amount desc) from payments),"
            " (select pieces from stock), (select count(*) from mails),"
            " (select count(*) from parcels)"
        ).fetchone()
    assert dict(zip(effects, row or (), strict=True)) == effects
