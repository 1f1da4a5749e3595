"""The step that is written in Python: `pgwake run --import steps`."""

from pgwake import Discard, Job, job


@job("take_from_stock", queue="shop")
async def take_from_stock(job: Job, order: int, item: str, pieces: int) -> None:
    """Take what was bought from the stock: once, whatever happens to the worker."""
    async with job.transaction() as connection:
        left = await connection.fetchval(
            "update shop.stock set pieces = pieces - $2"
            " where item = $1 and pieces >= $2 returning pieces",
            item,
            pieces,
        )
        if left is None:
            raise Discard(f"not {pieces} pieces of {item} are left for order {order}")
        job.set_result({"item": item, "left": left})
