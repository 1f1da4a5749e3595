"""What the shop does later."""

from contextlib import nullcontext

from django.db import connection, transaction
from django.db.models import F

from pgwake import Job, job
from shop.models import Order


@job("send_receipt")
def send_receipt(order: int) -> int:
    """Send the receipt of an order; how many were sent."""
    Order.objects.filter(id=order).update(receipts=F("receipts") + 1)
    return Order.objects.get(id=order).receipts


@job("asend_receipt")
async def asend_receipt(order: int) -> int:
    """Do the same on the loop."""
    await Order.objects.filter(id=order).aupdate(receipts=F("receipts") + 1)
    return (await Order.objects.aget(id=order)).receipts


@job("bill")
def bill(job: Job, order: int, *, atomic: bool = True) -> None:
    """Count a receipt once: its row and the end of the job are one commit."""
    with transaction.atomic() if atomic else nullcontext():
        Order.objects.filter(id=order).update(receipts=F("receipts") + 1)
        job.complete(connection, {"billed": order})
    if atomic:
        raise ConnectionError("what comes later can't undo it")
