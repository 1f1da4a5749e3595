"""What the application does when an order is paid."""

import psycopg

from pgwake import Queue
from steps import take_from_stock


def pay(connection: psycopg.Connection, order: int) -> int:
    """Mark an order as paid and enqueue what follows, in the caller's transaction.

    Returns:
        The id of the job that reports on the order, when all else is done.
    """
    queue = Queue(connection)
    row = connection.execute(
        "update shop.orders set status = 'paid' where id = %s and status = 'open'"
        " returning customer",
        [order],
    ).fetchone()
    if row is None:
        raise ValueError(f"order {order} is not open")
    lines = connection.execute(
        "select item, pieces from shop.lines where order_id = %s", [order]
    ).fetchall()

    receipt = queue.enqueue(
        "send_receipt", {"order": order, "to": row[0]}, queue="shop"
    )
    taken = queue.enqueue_many(
        take_from_stock.new(order=order, item=item, pieces=pieces)
        for item, pieces in lines
    )
    return queue.enqueue(
        "report", {"order": order}, queue="shop", depends_on=[receipt, *taken]
    )
