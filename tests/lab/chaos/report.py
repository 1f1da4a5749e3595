"""What a run says: a line a fault as it happens, and the account."""

from collections.abc import Iterator, Sequence

from .account import Account
from .recovery import Recovery
from .run import Strike

HEADING = f"{'fault':<18} {'lasted':>8} {'jobs/s':>8} {'before':>8}  at 90% again"


def line(strike: Strike, recovery: Recovery, *, is_joined: bool) -> str:
    """Return the line of a fault.

    Args:
        strike: What it did.
        recovery: How it went on.
        is_joined: Whether it was made together with the one before.
    """
    seconds = recovery.seconds
    back = "not yet" if seconds is None else f"after {seconds:.1f} s"
    if strike.accepting_at is not None:
        back += ", from when the server took connections"
    if strike.victims:
        back += f"; {len(strike.victims)} workers hit"
    lasted = (strike.ended_at - strike.began_at).total_seconds()
    return (
        f"{'+ ' * is_joined + strike.fault:<18} {lasted:>6.1f} s "
        f"{recovery.during:>8,.0f} {recovery.before:>8,.0f}  {back}"
    )


def told(account: Account, recoveries: Sequence[Recovery]) -> Iterator[str]:
    """Yield the account's lines."""
    blamed = ", ".join(f"{n} {name}" for name, n in account.blamed.items())
    woken = (
        f"of these {account.judged_wakes:,} met by no fault, the latest by "
        f"{account.latest_wake:.2f} s"
    )
    back = [r.seconds for r in recoveries if r.seconds is not None]
    rows = [
        ("enqueued", account.enqueued, f"{account.settled:,} INSERTs' answer was lost"),
        ("completed", account.completed, ""),
        ("failed", account.failed_on_purpose, "on purpose"),
        ("", account.crashed_out, "crashed too often, by faults alone"),
        (
            "executions",
            account.executions,
            f"{account.unbegun:,} crashed before one",
        ),
        ("executed more than once", account.ran_again, "jobs; because of"),
        *(("", count, why) for why, count in sorted(account.repeats.items())),
        ("blamed on faults", sum(account.blamed.values()), blamed),
        ("effects in transactions", account.effects, ""),
        ("completed with steps", account.stepped, ""),
        ("completed by Django", account.in_django, ""),
        ("completed with a key", account.keyed, "one after the other"),
        ("woken", account.wakes, woken),
        ("lost", account.lost, ""),
        ("doubled effects", account.doubled_effects, ""),
        ("as before again", f"{max(back, default=0):.1f}", "s at the latest"),
    ]
    for name, figure, text in rows:
        shown = figure if isinstance(figure, str) else f"{figure:,}"
        yield f"{name:<26}{shown:>10}  {text}".rstrip()
