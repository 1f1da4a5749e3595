"""pgwake.testing, in real runs of pytest on a project like a user's."""

import os
import re
from collections.abc import Callable
from typing import TypeAlias
from urllib.parse import urlsplit

import psycopg
import pytest

from pgwake.database.embedded import EmbeddedServer

pytest_plugins = ["pytester"]
SHOP = """
import asyncio
from datetime import timedelta

import asyncpg
from pgwake import Discard, Job, Retry, Snooze, job


@job("receipt", queue="mail", max_attempts=2, backoff_base=60, backoff_jitter=0)
async def receipt(order: int) -> str:
    if order < 0:
        raise ValueError(f"no order {order}")
    await asyncio.sleep(0)
    return f"receipt of {order}"


@job("plain", priority=7)
def plain(order: int) -> int:
    return order + 1


@job("fan")
async def fan(url: str, count: int) -> None:
    connection = await asyncpg.connect(url)
    for order in range(count):
        await connection.execute(
            "insert into pgwake.jobs (kind, queue, payload)"
            " values ('receipt', 'mail', jsonb_build_object('order', $1::int))", order)
    await connection.close()


@job("endless")
async def endless() -> None:
    raise Snooze(0)


@job("later")
async def later(job: Job) -> None:
    if job.attempt < 3:
        raise Retry(timedelta(hours=1))
    raise Discard("enough")


@job("slow", timeout=0.05)
async def slow() -> None:
    await asyncio.sleep(60)


@job("huge")
async def huge() -> str:
    return "x" * 2_000_000
"""

CONFTEST = """
import asyncpg
import pytest

import shop

pytest_plugins = ["pgwake.testing"]


@pytest.fixture
def connect(pgwake_database):
    async def connect():
        return await asyncpg.connect(pgwake_database)
    return connect


@pytest.fixture
def add(pgwake_database):
    async def add(kind, queue="default", delay=None, **payload):
        connection = await asyncpg.connect(pgwake_database)
        import json
        from datetime import timedelta
        try:
            return await connection.fetchval(
                "select pgwake.enqueue($1, $2, queue => $3, delay => $4)",
                kind, json.dumps(payload), queue, delay and timedelta(seconds=delay))
        finally:
            await connection.close()
    return add
"""

INI = """
[pytest]
asyncio_mode = auto
asyncio_default_fixture_loop_scope = function
filterwarnings = error
"""

# Modules of tests that have to pass, one run for all.
PASSING = {
    "test_due": """
async def test_due_jobs_run_until_none_is_left(pgwake_jobs, pgwake_database, add):
    fan = await add("fan", url=pgwake_database, count=3)
    plain = await add("plain", order=1)
    runs = await pgwake_jobs.run_due()
    # The one with the higher priority first.
    assert [(r.id, r.kind, r.status, r.error) for r in runs][:2] == [
        (plain, "plain", "completed", None), (fan, "fan", "completed", None)]
    assert runs[0].result == 2
    assert [r.result for r in runs[2:]] == [f"receipt of {n}" for n in range(3)]
    assert await pgwake_jobs.run_due() == []
    assert await pgwake_jobs.enqueued() == []


async def test_a_declared_priority_counts_from_the_insert_on(pgwake_jobs, add):
    await add("plain", order=1)
    (job,) = await pgwake_jobs.assert_enqueued("plain")
    assert job.priority == 7


async def test_a_session_that_is_left_open_is_ended(pgwake_jobs, connect):
    left_open = await connect()
    await pgwake_jobs.run_due()
    left_open.terminate()
""",
    "test_retries": """
from datetime import timedelta

async def test_failures_are_retried_by_the_handlers_policy(pgwake_jobs, add):
    await add("receipt", "mail", order=-1)
    (run,) = await pgwake_jobs.run_due(raises=False)
    assert (run.status, run.attempt) == ("pending", 1)
    assert run.error == "ValueError: no order -1"
    assert isinstance(run.exception, ValueError)
    await pgwake_jobs.assert_enqueued("receipt", queue="mail")
    assert await pgwake_jobs.run_due() == []

    await pgwake_jobs.move_clock(timedelta(seconds=30))
    assert await pgwake_jobs.run_due() == []
    await pgwake_jobs.move_clock(31)
    (run,) = await pgwake_jobs.run_due(raises=False)
    assert (run.status, run.attempt) == ("failed", 2)
    await pgwake_jobs.assert_not_enqueued("receipt")

async def test_outcomes_are_no_errors(pgwake_jobs, add):
    await add("later")
    statuses = []
    for _ in range(3):
        (run,) = await pgwake_jobs.run_due()
        statuses.append(run.status)
        await pgwake_jobs.move_clock(3601)
    assert statuses == ["pending", "pending", "failed"]
    assert run.error == "enough"
""",
    "test_clock": """
from datetime import UTC, datetime, timedelta
import pytest
from pgwake.errors import InvalidValueError

async def test_the_future_comes_for_all_open_sessions(pgwake_jobs, add, connect):
    mine = await connect()
    claim = "select id from pgwake.claim_next_job('mail')"
    assert await mine.fetchval(claim) is None
    statement = await mine.prepare("select pgwake.now() - now()")
    assert await statement.fetchval() == timedelta(0)
    await add("receipt", "mail", delay=3600, order=1)
    await add("receipt", "mail", delay=7200, order=2)
    assert await pgwake_jobs.run_due() == []

    await pgwake_jobs.move_clock(timedelta(hours=1))
    assert [run.payload["order"] for run in await pgwake_jobs.run_due()] == [1]
    assert await statement.fetchval() == timedelta(hours=1)
    assert await mine.fetchval(claim) is None
    await pgwake_jobs.move_clock(3600)
    assert await mine.fetchval(claim) == 2

    when = datetime(2199, 1, 1, tzinfo=UTC)
    await pgwake_jobs.move_clock_to(when)
    assert when <= await pgwake_jobs.now() < when + timedelta(minutes=1)
    created = await mine.fetchval(
        "insert into pgwake.jobs (kind) values ('plain') returning created_at")
    assert created > when
    for wrong in (datetime(2020, 1, 1, tzinfo=UTC), datetime(2200, 1, 1)):
        with pytest.raises(InvalidValueError, match="move_clock_to"):
            await pgwake_jobs.move_clock_to(wrong)
    for wrong in (-1, float("nan"), "1"):
        with pytest.raises(InvalidValueError, match="move_clock is"):
            await pgwake_jobs.move_clock(wrong)
    await mine.close()
""",
    "test_plain": """
import threading
import psycopg
from pgwake import job

ran_in = []

@job("where")
def where() -> None:
    ran_in.append(threading.current_thread())

def test_a_plain_test_needs_no_loop(pgwake_sync_jobs, pgwake_database):
    with psycopg.connect(pgwake_database) as connection:
        connection.execute("select pgwake.enqueue('where')")
        connection.execute("select pgwake.enqueue('plain', '{\\"order\\": 1}')")
    pgwake_sync_jobs.assert_enqueued("where", count=1)
    runs = pgwake_sync_jobs.run_due()
    assert [(run.kind, run.result) for run in runs] == [
        ("plain", 2), ("where", None)]
    assert ran_in == [threading.current_thread()]
    with psycopg.connect(pgwake_database) as connection:
        connection.execute("select pgwake.enqueue('where', delay => '1 day')")
    assert pgwake_sync_jobs.run_due() == []
    pgwake_sync_jobs.move_clock(86_400)
    assert len(pgwake_sync_jobs.run_due()) == 1
    assert pgwake_sync_jobs.enqueued() == []
    pgwake_sync_jobs.assert_not_enqueued("where")
""",
    "test_registry": """
import pytest
from pgwake import Registry

@pytest.fixture(scope="session")
def pgwake_registry():
    registry = Registry()

    @registry.job("plain")
    async def plain(order: int) -> str:
        return "mine"

    return registry

async def test_handlers_of_another_registry_are_run(pgwake_jobs, add):
    await add("plain", order=1)
    (run,) = await pgwake_jobs.run_due()
    assert run.result == "mine"
""",
    "test_django": """
import django
import pytest
from django.conf import settings
from django.db import connection, transaction
from pgwake import job
from urllib.parse import urlsplit

@pytest.fixture
def in_a_transaction(pgwake_database):
    parts = urlsplit(pgwake_database)
    settings.configure(DATABASES={"default": {
        "ENGINE": "django.db.backends.postgresql", "HOST": parts.hostname,
        "PORT": parts.port, "USER": parts.username, "PASSWORD": parts.password,
        "NAME": parts.path[1:]}})
    django.setup()
    with transaction.atomic():
        yield
        transaction.set_rollback(True)
    connection.close()

def add(kind):
    with connection.cursor() as cursor:
        cursor.execute("insert into pgwake.jobs (kind) values (%s)", [kind])

@job("parent")
def parent() -> str:
    add("child")
    return "done"

@job("child")
def child() -> None:
    with connection.cursor() as cursor, transaction.atomic():
        cursor.execute("select 1 / 0")

def test_a_handler_uses_djangos_connection(in_a_transaction, pgwake_sync_jobs):
    jobs = pgwake_sync_jobs.on(connection)
    add("parent")
    parent, child = jobs.run_due(raises=False)
    assert parent.result == "done"
    assert "division by zero" in child.error
    jobs.assert_enqueued("child", count=1)
    pgwake_sync_jobs.assert_not_enqueued("child")
""",
    "test_assertions": """
from datetime import UTC, datetime, timedelta

async def test_holds(pgwake_jobs, add):
    a = await add("receipt", "mail", order=1, to={"name": "a", "tags": [1, 2]})
    b = await add("receipt", "mail", delay=60, order=2)
    found = await pgwake_jobs.assert_enqueued(
        "receipt", {"to": {"tags": [1, 2]}}, queue="mail", count=1)
    assert [job.id for job in found] == [a]
    await pgwake_jobs.assert_enqueued("receipt", count=2)
    await pgwake_jobs.assert_enqueued("receipt", delay=60, count=1)
    now = datetime.now(UTC)
    await pgwake_jobs.assert_enqueued(
        "receipt", run_at=now + timedelta(seconds=60), within=30, count=1)
    await pgwake_jobs.assert_not_enqueued("receipt", {"order": 3})
    await pgwake_jobs.assert_not_enqueued("receipt", queue="default")
    await pgwake_jobs.assert_not_enqueued("receipt", {"to": {"tags": [1]}})
    assert [job.id for job in await pgwake_jobs.enqueued("receipt")] == [a, b]
    assert await pgwake_jobs.enqueued(queue="x") == []
""",
    "test_raised": """
import pytest

async def test_expected(pgwake_jobs, add):
    await add("receipt", "mail", order=-1)
    with pytest.raises(ValueError, match="no order -1"):
        await pgwake_jobs.run_due()
    (job,) = await pgwake_jobs.enqueued()
    assert job.attempt == 1
""",
}

RAISING = """
async def test_fails(pgwake_jobs, add):
    await add("receipt", "mail", order=-1)
    await pgwake_jobs.run_due()

def test_sync_fails(pgwake_sync_jobs, connect):
    import asyncio
    async def insert():
        c = await connect()
        await c.execute("insert into pgwake.jobs (kind, queue, payload)"
                        " values ('receipt', 'mail', '{\\"order\\": -2}')")
        await c.close()
    asyncio.run(insert())
    pgwake_sync_jobs.run_due()
"""
ASSERTING = """
async def test_payload(pgwake_jobs, add):
    await add("plain")
    await add("receipt", "mail", order=1)
    await add("receipt", "mail")
    await pgwake_jobs.assert_enqueued("receipt", {"order": 2})

async def test_count(pgwake_jobs, add):
    await add("plain", order=1)
    await pgwake_jobs.assert_enqueued("plain", count=2)

async def test_not(pgwake_jobs, add):
    await add("plain", delay=60)
    await pgwake_jobs.assert_not_enqueued("plain", delay=60)

async def test_nothing(pgwake_jobs):
    await pgwake_jobs.assert_enqueued("plain", queue="q")
"""
# What is no exception of the handler's, and what is said of it.
FAULTS = {
    "payload": ('"receipt", "mail", nonsense=1', "order: Field required"),
    "timeout": ('"slow"', "timed out after 0.05 s"),
    "kind": ('"nobody"', "kind 'nobody' has no handler here"),
    "endless": (
        '"endless"',
        "30 jobs have run, and job 1 ('endless') is due",
    ),
    "result": ('"huge"', "the result can't be stored"),
}
FAULT = """
async def test_{name}_fails(pgwake_jobs, add):
    await add({job})
    await pgwake_jobs.run_due(limit=30)


async def test_{name}_is_recorded(pgwake_jobs, add):
    await add({job})
    try:
        (run,) = await pgwake_jobs.run_due(raises=False, limit=30)
    except AssertionError:
        assert "{name}" == "endless"
    else:
        assert "{said}" in run.error
"""

Run: TypeAlias = Callable[..., pytest.RunResult]


@pytest.fixture
def run(
    pytester: pytest.Pytester,
    server: EmbeddedServer,
    monkeypatch: pytest.MonkeyPatch,
) -> Run:
    """Run tests, a text or one by module, in a project that has SHOP and CONFTEST."""
    for name in list(os.environ):
        if name.startswith(("PGWAKE_", "PYTEST_")):
            monkeypatch.delenv(name)
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")  # others take seconds
    pytester.makepyfile(shop=SHOP, conftest=CONFTEST)
    pytester.makeini(INI)

    def run(
        tests: str | dict[str, str], *options: str, url: str | None = server.url
    ) -> pytest.RunResult:
        modules = tests if isinstance(tests, dict) else {"test_shop": tests}
        pytester.makepyfile(**modules)
        given = ["--pgwake-database", url] if url else []
        plugins = ["-p", "asyncio", "-p", "xdist", "-p", "no:cacheprovider"]
        return pytester.runpytest_subprocess(*plugins, *given, *options)

    return run


def test_what_users_write_passes_and_nothing_is_left_on_the_server(
    run: Run, admin: psycopg.Connection
) -> None:
    names = "select datname from pg_database where datname like 'pgwake\\_test\\_%'"
    before = set(admin.execute(names).fetchall())
    count = sum(len(re.findall(r"def test_", text)) for text in PASSING.values())
    run(PASSING).assert_outcomes(passed=count)
    assert set(admin.execute(names).fetchall()) <= before


def test_what_goes_wrong_fails_the_test_and_says_what(run: Run) -> None:
    faults = [FAULT.format(name=n, job=j, said=s) for n, (j, s) in FAULTS.items()]
    result = run(
        {
            "test_a": RAISING,
            "test_b": "".join(faults),
            "test_c": ASSERTING,
            "test_d": "async def test_it(pgwake_jobs):"
            " pgwake_jobs.assert_enqueued('receipt')",
        }
    )
    result.assert_outcomes(passed=len(FAULTS) + 1, failed=2 + len(FAULTS) + 4, errors=1)
    told = result.stdout.str()
    assert "runner.py" not in told
    for _, said in FAULTS.values():
        assert said in told
    result.stdout.fnmatch_lines(["*await pgwake_jobs.assert_enqueued(...)*"])
    result.stdout.fnmatch_lines(
        [
            '*raise ValueError(f"no order {order}")',
            "E*ValueError: no order -1",
            "E*raised by job 1 ('receipt', attempt 1)",
            "shop.py:*: ValueError",
            "E*ValueError: no order -2",
        ]
    )
    result.stdout.fnmatch_lines(
        [
            "E*AssertionError: no job 'receipt' with {'order': 2} is to run",
            "E*enqueued:",
            """E*job 2: 'receipt' in 'mail', {"order":*1}  <- payload.order is 1""",
            "E*job 3: 'receipt' in 'mail', {}  <- payload has no 'order'",
            "E*job 1: 'plain' in 'default', {}",
            "E*AssertionError: 1 job 'plain' is to run, not 2",
            "E*AssertionError: 1 job 'plain' due after 0:01:00 is to run",
            "E*job 1: 'plain' in 'default', {}, due 0:01:00 after it was enqueued",
            "E*AssertionError: no job 'plain' in 'q' is to run",
            "E*nothing is enqueued",
        ]
    )


def test_each_test_has_a_database_of_its_own_with_the_users_schema(run: Run) -> None:
    result = run("""
        import psycopg
        import pytest

        @pytest.fixture(scope="session")
        def pgwake_schema(pgwake_template):
            with psycopg.connect(pgwake_template) as connection:
                connection.execute("create table orders (id int)")

        @pytest.mark.parametrize("n", [1, 2])
        def test_it(pgwake_database, pgwake_sync_jobs, n):
            with psycopg.connect(pgwake_database) as connection:
                assert connection.execute("select * from orders").fetchall() == []
                connection.execute("insert into orders values (1)")
                connection.execute("select pgwake.enqueue('plain')")
            pgwake_sync_jobs.assert_enqueued("plain", count=1)
    """)
    result.assert_outcomes(passed=2)


def test_a_template_that_is_still_in_use_is_told(run: Run) -> None:
    result = run("""
        import psycopg
        import pytest

        @pytest.fixture(scope="session")
        def pgwake_schema(pgwake_template):
            with psycopg.connect(pgwake_template) as connection:
                yield

        def test_it(pgwake_database):
            pass
    """)
    result.assert_outcomes(errors=1)
    assert "close what the fixture pgwake_schema has opened" in result.stdout.str()


def test_several_processes_of_pytest_do_not_meet(run: Run) -> None:
    run(
        """
        import pytest

        @pytest.mark.parametrize("n", range(8))
        async def test_it(pgwake_jobs, add, n):
            assert await add("plain", order=n) == 1
            (run,) = await pgwake_jobs.run_due()
            assert run.result == n + 1
        """,
        *("-n", "2"),
    ).assert_outcomes(passed=8)


def test_without_a_server_given_one_is_started_and_stopped(run: Run) -> None:
    result = run(
        """
        import pathlib

        async def test_it(pgwake_jobs, pgwake_server, add):
            pathlib.Path("server").write_text(pgwake_server)
            await add("plain", order=1)
            assert len(await pgwake_jobs.run_due()) == 1
        """,
        url=None,
    )
    result.assert_outcomes(passed=1)


def test_a_server_named_by_a_variable_is_used(
    run: Run, server: EmbeddedServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PGWAKE_TEST_DATABASE_URL", server.url)
    port = urlsplit(server.url).port
    run(
        f"""
        def test_it(pgwake_server):
            assert ":{port}/" in pgwake_server
        """,
        url=None,
    ).assert_outcomes(passed=1)


def test_importing_pgwake_does_not_import_pytest(pytester: pytest.Pytester) -> None:
    result = pytester.run(
        "python",
        "-c",
        "import sys, pgwake, pgwake.cli; assert 'pytest' not in sys.modules",
    )
    assert result.ret == 0
