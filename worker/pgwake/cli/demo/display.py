"""What `pgwake demo` shows: live on a terminal, else a few plain lines."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from time import monotonic

from rich.console import Console, Group
from rich.live import Live
from rich.padding import Padding
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from pgwake.cli.demo.run import Check, Counts, Files

PLAIN_SECONDS = 2.0
WIDTH = 72
INDENT = "  "


class Display:
    """Writes to the console. Everything is data: no markup is read from it.

    Args:
        console: Where to write.
    """

    def __init__(self, console: Console) -> None:
        self._console = console

    def line(self, *parts: tuple[str, str] | str, indent: str = INDENT) -> None:
        """Write one line of (text, style) parts, never wrapped: people copy from it."""
        texts = (part if isinstance(part, tuple) else (part, "") for part in parts)
        line = Text.assemble(
            indent, *((_printable(text), style) for text, style in texts)
        )
        self._console.print(line, soft_wrap=True)

    def title(self, text: str) -> None:
        """Write a heading with room above it."""
        self._console.print()
        self.line((text, "bold"))

    def fact(self, name: str, text: str) -> None:
        """Write a line about what is being done."""
        self.line((f"{name:<10}", "dim"), text)

    def code(self, *lines: str) -> None:
        """Write lines to copy."""
        self._console.print()
        for line in lines:
            self.line((line, "cyan"), indent=INDENT * 2 if line else "")

    def summary(self, files: Files, checks: Sequence[Check]) -> None:
        """Write what was done, and the checks, a line each."""
        self.title(
            f"{files.completed:,} files in {files.seconds:.1f} s: "
            f"{files.lines:,} lines, {files.functions:,} functions, "
            f"{files.unparsed} do not parse"
        )
        for check in checks:
            mark = ("ok    ", "green") if check.holds else ("FAILED", "bold red")
            self.line(mark, f"  {check.name:<10}", (check.finding, "dim"))

    @contextmanager
    def live(self, wake_up_ms: float) -> Iterator[Callable[[Counts], None]]:
        """Show counts as they come, by calling what this gives."""
        if not self._console.is_terminal:
            yield self._plainly()
            return
        self._console.print()
        with Live(console=self._console, auto_refresh=False) as live:
            yield lambda counts: live.update(_frame(counts, wake_up_ms), refresh=True)
        self._console.print()

    def _plainly(self) -> Callable[[Counts], None]:
        next_at = 0.0

        def show(counts: Counts) -> None:
            nonlocal next_at
            if monotonic() < next_at and counts.ended < counts.total:
                return
            next_at = monotonic() + PLAIN_SECONDS
            self.fact(
                "progress",
                f"{counts.ended:,} of {counts.total:,} jobs done, "
                f"{counts.running} running, {counts.ended_lately:,} jobs/s",
            )

        return show


def _frame(counts: Counts, wake_up_ms: float) -> Padding:
    table = Table(box=None, width=WIDTH, header_style="dim", padding=0, pad_edge=False)
    cells = {
        "pending": f"{counts.pending:,}",
        "running": f"{counts.running:,}",
        "completed": f"{counts.completed:,}",
        "failed": f"{counts.failed:,}",
        "cancelled": f"{counts.cancelled:,}",
        "jobs/s": f"{counts.ended_lately:,}",
        "wake-up": f"{wake_up_ms:.1f} ms",
    }
    for name in cells:
        table.add_column(name, justify="right", ratio=1)
    table.add_row(*cells.values(), style="bold")
    bar = ProgressBar(
        counts.total,
        counts.ended,
        width=WIDTH,
        complete_style="cyan",
        finished_style="green",
    )
    return Padding(Group(table, bar), (0, 0, 0, len(INDENT)))


def _printable(text: str) -> str:
    """Replace control characters: no file's name may drive the terminal."""
    return "".join(c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in text)
