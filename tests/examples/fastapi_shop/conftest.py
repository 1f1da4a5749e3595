"""A client of the shop without its worker: jobs run when a test says so."""

import asyncio
from collections.abc import AsyncIterator

import pytest
from httpx import ASGITransport, AsyncClient
from sqlalchemy.ext.asyncio import AsyncSession

from app import app
from database import connect, create_tables, new_session, sessions

pytest_plugins = ["pgwake.testing"]


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture(scope="session")
def pgwake_schema(pgwake_template: str) -> None:
    """The shop's tables, in the database that every test's is cloned from."""
    asyncio.run(create_tables(pgwake_template))


@pytest.fixture
async def client(pgwake_database: str) -> AsyncIterator[AsyncClient]:
    """A client; requests and handlers use the test's own database."""
    engine = connect(pgwake_database)
    transport = ASGITransport(app)  # it does not run the lifespan: no worker
    async with AsyncClient(transport=transport, base_url="http://shop") as client:
        yield client
    await engine.dispose()


@pytest.fixture
async def session(client: AsyncClient) -> AsyncIterator[AsyncSession]:
    """The session of every request, and its transaction; rolled back at the end."""
    del client  # it has bound the sessions
    async with sessions() as session:
        app.dependency_overrides[new_session] = lambda: session
        yield session
        app.dependency_overrides.clear()
        await session.rollback()
