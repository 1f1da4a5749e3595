"""What cron_problem takes, and what it says of the rest."""

import random
from datetime import UTC, datetime

import pytest
from cronsim import CronSim, CronSimError

from support import Connection
from support.sql.helpers import call, refused

WORDS = [
    *("*", "*", "*", "0", "1", "5", "7", "12", "23", "29", "30", "31", "59", "60"),
    *(
        "*/2",
        "*/0",
        "*/15",
        "1-5",
        "5-1",
        "0-59/10",
        "8-18/2",
        "5/10",
        "MON",
        "mon-fri",
    ),
    *("JAN", "feb,dec", "SUN-SAT", "L", "LW", "5L", "1#2", "1#6", "0,30", "1,,2", ""),
    *("-1", "x", "1-", "/5", "?", "1.5", "SUNDAY", "1-5/2,*/7", "+1", "1 ", "1#", "٣"),
]


def is_read_by_the_worker(expression: str) -> bool:
    try:
        CronSim(expression, datetime(2027, 1, 1, tzinfo=UTC))
    except CronSimError:
        return False
    return len(expression.split()) == 5


async def test_it_takes_what_the_worker_reads(db: Connection) -> None:
    draw = random.Random(1)  # noqa: S311, the same each time
    expressions = [
        " ".join(draw.choice(WORDS) if draw.random() < 0.3 else "*" for _ in range(5))
        for _ in range(3000)
    ]
    expressions += [f"0 0 {day} {month} *" for day in range(33) for month in range(14)]
    rows = await db.fetch(
        "select e, pgwake.cron_problem(e) is null from unnest($1::text[]) as e",
        expressions,
    )

    differ = [e for e, taken in rows if taken is not is_read_by_the_worker(e)]
    assert differ == []
    assert sum(taken for _, taken in rows) > 1000


@pytest.mark.parametrize(
    "cron",
    [
        *("@hourly", "@daily", "@midnight", "@weekly", "@monthly", "@yearly"),
        *("@Annually", " 30  2\t* * 1-5 ", "0 9 * jan-mar mon,WED,Fri"),
        *(
            "*/15 8-18/2 1,15 * *",
            "0 0 L * *",
            "0 0 LW * *",
            "0 0 * * 5L",
            "0 0 29 2 *",
        ),
    ],
)
async def test_what_is_usual_is_taken(db: Connection, cron: str) -> None:
    assert await call(db, "cron_problem", cron=cron) is None


@pytest.mark.parametrize(
    ("cron", "said"),
    [
        ("", "0 instead of five"),
        ("* * * *", "4 instead of five"),
        ("* * * * * *", "6 instead of five"),
        ("@reboot", "1 instead of five"),
        ("60 * * * *", "'60' as minute"),
        ("* 24 * * *", "'24' as hour"),
        ("* * 0 * *", "'0' as day of month"),
        ("* * * 13 *", "'13' as month"),
        ("* * * * 8", "'8' as day of week"),
        ("* 5-1 * * *", "'5-1' as hour"),
        ("*/0 * * * *", "'*/0' as minute"),
        ("0 0 30 2 *", "a day that its months do not have"),
        ("0 0 31 4,6,9,11 *", "a day that its months do not have"),
    ],
)
async def test_the_field_is_named_that_is_wrong(
    db: Connection, cron: str, said: str
) -> None:
    with refused("PW003") as caught:
        await call(db, "schedule", name="s", cron=cron, kind="k")
    assert said in str(caught.value)
