"""A worker inside an application: it comes, it goes, and leaves nothing behind."""

import asyncio
import random
import threading

import asyncpg
import pytest

from pgwake import ConfigurationError, Registry, Settings, Worker
from support import Connection, free_port, wait_for
from support.sql.helpers import insert, job
from support.worker.helpers import (
    all_ended,
    embedded,
    ended,
    insert_some,
    sessions,
    settings,
)
from support.worker.metrics import fetch
from support.worker.registries import quick


async def left_nothing(connection: Connection) -> None:
    """Check that no session, thread or task of a worker is left."""

    async def no_session_is_left() -> bool:
        return not await sessions(connection)

    async def no_thread_is_left() -> bool:
        names = [thread.name for thread in threading.enumerate()]
        return not [name for name in names if name.startswith("pgwake-lifeline")]

    await wait_for(no_session_is_left)
    await wait_for(no_thread_is_left)  # it has told of its end before it is gone
    assert asyncio.all_tasks() == {asyncio.current_task()}


async def test_a_stop_at_any_moment_of_the_start_ends_it(
    connection: Connection, database: str
) -> None:
    seconds = random.Random(1591)  # noqa: S311, the moments, always the same
    for _ in range(40):
        await insert_some(connection, "quick", 50)
        worker = embedded(database, quick())
        async with asyncio.timeout(10):
            run = asyncio.create_task(worker.run())
            await asyncio.sleep(seconds.uniform(0, 0.05))
            worker.stop()
            await run

    await left_nothing(connection)
    # Nothing that it had taken is lost or burnt.
    async with embedded(database, quick()):
        await all_ended(connection)
    assert not await connection.fetchval(
        "select count(*) from pgwake.jobs"
        " where status <> 'completed' or attempt <> 1 or crash_count > 0"
    )


async def test_a_worker_that_is_cancelled_at_any_moment_leaves_nothing_behind(
    connection: Connection, database: str
) -> None:
    seconds = random.Random(1616)  # noqa: S311, the moments, always the same
    for _ in range(15):
        run = asyncio.create_task(embedded(database, quick()).run())
        await asyncio.sleep(seconds.uniform(0, 0.1))
        run.cancel()
        with pytest.raises(asyncio.CancelledError):
            async with asyncio.timeout(10):
                await run

    await left_nothing(connection)


async def test_a_stop_before_the_start_lets_nothing_begin(
    connection: Connection, database: str
) -> None:
    job_id = await insert(connection, "quick")
    worker = embedded(database, quick())
    worker.stop()
    async with asyncio.timeout(10):
        await worker.run()

    assert (await job(connection, job_id))["status"] == "pending"


async def test_an_application_that_fails_stops_its_worker(
    connection: Connection, database: str
) -> None:
    with pytest.raises(ZeroDivisionError):
        async with embedded(database, quick()):
            raise ZeroDivisionError

    await left_nothing(connection)


async def test_an_application_that_gives_up_waiting_leaves_nothing_behind(
    connection: Connection, database: str
) -> None:
    nobody = database.replace("127.0.0.1", "127.0.0.2")
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.5), embedded(nobody, quick()):
            pass

    await left_nothing(connection)


async def test_a_database_that_does_not_answer_is_told_at_the_start(
    connection: Connection, database: str
) -> None:
    nobody = database.replace("127.0.0.1", "127.0.0.2")
    with pytest.raises(ConfigurationError, match=r"no answer.* within 0.5 s.*is it up"):
        async with embedded(nobody, quick(), query_timeout=0.5):
            pass

    await left_nothing(connection)


async def test_a_busy_port_is_told_clearly_and_leaves_nothing_behind(
    connection: Connection, database: str
) -> None:
    port = free_port()
    async with embedded(database, quick(), http_host="127.0.0.1", http_port=port):
        with pytest.raises(ConfigurationError, match=f"port {port}.*PGWAKE_HTTP_PORT"):
            async with embedded(
                database, quick(), http_host="127.0.0.1", http_port=port
            ):
                pass
        assert (await fetch(port, "/healthz")).status == 200

    await left_nothing(connection)


async def test_no_port_is_opened_that_nobody_has_asked_for(database: str) -> None:
    given = settings(database).model_dump(exclude={"http_port"}, exclude_unset=True)
    async with (
        Worker(Settings(**given), quick()) as first,
        Worker(Settings(**given), quick()) as second,
    ):
        assert (first._http_port, second._http_port) == (0, 0)
    assert Worker(Settings(**given, http_port=9))._http_port == 9


async def test_a_database_without_the_schema_is_told_clearly(admin_url: str) -> None:
    without = admin_url.rpartition("/")[0] + "/postgres"
    with pytest.raises(ConfigurationError, match=r"no pgwake schema.*pgwake init"):
        async with embedded(without, quick()):
            pass


async def test_a_worker_without_handlers_is_told_clearly(database: str) -> None:
    with pytest.raises(ConfigurationError, match="no handlers"):
        async with embedded(database, Registry()):
            pass


async def test_two_workers_in_one_process_share_nothing(
    connection: Connection, database: str
) -> None:
    registries = {name: Registry() for name in ("red", "blue")}
    ran: list[tuple[str, str]] = []
    workers: dict[str, Worker] = {}
    for name, registry in registries.items():

        @registry.job(name, queue=name)
        async def run(name: str = name) -> None:
            ran.append((name, workers[name].name))

    for name, registry in registries.items():
        workers[name] = embedded(database, registry)
    async with workers["red"], workers["blue"]:
        ids = [await insert(connection, name, queue=name) for name in workers]
        for job_id in ids:
            assert (await ended(connection, job_id))["status"] == "completed"
        pages = {name: w.metrics.render().decode() for name, w in workers.items()}

    assert sorted(ran) == sorted((name, w.name) for name, w in workers.items())
    assert 'kind="red"' in pages["red"]
    assert 'kind="red"' not in pages["blue"]


def test_settings_are_built_once_and_never_changed(database: str) -> None:
    with pytest.raises(ValueError, match="frozen"):
        setattr(settings(database), "grace", 1)  # noqa: B010, mypy knows it too


async def test_a_wrong_password_is_told_at_the_start(database: str) -> None:
    wrong = database.replace(":owner@", ":wrong@")
    with pytest.raises(asyncpg.InvalidPasswordError):
        async with embedded(wrong, quick()):
            pass
