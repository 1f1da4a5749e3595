"""Tables of the command line, as they are drawn."""

from io import StringIO

from rich.console import Console

from pgwake.cli.shared.tables import FittingTable, Row

ROWS: list[Row] = [
    {"name": "a", "count": 5},
    {"name": "\N{CJK UNIFIED IDEOGRAPH-4E2D}" * 30},
]


def drawn(rows: list[Row], width: int) -> list[str]:
    console = Console(file=StringIO(), width=width)
    console.print(FittingTable(rows, right=["count"], spare=["count"], cut="name"))
    assert isinstance(console.file, StringIO)
    return console.file.getvalue().splitlines()


def test_columns_stand_below_their_headers_also_where_characters_are_wide() -> None:
    rows: list[Row] = [{"count": None, **row} for row in ROWS]
    wide = "\N{CJK UNIFIED IDEOGRAPH-4E2D}"
    assert drawn(rows, 80) == [
        "count  name" + " " * 56,
        "    5  a" + " " * 59,
        f"    -  {wide * 30}",
    ]
    # The one that can be cut ends in an ellipsis, within its room.
    assert drawn(rows, 40)[2] == f"    -  {wide * 16}\N{HORIZONTAL ELLIPSIS}"
    assert drawn(rows, 30)[2] == f"{wide * 14} \N{HORIZONTAL ELLIPSIS}"


def test_a_long_table_is_drawn_a_line_at_a_time() -> None:
    """Rich's own tables took half a minute for 10,000 queues."""
    rows: list[Row] = [{f"c{n}": n for n in range(10)}] * 10_000
    console = Console(file=StringIO(), width=80)
    assert len(list(console.render(FittingTable(rows)))) == 2 * 10_001
