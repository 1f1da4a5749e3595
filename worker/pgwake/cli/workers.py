"""The commands about who works: workers, kinds."""

from typing import Any

from pgwake.cli.shared.output import Json, Url, note, read, show
from pgwake.database.statements.stats import list_kinds, list_workers


def workers(as_json: Json = False, database_url: Url = None) -> None:
    """Show the workers that report themselves, and what they run."""
    rows = read(database_url, list_workers)
    if as_json:
        show(rows, as_json=True)
        return
    live = [row for row in rows if row["is_live"]]
    for row in rows:
        row["state"] = "live" if row.pop("is_live") else "silent"
        row["kinds"] = _some(row["kinds"])
        row["running"] = row.pop("running_count")
    # A worker's name begins with its host and process.
    spare = ("host", "pid", "version", "started_at", "seen_at", "kinds")
    show(rows, as_json=False, spare=spare, cut="queues")
    if rows:
        hosts = len({row["host"] for row in live})
        note(
            f"{_count(len(live), 'live process', 'es')} on {_count(hosts, 'host')}"
            f"{_slots(live)}: "
            f"{_count(sum(row['running'] for row in live), 'job')} running"
        )
    else:
        note("no worker has reported itself")


def _slots(workers: list[dict[str, Any]]) -> str:
    """Say how many jobs workers run at once, unless one does not report it."""
    slots = [row["slots"] for row in workers]
    return "" if None in slots else f", {_count(sum(slots), 'slot')}"


def _count(number: int, what: str, plural: str = "s") -> str:
    return f"{number:,} {what}{'' if number == 1 else plural}"


def kinds(as_json: Json = False, database_url: Url = None) -> None:
    """Show the kinds that are known, their policy, and how many workers handle them."""
    rows = read(database_url, list_kinds)
    if as_json:
        show(rows, as_json=True)
        return
    show(
        (
            {
                "kind": row["name"],
                "live workers": row["live_worker_count"],
                "declared": row["declared"] or None,
                "by version": row["declared_version"],
                "overridden": row["overrides"] or None,
                "given back": row["bounce_count"] or None,
                "last": row["bounced_at"],
            }
            for row in rows
        ),
        as_json=False,
    )
    if not rows:
        note("no kind is known: no worker has reported itself")


def _some(names: list[str]) -> list[str]:
    return names if len(names) <= 5 else [*names[:5], f"and {len(names) - 5} more"]
