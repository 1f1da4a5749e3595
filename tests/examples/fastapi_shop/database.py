"""What the shop keeps, and the sessions that its requests and handlers share."""

import asyncio
import os
from collections.abc import AsyncIterator
from typing import Annotated

from fastapi import Depends
from sqlalchemy.ext.asyncio import (
    AsyncEngine,
    AsyncSession,
    async_sessionmaker,
    create_async_engine,
)
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column

URL = os.environ.get("PGWAKE_DATABASE_URL", "")
sessions = async_sessionmaker()  # bound by connect(), in tests to the test's database


class Base(DeclarativeBase):
    """The shop's tables."""


class Order(Base):
    """An order.

    Attributes:
        email: Whose it is.
        receipts: How often a receipt was counted.
    """

    __tablename__ = "orders"
    id: Mapped[int] = mapped_column(primary_key=True)
    email: Mapped[str]
    receipts: Mapped[int] = mapped_column(default=0)


def connect(url: str = URL) -> AsyncEngine:
    """Bind the sessions to a database: the one that the queue is in."""
    engine = create_async_engine(url.replace("postgresql:", "postgresql+asyncpg:", 1))
    sessions.configure(bind=engine)
    return engine


async def create_tables(url: str = URL) -> None:
    """Create the shop's tables where they are missing."""
    engine = connect(url)
    async with engine.begin() as connection:
        await connection.run_sync(Base.metadata.create_all)
    await engine.dispose()


async def new_session() -> AsyncIterator[AsyncSession]:
    """Open a session that commits when the request's function has returned."""
    async with sessions.begin() as session:
        yield session


# "function": committed before the response is sent, so that it can't promise too much.
Session = Annotated[AsyncSession, Depends(new_session, scope="function")]

if __name__ == "__main__":
    asyncio.run(create_tables())
