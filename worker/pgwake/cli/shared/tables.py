"""Tables for people: as wide as the terminal, and on one far too narrow, lines."""

from collections.abc import Collection, Iterator, Sequence
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from typing import Any

from rich.cells import cell_len, set_cell_size
from rich.console import Console, ConsoleOptions, RenderResult
from rich.segment import Segment
from rich.style import Style
from rich.table import Table
from rich.text import Text

from pgwake.errors import InvalidValueError, UnreadableValueError
from pgwake.jsontext import JsonText, dumps, loads

Row = dict[str, Any]

ELLIPSIS = "\N{HORIZONTAL ELLIPSIS}"
GOOD_CUT, LEAST_CUT = 32, 20  # characters that are left of a column that is cut
GAP = 2  # characters between columns
BAR = 10  # characters of a bar


class FittingTable:
    """A table.

    On a terminal that is too narrow for it, some columns are left out and one is cut.
    On one that is far too narrow for what is left, each value has a line.

    Args:
        rows: What is shown. All have the names of the first.
        right: The columns that are aligned to the right.
        spare: The columns that can be left out, the least needed first.
        cut: The column whose cells may end in an ellipsis.
    """

    def __init__(
        self,
        rows: Sequence[Row],
        *,
        right: Collection[str] = (),
        spare: Sequence[str] = (),
        cut: str | None = None,
    ) -> None:
        names = list(rows[0])
        self._cells = {n: [printable(cell(row[n])) for row in rows] for n in names}
        self._widths = {n: max(map(cell_len, [n, *self._cells[n]])) for n in names}
        self._right = right
        self._spare = spare
        self._cut = cut

    def __rich_console__(
        self, console: Console, options: ConsoleOptions
    ) -> RenderResult:
        """Choose, as Rich draws it."""
        width = options.max_width
        names = list(self._cells)
        if self._width(names) <= width:
            yield from self._lines(names)
            return
        # Others go before it is cut to less than is easily read.
        steps = [(name, GOOD_CUT) for name in (None, *self._spare)]
        for spare, least in [*steps, (None, LEAST_CUT)]:
            names = [name for name in names if name != spare]
            room = width - self._width(names, least)
            if room >= 0:
                yield from self._lines(names, least + room)
                return
        if self._width(names) <= 1.5 * width:
            yield self._table(names)
            return
        for row in zip(*self._cells.values(), strict=True):
            for name, value in zip(self._cells, row, strict=True):
                yield Text(f"{name}: ", "bold", overflow="fold") + Text(value)
            yield ""

    def _width(self, names: Sequence[str], least: int | None = None) -> int:
        widths = [
            self._widths[name]
            if least is None or name != self._cut
            # It may be shorter than what it may be cut to.
            else min(self._widths[name], least)
            for name in names
        ]
        return sum(widths) + GAP * (len(widths) - 1)

    def _lines(
        self, names: Sequence[str], room: int | None = None
    ) -> Iterator[Segment]:
        """Each row in one line. Rich's own table takes 3 ms a row of ten columns."""
        columns = []
        for name in names:
            cells, width = [name, *self._cells[name]], self._widths[name]
            if room is not None and name == self._cut and width > room:
                width = room
                cells = [
                    c if cell_len(c) <= room else set_cell_size(c, room - 1) + ELLIPSIS
                    for c in cells
                ]
            gaps = [" " * (width - cell_len(c)) for c in cells]
            pairs = zip(cells, gaps, strict=True)
            is_right = name in self._right
            columns.append([g + c if is_right else c + g for c, g in pairs])
        header, *lines = map((" " * GAP).join, zip(*columns, strict=True))
        yield from (Segment(header, Style(bold=True)), Segment.line())
        for line in lines:
            yield from (Segment(line), Segment.line())

    def _table(self, names: Sequence[str]) -> Table:
        table = Table(box=None, header_style="bold", pad_edge=False)
        for name in names:
            is_right = name in self._right
            table.add_column(
                name, justify="right" if is_right else "left", overflow="fold"
            )
        for row in zip(*(self._cells[name] for name in names), strict=True):
            table.add_row(*map(Text, row))
        return table


def table(
    rows: Sequence[Row], *, spare: Sequence[str] = (), cut: str | None = None
) -> FittingTable:
    """Return a table with a column for each that has a value in some row."""
    names = [n for n in rows[0] if any(row[n] is not None for row in rows)]
    right = [name for name in names if all(_is_number(row[name]) for row in rows)]
    shown = [{name: row[name] for name in names} for row in rows]
    return FittingTable(shown, right=right, spare=spare, cut=cut)


def _is_number(value: Any) -> bool:
    return value is None or (isinstance(value, int) and not isinstance(value, bool))


def cell(value: Any) -> str:
    """Return a value as people read it; times in UTC."""
    match value:
        case None:
            return "-"
        case bool():
            return "yes" if value else "no"
        case datetime():
            return f"{value.astimezone(UTC):%Y-%m-%d %H:%M:%SZ}"
        case timedelta():
            return f"{value.total_seconds():,.1f} s"
        case list():
            return ", ".join(map(cell, value)) or "-"
        case dict():
            return dumps(value)
        case _:
            return str(value)


def printable(text: str) -> str:
    """Return a text without control characters."""
    return "".join(c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in text)


def cut_short(text: str, length: int) -> str:
    """Return a text of at most so many characters."""
    return text if len(text) <= length else text[: length - 1] + ELLIPSIS


def progress_cell(value: Any) -> str | None:
    """Return progress as people read it: a bar for {done, of}; None for none."""
    value = _read(value)
    match value:
        case {"done": int(done), "of": int(total)} if done >= 0 and total > 0:
            full = BAR * min(done, total) // total
            return f"{'█' * full:░<{BAR}} {done:,} of {total:,}"
    return json_cell(value)


def json_cell(value: Any) -> str | None:
    """Return a JSON value as people read it, at most 40 characters; None for none."""
    value = _read(value)
    if value is None:
        return None
    return cut_short(value if isinstance(value, str) else dumps(value), 40)


def _read(value: Any) -> Any:
    """Return the value of JSON text, or the text if that can't be had."""
    if isinstance(value, JsonText):
        with suppress(UnreadableValueError, InvalidValueError):
            found = loads(value)
            dumps(found)
            return found
    return value
