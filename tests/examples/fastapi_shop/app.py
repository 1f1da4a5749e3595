"""The shop: uvicorn app:app."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from fastapi import FastAPI, HTTPException

from database import Order, Session, connect
from jobs import send_receipt
from pgwake import Settings, Worker


@asynccontextmanager
async def lifespan(_: FastAPI) -> AsyncIterator[None]:
    """Have a worker as long as the application runs."""
    engine = connect()
    async with Worker(Settings.load()):
        yield
    await engine.dispose()


app = FastAPI(lifespan=lifespan)


@app.post("/orders")
async def sell(email: str, session: Session, seconds: float = 0) -> dict[str, int]:
    """Take an order; its receipt is a job of the same transaction."""
    order = Order(email=email)
    session.add(order)
    await session.flush()
    job_id = await send_receipt.using(session).enqueue(order.id, seconds=seconds)
    if "@" not in email:
        raise HTTPException(422, "no address")  # rolls both back
    return {"order": order.id, "job": job_id}
