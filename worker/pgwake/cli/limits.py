"""The commands about limits: of a queue and its keys, and of a kind."""

from typing import Annotated

import typer

from pgwake.cli.shared.output import (
    KEEP,
    Json,
    QueueName,
    Url,
    ask,
    note,
    number_or_none,
    print_json,
    say,
    wrong_usage,
)
from pgwake.cli.shared.tables import Row
from pgwake.database.statements.operate import change_kind_limits, change_limits

KEY_LIMITS = {"key_limit", "key_rate"}  # that a key may have of its own

MaxRunning = Annotated[
    str | None, typer.Option(metavar="N", help="Jobs that run at once, or none.")
]
Rate = Annotated[
    str | None, typer.Option(metavar="N", help="Starts a second, or none.")
]
Burst = Annotated[
    str | None, typer.Option(metavar="N", help="Starts at once, or none.")
]


def limit(
    queue_name: QueueName,
    max_running: MaxRunning = None,
    rate: Rate = None,
    burst: Burst = None,
    key_limit: Annotated[
        str | None,
        typer.Option(
            metavar="N", help="Jobs of a concurrency key at once, or none: 1."
        ),
    ] = None,
    key_rate: Annotated[
        str | None,
        typer.Option(
            metavar="N", help="Starts a second of a concurrency key, or none."
        ),
    ] = None,
    key_burst: Annotated[
        str | None, typer.Option(metavar="N", help="Of its starts at once, or none.")
    ] = None,
    max_pending: Annotated[
        str | None,
        typer.Option(
            metavar="N", help="Jobs that may wait; more are refused. Or none."
        ),
    ] = None,
    key: Annotated[
        str | None,
        typer.Option(
            metavar="KEY",
            help="Of this concurrency key alone: --key-limit, --key-rate.",
        ),
    ] = None,
    as_json: Json = False,
    database_url: Url = None,
) -> None:
    """Show a queue's limits, or change those that are given; "none" lifts one."""
    changes = _changes(
        max_running,
        rate,
        burst,
        key_limit=number_or_none("--key-limit", key_limit),
        key_rate=number_or_none("--key-rate", key_rate, float),
        key_burst=number_or_none("--key-burst", key_burst),
        max_pending=number_or_none("--max-pending", max_pending),
    )
    if key is not None and not ({*changes} and {*changes} <= KEY_LIMITS):
        wrong_usage("--key needs --key-limit or --key-rate; nothing else goes with it.")
    limits = ask(database_url, lambda c: change_limits(c, queue_name, key, changes))
    _show_limits(limits, as_json=as_json)


def limit_kind(
    kind: Annotated[str, typer.Argument(metavar="KIND", show_default=False)],
    max_running: MaxRunning = None,
    rate: Rate = None,
    burst: Burst = None,
    as_json: Json = False,
    database_url: Url = None,
) -> None:
    """Show a kind's limits in all queues together, or change those that are given."""
    changes = _changes(max_running, rate, burst)
    limits = ask(database_url, lambda c: change_kind_limits(c, kind, changes))
    _show_limits(limits, as_json=as_json)


def _changes(
    max_running: str | None, rate: str | None, burst: str | None, **others: object
) -> Row:
    """Return the limits that are given; None: it is to be lifted."""
    changes = {
        "max_running": number_or_none("--max-running", max_running),
        "rate_limit": number_or_none("--rate", rate, float),
        "rate_burst": number_or_none("--burst", burst),
        **others,
    }
    return {name: value for name, value in changes.items() if value is not KEEP}


def _show_limits(limits: Row, *, as_json: bool) -> None:
    if as_json:
        print_json(limits)
        return
    keys, key_rates = limits.pop("keys", {}), limits.pop("key_rates", {})
    for name, value in limits.items():
        say(f"{name}: {'none' if value is None else value}")
    for one, value in keys.items():
        say(f"key {one}: {value}")
    for one, value in key_rates.items():
        say(f"key {one}: {value} a second")
    if limits.get("key_burst") and not limits["key_rate"] and not key_rates:
        note("key_burst needs a rate, and no key of the queue has one: --key-rate")
