"""Commands about many jobs do a batch after the other, each in a transaction."""

import sys
from collections import Counter
from collections.abc import Awaitable, Callable
from typing import Annotated, TypeAlias

import typer

from pgwake.cli.shared import options
from pgwake.cli.shared.output import ask, bar, confirm, has_bar, note, wrong_usage
from pgwake.database.connection import Connection

Counts: TypeAlias = Counter[str]
# Does something to so many jobs, or (True) only counts them; how many, by outcome.
Some: TypeAlias = Callable[[Connection, int, bool], Awaitable[Counts]]

BATCH = 1000  # jobs a transaction
MAX_AT_ONCE = 1_000_000  # jobs that are counted

Ids = Annotated[
    list[int] | None,
    typer.Argument(
        metavar="ID", parser=options.job_id, show_default=False, help="Jobs."
    ),
]
Limit = Annotated[
    int, typer.Option("--limit", metavar="N", min=1, help="Jobs at most.")
]


def in_batches(
    some: Some,
    words: tuple[str, str, str],
    limit: int,
    database_url: str | None,
    *,
    dry_run: bool,
    yes: bool,
    quiet: bool,
) -> Counts:
    """Do something to jobs, a batch after the other; how many, by outcome.

    words: what a person agrees to, what the bar says, what is said of a part.
    """
    question, doing, done = words
    total = 0
    if dry_run or is_asked(yes) or has_bar(quiet=quiet):
        most = min(limit, MAX_AT_ONCE)
        found = ask(database_url, lambda c: some(c, most, True))
        if dry_run:
            return found
        total = found.total()
    counts: Counts = Counter()

    async def run(connection: Connection) -> None:
        while (size := min(BATCH, limit - counts.total())) > 0:
            found = await some(connection, size, False)
            counts.update(found)
            advance(found.total())
            if found.total() < size:
                return

    confirm(f"{said(total, limit)}{question}", yes=yes)
    with bar(doing, total, quiet=quiet) as advance:
        told_if_stopped(
            lambda: ask(database_url, run), lambda: f"{counts.total()} {done}"
        )
    return counts


def told_if_stopped(run: Callable[[], None], done: Callable[[], str]) -> None:
    """Run batches, each a transaction; if that is cut short, tell what was done."""
    try:
        run()
    except BaseException:
        note(f"stopped: {done()}; a batch under way may yet be")
        raise


def check_choice(
    ids: list[int] | None,
    filters: tuple[object, ...],
    bulk_options: tuple[object, ...] = (),
    *,
    dry_run: bool = False,
) -> None:
    """Refuse ids together with what is for filters, and neither of them."""
    has_filter = any(value is not None for value in filters)
    if not ids and not has_filter:
        wrong_usage("name jobs by their ids, or say which: --queue, --kind, ...")
    if ids and (
        has_filter or dry_run or any(value is not None for value in bulk_options)
    ):
        wrong_usage("with ids there are no filters, and nothing else to choose.")


def is_asked(yes: bool) -> bool:
    """Whether a person is about to be asked, who should know how many."""
    return not yes and sys.stdin.isatty()


def said(count: int, limit: int) -> str:
    """Say how many there are, as far as they were counted."""
    more = "or more " if count == MAX_AT_ONCE < limit else ""
    return f"{count} {more}" if count else ""


def counted(counts: dict[str, int]) -> str:
    """Say how many by outcome."""
    return ", ".join(f"{n} {what}" for what, n in counts.items() if n) or "none"
