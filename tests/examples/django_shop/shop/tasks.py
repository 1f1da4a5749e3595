"""The same as tasks of Django's."""

import os
import signal
from typing import Any

from django.db.models import F

from shop.models import Order

try:
    from django.tasks import task
except ImportError:  # of Django 5.2
    from django_tasks import task


class DeclinedError(Exception):
    """The bank has said no."""


@task
def send_letter(order: int, *, subject: str = "Hello") -> dict[str, Any]:
    """Send a letter; what was sent."""
    Order.objects.filter(id=order).update(receipts=F("receipts") + 1)
    return {"order": order, "subject": subject}


@task(queue_name="letters")
async def asend_letter(order: int) -> int:
    """Send a letter on the loop."""
    await Order.objects.filter(id=order).aupdate(receipts=F("receipts") + 1)
    return order


@task(takes_context=True)
def charge(context: Any, *, declines: int) -> int:
    """Charge a card that is declined at first; which attempt it was."""
    if context.attempt <= declines:
        raise DeclinedError(f"attempt {context.attempt}")
    return int(context.attempt)


@task
def misbehave(*, exits: bool) -> object:
    """Exit, or return what is no JSON."""
    if exits:
        raise SystemExit("now")
    return misbehave


@task
def die_once(file: str) -> int:
    """Be killed in the first attempt; how many there were."""
    with open(file, "a+") as lives:  # noqa: PTH123, of an example
        lives.write("x")
        lives.seek(0)
        count = len(lives.read())
    if count == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    return count
