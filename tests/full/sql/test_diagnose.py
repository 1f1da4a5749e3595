"""What diagnose() finds: each fault is made, found, and gone once its fix was typed."""

import asyncio
import contextlib
import shlex
from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import asyncpg
import psycopg
import pytest

from full.sql.test_install import empty_database
from pgwake.database.embedded import EmbeddedServer
from pgwake.database.install import install
from support import OWNER, Connect, Connection, database_url, wait_for
from support.sql import release
from support.sql.fixtures import fixture
from support.sql.helpers import (
    Listener,
    Row,
    call,
    claim,
    insert,
    insert_many,
    job_in,
    rows,
    running,
    set_clock,
    set_queue,
)
from support.sql.next_schema import NEXT_VERSION, next_schema

pytestmark = pytest.mark.own_database  # looks at sessions and dead rows

__all__ = ["empty_database", "next_schema"]

TRIGGERS = """
select t.tgrelid::regclass::text as table, t.tgname, pg_get_triggerdef(t.oid),
  t.tgenabled
from pg_trigger as t
join pg_proc as p on p.oid = t.tgfoid
where p.pronamespace = 'pgwake'::regnamespace and not t.tgisinternal
order by 1, 2
"""


@fixture
async def db(connect: Connect, db: Connection) -> Connection:
    """The test's database, which is a clone of the template, as one that is not."""
    await db.execute(
        "update pgwake.installation set identity = pgwake.database_identity()"
    )
    return await connect()


async def found(db: Connection, **arguments: Any) -> list[Row]:
    """What diagnose() finds, or the function that is named by `group`."""
    function = arguments.pop("group", "diagnose")
    return await rows(db, function, **arguments)


async def finding(db: Connection, check: str, **arguments: Any) -> Row:
    """The only finding, which is of this check."""
    (row,) = await found(db, **arguments)
    assert row["check_name"] == check, row
    assert row["problem"]
    return row


async def is_gone(db: Connection, **arguments: Any) -> bool:
    return not await found(db, **arguments)


async def mend(db: Connection, row: Row, **arguments: Any) -> None:
    """Type a finding's fix, and see that nothing is left to be found."""
    await db.execute(row["fix"])
    assert await found(db, **arguments) == []


async def test_a_fresh_database_has_no_findings(db: Connection) -> None:
    assert await found(db) == []


@pytest.mark.parametrize("version", release.VERSIONS)
@pytest.mark.usefixtures("next_schema")
async def test_an_upgraded_database_has_no_findings(
    connect: Connect, empty_database: str, version: int
) -> None:
    old = await connect(empty_database)
    await old.execute(release.script(version))
    await insert(old)
    assert await install(empty_database) == (version, NEXT_VERSION)

    assert await found(await connect(empty_database)) == []


async def test_queues_at_work_and_jobs_for_later_are_no_findings(
    db: Connection,
) -> None:
    await insert(db)
    await insert(db, "later", run_at=await call(db, "now"))
    await running(db, queue="busy")
    await job_in(db, "completed", queue="done")
    await job_in(db, "failed", queue="letters")
    await insert(db, concurrency_key="k")
    await db.execute("select pgwake.schedule('nightly', '0 2 * * *', 'noop')")
    await set_queue(db, "mail", max_running=5, key_limit=5)
    await call(db, "pause_queue", queue="mail")
    await insert(db, queue="mail")

    assert await found(db) == []


async def test_a_copy_is_found(db: Connection) -> None:
    await db.execute("update pgwake.installation set identity = '1:2'")

    row = await finding(db, "copy")
    assert row["severity"] == "error"
    assert row["fix"].startswith("pgwake adopt")


async def test_a_database_that_is_set_to_be_read_is_found(
    connect: Connect, db: Connection
) -> None:
    name = await db.fetchval("select current_database()")
    await db.execute(f"alter database {name} set default_transaction_read_only = on")
    reader = await connect()
    row = await finding(reader, "read_only")
    await reader.execute("set default_transaction_read_only = off")
    await reader.execute(row["fix"])

    assert await found(await connect()) == []


@pytest.mark.parametrize(
    ("trigger", "table", "state"),
    [
        ("jobs_after_insert", "pgwake.jobs", "disable"),
        ("jobs_after_insert", "pgwake.jobs", "enable replica"),
        ("jobs_before_insert", "pgwake.jobs_live", "disable"),
        ("jobs_after_truncate", "pgwake.jobs_finished_3", "disable"),
        ("queues_after_change", "pgwake.queues", "disable"),
    ],
)
async def test_a_trigger_that_does_not_fire_is_found(
    db: Connection, trigger: str, table: str, state: str
) -> None:
    await db.execute(f"alter table {table} {state} trigger {trigger}")

    row = await finding(db, "trigger_off")
    assert (row["severity"], row["subject"]) == ("error", f"{trigger} on {table}")
    await mend(db, row)


async def test_each_trigger_that_is_missing_is_found_and_made_as_it_was(
    db: Connection,
) -> None:
    before = await db.fetch(TRIGGERS)
    # Not those that a row trigger of the root has on its leaves.
    tops = [
        row
        for row in before
        if row["tgname"] != "jobs_before_insert" or row["table"] == "pgwake.jobs"
    ]
    assert len(tops) == 9 + 34
    for table, name, *_ in tops:
        await db.execute(f"drop trigger {name} on {table}")

    while missing := await found(db):
        assert len(missing) <= 10
        for row in missing:
            assert row["check_name"] == "trigger_off"
            await db.execute(row["fix"])
    assert await db.fetch(TRIGGERS) == before


async def test_a_definer_function_without_its_search_path_is_found(
    db: Connection,
) -> None:
    await db.execute("alter function pgwake.diagnose() reset search_path")

    await mend(db, await finding(db, "function_unsafe"))


async def test_a_definer_function_that_everybody_may_execute_is_found(
    db: Connection,
) -> None:
    await db.execute("grant execute on function pgwake.diagnose() to public")

    await mend(db, await finding(db, "function_unsafe"))


@pytest.mark.parametrize(
    "what", ["table pgwake.rechecks", "view pgwake.count_rows", "function pgwake.now()"]
)
@pytest.mark.usefixtures("db")
async def test_what_belongs_to_somebody_else_is_found(
    connect: Connect, admin_url: str, what: str
) -> None:
    admin = await connect(admin_url)
    await admin.execute(f"alter {what} owner to postgres")

    row = await finding(admin, "owner_differs", group="diagnose_installation")
    await mend(admin, row, group="diagnose_installation")


async def test_a_hook_without_a_search_path_is_found_once(db: Connection) -> None:
    await db.execute("""
        create schema app;
        create function app.hook() returns trigger language plpgsql as
          'begin return null; end';
        create trigger hook after insert on pgwake.jobs_finished
          for each row execute function app.hook();
        create trigger hook after insert on pgwake.jobs_failed
          for each row execute function app.hook();
        create table app.hooked (id int);
        create trigger hook after insert on app.hooked
          for each row execute function app.hook();
    """)

    row = await finding(db, "hook_path")
    assert (row["severity"], row["subject"]) == ("warning", "app.hook()")
    await mend(db, row)


async def test_a_table_without_autovacuum_is_found(db: Connection) -> None:
    await db.execute("alter table pgwake.jobs_live set (autovacuum_enabled = off)")

    row = await finding(db, "autovacuum_off")
    assert row["subject"] == "pgwake.jobs_live"
    await mend(db, row)


async def test_a_server_without_autovacuum_is_found(
    db: Connection, connect: Connect, admin_url: str
) -> None:
    admin = await connect(admin_url)

    async def is_seen() -> bool:
        return bool(await found(db, group="diagnose_installation"))

    async def is_gone() -> bool:
        return not await is_seen()

    await admin.execute("alter system set autovacuum = off")
    try:
        await admin.execute("select pg_reload_conf()")
        await wait_for(is_seen)
        row = await finding(db, "autovacuum_off", group="diagnose_installation")
    finally:
        await admin.execute("alter system reset autovacuum")
        await admin.execute("select pg_reload_conf()")
    assert row["fix"].startswith("alter system reset autovacuum;")
    await wait_for(is_gone)


async def test_a_session_with_an_old_snapshot_is_found(
    db: Connection, connect: Connect
) -> None:
    reader = await connect(server_settings={"application_name": "re [port]"})
    await reader.execute("begin isolation level repeatable read")
    await reader.execute("select from pgwake.jobs")
    pins = {"group": "diagnose_pins", "warn_after": timedelta(0)}

    assert await found(db) == []
    row = await finding(db, "old_snapshot", **pins)
    assert row["severity"] == "warning"
    assert row["subject"] == f"session {reader.get_server_pid()}"
    assert (
        f'role {OWNER}, application "re [port]", idle in transaction' in row["problem"]
    )
    row = await finding(db, "old_snapshot", **pins, fail_after=timedelta(0))
    assert row["severity"] == "error"
    await db.execute(row["fix"])
    await wait_for(lambda: is_gone(db, **pins))


async def test_a_prepared_transaction_is_found(
    db: Connection, connect: Connect
) -> None:
    producer = await connect()
    await producer.execute("set pgwake.notify = off")
    await producer.execute("begin")
    await insert(producer)
    await producer.execute("prepare transaction 'it''s'")
    pins = {"group": "diagnose_pins", "warn_after": timedelta(0)}

    assert await found(db) == []
    row = await finding(db, "prepared_transaction", **pins)
    assert row["subject"] == "it's"
    assert "holds locks on jobs" in row["problem"]
    await mend(db, row, **pins)


async def test_sessions_whose_transactions_the_owner_may_not_see_are_said(
    db: Connection, connect: Connect, admin_url: str
) -> None:
    admin = await connect(admin_url)
    row = await finding(db, "hidden_sessions")
    assert (row["severity"], row["subject"], row["value"]) == ("notice", OWNER, 1)
    try:
        await admin.execute(row["fix"])
        assert await found(db) == []
    finally:
        await admin.execute(f"revoke pg_read_all_stats from {OWNER}")

    # Told by transaction ids, since the time is hidden.
    await admin.execute("begin isolation level repeatable read")
    await admin.execute("select from pgwake.jobs")
    await insert(db)
    hidden = await found(db, group="diagnose_pins", warn_xids=0)
    assert [row["check_name"] for row in hidden] == ["old_snapshot", "hidden_sessions"]


async def test_a_queue_of_notifications_that_nobody_reads_is_found(
    db: Connection, connect: Connect
) -> None:
    listener = await connect()
    await listener.add_listener("pgwake", lambda *_: None)
    await listener.execute("begin")
    await listener.fetchval("select 1")
    for place in range(40):
        await db.execute("select pg_notify('pgwake', $1)", f"{place}{'x' * 7000}")
    server = {"group": "diagnose_server", "notify_share": 1e-9}

    row = await finding(db, "notification_queue", **server)
    assert row["severity"] == "warning"
    assert f"session {listener.get_server_pid()}" in row["problem"]
    await db.execute(row["fix"])

    async def is_read() -> bool:
        await db.execute("notify pgwake")
        return not await found(db, **server)

    await wait_for(is_read)


async def test_transaction_ids_that_run_out_are_found(
    own_server: EmbeddedServer, own_database: str, connect: Connect, binaries: Path
) -> None:
    # Prepared, so that autovacuum can't freeze meanwhile; then the ids leap.
    owner = await connect(own_database)
    await owner.execute("begin; create table kept (id int); prepare transaction 'old'")
    data = own_server.directory / "data"
    own_server._halt("fast")
    with (data / "pg_xact" / "0000").open("ab") as file:
        file.truncate(262_144)
    for segment in ("0007", "000F"):  # up to PostgreSQL 18, and from 19 on
        offsets = data / "pg_multixact" / "offsets" / segment
        offsets.write_bytes(bytes(262_144))
        own_server._user.own(offsets)
    own_server._run("pg_resetwal", "-x", "500000", "-m", "500000,1", "-D", data)
    own_server._settings |= {
        "autovacuum_freeze_max_age": "100000",
        "autovacuum_multixact_freeze_max_age": "10000",
    }
    own_server._launch()
    owner = await connect(own_database)
    server = {"group": "diagnose_server", "id_share": 0.00015}  # of two billion

    both = await found(owner, **server)
    assert [(row["check_name"], row["severity"]) for row in both] == [
        ("transaction_ids", "warning"),
        ("multixact_ids", "warning"),
    ]
    worse = await found(owner, **{**server, "id_share": 0.00009})
    assert [row["severity"] for row in worse] == ["error", "error"]
    await owner.execute("rollback prepared 'old'")
    command = shlex.split(both[0]["fix"], comments=True)
    assert command == ["vacuumdb", "--freeze", "pgwake_own"]
    url = database_url(own_server, command.pop(), role="postgres")
    done = await asyncio.create_subprocess_exec(
        binaries / command.pop(0), *command, "--quiet", "-d", url
    )
    assert await done.wait() == 0
    assert await found(owner, **server) == []


async def test_connections_that_are_nearly_used_up_are_found(db: Connection) -> None:
    row = await finding(
        db, "connections", group="diagnose_server", connection_share=0.001
    )
    assert 0 < row["value"] < 1
    await db.execute(row["fix"])


async def test_dead_rows_that_nobody_removes_are_found(db: Connection) -> None:
    server = {"group": "diagnose_server", "dead_rows": 40, "vacuum_age": timedelta(0)}
    await db.execute(
        "insert into pgwake.jobs (kind) select 'x' from generate_series(1, 50)"
    )
    await db.execute("delete from pgwake.jobs")

    async def is_seen() -> bool:
        return bool(await found(db, **server))

    await wait_for(is_seen)
    row = await finding(db, "dead_rows", **server)
    assert (row["subject"], row["value"]) == ("pgwake.jobs_live", 50)
    await db.execute(row["fix"])

    async def is_gone() -> bool:
        return not await is_seen()

    await wait_for(is_gone)


@pytest.mark.parametrize(
    ("lock", "what"),
    [
        ("pg_advisory_lock_shared(pgwake.notify_lock_key('mail'))", "the notify lock"),
        (
            "pg_advisory_lock_shared(pgwake.notify_lock_key('mail') + 1)",
            "the duty lock",
        ),
        ("pg_advisory_lock(pgwake.notify_lock_key('mail'))", "the notify lock"),
    ],
)
async def test_a_session_that_holds_a_lock_as_no_client_should_is_found(
    db: Connection, connect: Connect, lock: str, what: str
) -> None:
    await insert(db, queue="mail", run_at=await tomorrow(db))
    holder = await connect()
    await holder.execute("select pg_advisory_lock_shared(42)")
    await holder.execute(f"select {lock}")

    row = await finding(db, "wake_lock_held")
    assert (row["severity"], row["subject"]) == ("error", "mail")
    assert f"session {holder.get_server_pid()}" in row["problem"]
    assert what in row["problem"]
    await db.execute(row["fix"])
    await wait_for(lambda: is_gone(db))


async def tomorrow(db: Connection) -> Any:
    return await call(db, "now") + timedelta(days=1)


@contextlib.asynccontextmanager
async def inserting(db: Connection) -> AsyncIterator[None]:
    """Insert as fast as one session can."""

    async def insert_for_ever() -> None:
        while True:
            await insert(db, queue="busy")

    task = asyncio.create_task(insert_for_ever())
    yield
    task.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await task


async def test_inserters_and_those_on_duty_are_no_findings(
    db: Connection, connect: Connect
) -> None:
    await Listener.with_notify_locks(await connect(), "default", "other")
    await call(await connect(), "park", queue="muted", muted=True)
    producers = [await connect() for _ in range(3)]
    async with contextlib.AsyncExitStack() as stack:
        for producer in producers:
            await stack.enter_async_context(inserting(producer))
        for _ in range(20):
            assert await found(db) == []


async def test_a_lease_that_nobody_sweeps_is_found(db: Connection) -> None:
    await insert(db)
    await claim(db, worker="gone", lease=timedelta(seconds=1))

    await set_clock(db, "4 minutes")
    assert await found(db) == []
    await set_clock(db, "302 seconds")
    await report(db, "default")
    row = await finding(db, "lease_not_swept")
    assert (row["severity"], row["subject"]) == ("error", "gone")
    assert row["value"] == pytest.approx(311, abs=10)
    await mend(db, row)


async def test_a_leaf_that_is_never_emptied_is_found_with_who_is_in_the_way(
    db: Connection, connect: Connect
) -> None:
    await job_in(db, "completed")
    reader = await connect()
    await set_clock(db, "8 days")
    assert await found(db) == []
    await set_clock(db, "11 days")
    await reader.execute("begin")
    await reader.execute("select from pgwake.jobs_finished")

    row = await finding(db, "leaf_kept")
    assert f"session {reader.get_server_pid()}" in row["problem"]
    await db.execute(row["fix"])

    async def is_free() -> bool:
        (row,) = await found(db)
        return "session" not in row["problem"]

    await wait_for(is_free)
    await mend(db, await finding(db, "leaf_kept"))


async def report(db: Connection, *queues: str, kinds: Any = ()) -> None:
    await db.execute(
        "select pgwake.report_worker('w1', 'host', 1, $1, $2)", queues, kinds
    )


async def test_a_queue_with_due_jobs_and_no_worker_is_found(db: Connection) -> None:
    await insert(db, queue="mail")
    await set_clock(db, "30 seconds")
    assert await found(db) == []
    await set_clock(db, "61 seconds")

    await report(db, "other")
    row = await finding(db, "queue_without_worker")
    assert (row["severity"], row["subject"]) == ("error", "mail")
    assert row["value"] == pytest.approx(71, abs=10)
    await db.execute(row["fix"])
    await report(db, "mail")
    assert await found(db) == []


async def test_a_queue_that_is_paused_for_ever_over_due_jobs_is_found(
    db: Connection,
) -> None:
    for name in ("mail", 'it\'s "one"\n'):
        await insert(db, queue=name)
        await call(db, "pause_queue", queue=name)
    await insert(db, queue="until")
    await set_clock(db, "61 minutes")
    await db.execute("select pgwake.pause_queue('until', pgwake.now() + '1 minute')")

    both = await found(db)
    assert {row["check_name"] for row in both} == {"queue_paused"}
    assert {row["severity"] for row in both} == {"notice"}
    assert 'it\'s "one"?' in both[0]["problem"]
    await report(db, "mail", 'it\'s "one"\n')
    for row in both:
        await db.execute(row["fix"])
    assert await found(db) == []


async def test_a_suspect_that_no_quarantine_takes_is_found(db: Connection) -> None:
    await report(db, "default")
    job_id = await insert(db, crash_count=2)
    await set_clock(db, "14 minutes")
    await report(db, "default")
    assert await found(db) == []
    await set_clock(db, "16 minutes")
    await report(db, "default")

    row = await finding(db, "suspect_waits")
    assert row["subject"] == str(job_id)
    await db.execute(row["fix"])
    await call(db, "cancel_job", job_id=job_id)
    assert await found(db) == []


async def test_a_kind_that_comes_back_is_found(db: Connection) -> None:
    held = await running(db, kind="it's")
    await db.execute(
        "select pgwake.release_jobs(array[$1::bigint], array[$2::uuid],"
        " 'unknown_kind', array[interval '0'])",
        held["id"],
        held["lease_id"],
    )

    row = await finding(db, "kind_without_worker")
    assert (row["severity"], row["subject"]) == ("warning", "it's")
    assert [tuple(r) for r in await db.fetch(row["fix"])] == [("cancelled", 1)]
    await report(db, "default", kinds=["it's"])
    row = await finding(db, "kind_bounces")
    assert row["severity"] == "notice"
    await db.execute(row["fix"])
    await set_clock(db, "11 minutes")
    await report(db, "default", kinds=["it's"])
    assert await found(db) == []


async def test_a_kind_that_is_left_out_by_all_stays_found(db: Connection) -> None:
    held = await running(db, kind="x")
    await db.execute(
        "select pgwake.release_jobs(array[$1::bigint], array[$2::uuid],"
        " 'unknown_kind', array[interval '0'])",
        held["id"],
        held["lease_id"],
    )
    await set_clock(db, "2 hours")
    await report(db, "default")

    row = await finding(db, "kind_without_worker")
    assert row["subject"] == "x"
    await report(db, "default", kinds=["x"])
    assert await found(db) == []


async def test_a_schedule_that_is_late_or_refused_is_found(db: Connection) -> None:
    await db.execute(
        "select pgwake.schedule('often', every => '1 second', kind => 'x')"
    )
    assert await found(db) == []
    await set_clock(db, "61 seconds")
    row = await finding(db, "schedule_late")
    assert (row["severity"], row["subject"]) == ("error", "often")
    await db.execute(row["fix"])

    (due,) = await rows(db, "due_schedules")
    await db.execute(
        "select pgwake.note_schedule_problem('often', $1, E'no\\nway')", due["version"]
    )
    row = await finding(db, "schedule_problem")
    assert (row["severity"], "no?way" in row["problem"]) == ("warning", True)
    assert len(await db.fetch(row["fix"])) == 1
    await db.execute("select pgwake.pause_schedule('often')")
    assert await found(db) == []


async def test_a_full_queue_is_found(db: Connection) -> None:
    await set_queue(db, "it's", max_pending=10)
    await insert_many(db, 8, queue="it's")
    assert await found(db) == []
    await insert(db, queue="it's")

    row = await finding(db, "queue_full")
    assert (row["severity"], row["subject"], row["value"]) == ("warning", "it's", 9)
    assert len(await db.fetch(row["fix"])) == 1


async def test_jobs_that_expire_are_found(db: Connection) -> None:
    for count in (9, 1):
        assert await found(db) == []
        await db.execute(
            "insert into pgwake.jobs (kind, expires_at)"
            " select 'it''s', pgwake.now() from generate_series(1, $1)",
            count,
        )
        await rows(db, "cancel_expired")
    row = await finding(db, "jobs_expire")
    assert (row["severity"], row["subject"], row["value"]) == ("warning", "it's", 10)
    await db.fetch(row["fix"])

    await set_clock(db, "1 hour")
    assert await found(db) == []
    await insert(db, expires_at=await db.fetchval("select pgwake.now()"), kind="it's")
    await rows(db, "cancel_expired")
    assert await found(db) == []


@pytest.mark.parametrize(
    "policy",
    [
        {"lease": timedelta(seconds=9)},
        {"backoff_base": timedelta(hours=2)},
        {"backoff_base": timedelta(1), "backoff_cap": timedelta(0)},
        {"keep_order": True, "key_limit": 2},
        {"key_limit": 3, "max_running": 2},
        {"key_rate": 3.0, "rate_limit": 2.0},
        {"key_burst": 3},
    ],
)
async def test_policy_of_a_queue_that_can_not_be_meant_is_found(
    db: Connection, policy: dict[str, Any]
) -> None:
    await set_queue(db, "it's", **policy)

    row = await finding(db, "policy")
    assert (row["severity"], row["subject"]) == ("warning", "it's")
    await mend(db, row)


@pytest.mark.parametrize(
    "policy",
    [
        "lease = '9 seconds'",
        "backoff_base = '2 hours', declared_backoff_cap = '1 hour'",
        "check_payload = true",
    ],
)
async def test_policy_of_a_kind_that_can_not_be_meant_is_found(
    db: Connection, policy: str
) -> None:
    await db.execute("insert into pgwake.kinds (name) values ('it''s')")
    await db.execute(f"update pgwake.kinds set {policy}")

    await mend(db, await finding(db, "policy"))


async def test_a_heap_of_dead_letters_is_found(db: Connection) -> None:
    statement = (
        "insert into pgwake.jobs (queue, kind, status, finished_at)"
        " select 'mail', 'x', 'failed', now() from generate_series(1, $1)"
    )
    await db.execute(statement, 10_000)
    assert await found(db) == []
    await db.execute(statement, 1)

    row = await finding(db, "dead_letters")
    assert (row["severity"], row["value"]) == ("notice", 10_001)
    await db.execute(row["fix"])


async def test_findings_are_bounded_and_the_worst_come_first(db: Connection) -> None:
    for place in range(25):
        await set_queue(db, f"q{place}", lease=timedelta(seconds=1))
    await db.execute(
        "insert into pgwake.jobs (queue, kind) select 'q' || n, 'x'"
        " from generate_series(1, 25) as n"
    )
    await set_clock(db, "2 minutes")

    checks = [row["check_name"] for row in await found(db)]
    assert checks == ["queue_without_worker"] * 10 + ["policy"] * 10


async def test_no_table_of_jobs_is_scanned(db: Connection) -> None:
    await db.execute(
        "insert into pgwake.jobs (queue, kind) select 'q' || n % 20, 'x'"
        " from generate_series(1, 5000) as n"
    )
    await db.execute("begin")
    await found(db)
    scanned = await db.fetch(
        "select relname, seq_scan, seq_tup_read, idx_tup_fetch"
        " from pg_stat_xact_user_tables"
        " where relname ~ '^jobs_' and (seq_scan > 0 or idx_tup_fetch > 100)"
    )
    assert scanned == []


async def test_whoever_may_execute_it_sees_what_the_owner_sees(
    db: Connection, connect: Connect, admin_url: str
) -> None:
    await db.execute("alter table pgwake.jobs disable trigger jobs_after_insert")
    admin = await connect(admin_url)
    await admin.execute("create role onlooker")
    try:
        await admin.execute("grant usage on schema pgwake to onlooker")
        await admin.execute("set role onlooker")
        with pytest.raises(asyncpg.InsufficientPrivilegeError):
            await found(admin)
        await db.execute("grant execute on function pgwake.diagnose() to onlooker")
        checks = [row["check_name"] for row in await found(admin)]
    finally:
        await admin.execute("reset role; drop owned by onlooker; drop role onlooker")
    assert checks == ["trigger_off", "hidden_sessions"]


async def test_a_lock_that_a_stranger_holds_is_found(
    db: Connection, other: Connection
) -> None:
    await set_queue(db, "limited", max_running=1)
    lock = "select pg_advisory_lock(1885828975, hashtext('limited'))"
    await other.execute(lock)
    row = await finding(db, "lock_held", group="diagnose_limit_locks")
    assert row["subject"] == 'the queue "limited"'
    assert f"session {other.get_server_pid()}" in row["problem"]
    await other.execute("select pg_advisory_unlock_all()")
    assert await is_gone(db, group="diagnose_limit_locks")

    async with other.transaction():
        await other.execute("select pg_advisory_xact_lock(1885828971, 1)")
        assert await is_gone(db, group="diagnose_limit_locks")  # a step takes its time
        row = await finding(
            db, "lock_held", group="diagnose_limit_locks", warn_after=timedelta(0)
        )
        assert row["subject"] == "the upkeep step sweep"


async def test_a_lease_without_an_end_is_found(db: Connection) -> None:
    held = await running(db)
    await running(db)
    await db.execute(
        "update pgwake.jobs_live set lease_expires_at = 'infinity' where id = $1",
        held["id"],
    )
    await mend(db, await finding(db, "lease_endless"))
    assert await call(db, "maintain", step="sweep") == {
        "sweep": 1,
        "crashed": [["default", "noop", 1, 0, 0]],
    }


async def test_default_privileges_that_give_others_rights_are_found(
    admin: psycopg.Connection, connect: Connect, empty_database: str
) -> None:
    admin.execute("create role pgwake_tests_anon")
    try:
        db = await connect(empty_database)
        await db.execute(
            "alter default privileges grant execute on functions to pgwake_tests_anon"
        )
        await install(empty_database)
        row = await finding(db, "default_rights")
        assert row["subject"] == "pgwake_tests_anon"
        await mend(db, row)
    finally:
        await db.execute(
            "drop schema if exists pgwake cascade; alter default privileges"
            " revoke execute on functions from pgwake_tests_anon"
        )
        admin.execute("drop role pgwake_tests_anon")


async def test_a_worker_of_any_number_of_processes_can_be_asked_about(
    db: Connection,
) -> None:
    rows = await db.fetch("select * from pgwake.diagnose_worker(2147483647)")
    assert [row["check_name"] for row in rows] == ["sessions"]
