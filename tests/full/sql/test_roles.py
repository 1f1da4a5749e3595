"""What each role may do: what is listed, and nothing else, by trying all of it."""

import asyncio

import psycopg
import pytest
from psycopg import sql

from pgwake.database.embedded import EmbeddedServer
from support import CHECKOUT, OWNER, Connection, RoleUrl, psql
from support.sql.every_call import (
    ADMIN,
    PRODUCER,
    WORKER,
    Login,
    Session,
    live,
    rows_of_jobs,
    words,
)

INSTALL = str(CHECKOUT / "sql" / "install.sql")
ROLES = str(CHECKOUT / "sql" / "roles.sql")

FUNCTIONS = {
    "app_producer": PRODUCER,
    "app_worker": WORKER,
    "app_admin": ADMIN,
    "app_stranger": frozenset[str](),
    "app_nobody": frozenset[str](),
}
JOBS = {"jobs", "jobs_live", "jobs_failed", "jobs_finished"}
READ_BY_PRODUCERS = JOBS | {"events"}
READ_BY_WORKERS = READ_BY_PRODUCERS | {
    "concurrency_limits",
    "installation",
    "kinds",
    "queues",
    "schedules",
    "schema_version",
    "count_rows",
    "workers",
}
COLUMNS_OF_JOBS = words("""
queue kind payload metadata priority run_at max_attempts unique_key concurrency_key
depends_on on_parent_failure webhook expires_at unique_until
""")
COLUMNS_OF_KINDS = words("""
name max_attempts backoff_base backoff_cap backoff_jitter timeout lease priority
check_payload max_running rate_limit rate_burst
""")
STATEMENTS = {
    "select": "select from {} limit 0",
    "insert": "insert into {} select t.* from {} as t limit 0",
    "update": "update {} set {} = {} where false",
    "delete": "delete from {} where false",
    "truncate": "truncate {}",
}


def is_denied(session: Session, statement: str | sql.Composed) -> bool:
    """Whether a statement fails for want of a right; it may fail for anything else."""
    try:
        session.execute(statement)
    except psycopg.errors.InsufficientPrivilege:
        return True
    except psycopg.Error:
        return False
    return False


def all_functions(session: Session) -> list[tuple[str, str]]:
    """Name and a call with nothing but nulls, of all that is no trigger's."""
    return session.execute(
        "select p.proname::text, format('select pgwake.%I(%s%s)', p.proname,"
        " case when p.provariadic <> 0 then 'variadic ' end,"
        " (select string_agg('null::' || format_type(t.oid, null), ', ' order by t.n)"
        " from unnest(p.proargtypes) with ordinality as t(oid, n)))"
        " from pg_proc as p where p.pronamespace = to_regnamespace('pgwake')"
        " and p.prorettype <> 'trigger'::regtype order by 1"
    ).fetchall()


@pytest.mark.parametrize("login", FUNCTIONS)
def test_a_role_may_call_what_is_listed_and_nothing_else(
    session: Login, login: str
) -> None:
    db = session(login)
    functions = all_functions(db)

    told = {
        name
        for (name,) in db.execute(
            "select p.proname from pg_proc as p"
            " where p.pronamespace = to_regnamespace('pgwake')"
            " and has_function_privilege(p.oid, 'execute')"
        )
    }
    done = {name for name, call in functions if not is_denied(db, call)}
    # now() stands on a function that who may call it may call, too.
    assert told == done == FUNCTIONS[login]
    assert len(functions) > 120


@pytest.mark.parametrize("login", FUNCTIONS)
def test_a_role_may_read_and_write_the_tables_that_are_listed_and_no_other(
    session: Login, login: str
) -> None:
    db = session(login)
    tables = db.execute(
        "select c.relname::text, a.attname::text from pg_class as c"
        " join pg_attribute as a on a.attrelid = c.oid and a.attnum = 1"
        " where c.relnamespace = to_regnamespace('pgwake')"
        " and c.relkind in ('r', 'p', 'v')"
    ).fetchall()
    everything = {name for name, _ in tables}
    assert len(everything) > 45

    allowed = {
        (verb, name)
        for name, column in tables
        for verb, statement in STATEMENTS.items()
        if (verb == "select" or name != "count_rows")  # a view, for reading alone
        and not is_denied(
            db,
            sql.SQL(statement).format(
                *[sql.Identifier("pgwake", name)] * (1 + (verb == "insert")),
                *[sql.Identifier(column)] * 2,
            ),
        )
    }

    read = {
        "app_producer": READ_BY_PRODUCERS,
        "app_worker": READ_BY_WORKERS,
        "app_admin": everything,
    }.get(login, set())
    expected = {("select", name) for name in read}
    if login == "app_admin":
        for verb in ("insert", "update", "delete"):
            expected |= {(verb, "queues"), (verb, "concurrency_limits")}
        expected |= {("update", "kinds"), ("delete", "kinds")}  # of some columns
        expected.add(("delete", "unique_periods"))
    assert allowed == expected


@pytest.mark.parametrize("login", FUNCTIONS)
@pytest.mark.parametrize(
    ("statement", "table", "listed"),
    [
        ("insert into pgwake.jobs ({}) select null limit 0", "jobs", COLUMNS_OF_JOBS),
        ("update pgwake.jobs set {} = null where false", "jobs", frozenset()),
        (
            "insert into pgwake.kinds ({}) select null limit 0",
            "kinds",
            COLUMNS_OF_KINDS,
        ),
        ("update pgwake.kinds set {} = null where false", "kinds", COLUMNS_OF_KINDS),
    ],
    ids=["insert jobs", "update jobs", "insert kinds", "update kinds"],
)
def test_a_role_may_write_the_columns_that_are_listed_and_no_other(
    session: Login, login: str, statement: str, table: str, listed: frozenset[str]
) -> None:
    db = session(login)
    columns = db.execute(
        "select a.attname::text from pg_attribute as a join pg_class as c"
        " on c.oid = a.attrelid where c.relnamespace = to_regnamespace('pgwake')"
        " and c.relname = %s and a.attnum > 0",
        [table],
    ).fetchall()
    # By the owner's own catalogs: nothing has been left out.
    assert len(columns) > 20

    allowed = {
        name
        for (name,) in columns
        if not is_denied(db, sql.SQL(statement).format(sql.Identifier(name)))
    }
    has_it = login == "app_admin" or (
        table == "jobs" and login in ("app_producer", "app_worker")
    )
    assert allowed == (listed if has_it else set())


def test_what_the_roles_may_do_is_enough_for_the_whole_life_of_jobs(
    session: Login, admin_url: str
) -> None:
    with psycopg.connect(admin_url, autocommit=True) as owner:
        owner.execute(
            "insert into pgwake.jobs (id, kind, status, finished_at, finished_slot)"
            " select -1, 'old', 'completed', t.at, pgwake.finished_slot(t.at)"
            " from (select pgwake.now() - interval '20 days') as t(at)"
        )

        life = live(
            session("app_producer"), session("app_worker"), session("app_admin")
        )

        # A leaf that is past its retention was truncated, which needs its owner.
        assert rows_of_jobs(owner)[0][0] > 0
    assert ADMIN - life.called == {"raise_invalid"}


def test_a_producer_replaces_jobs_only_if_it_was_let(
    session: Login, admin_url: str
) -> None:
    producer, worker = session("app_producer"), session("app_worker")
    enqueue = (
        "select pgwake.enqueue('k', %s, unique_key => 'theirs', on_conflict => %s)"
    )
    payload = "select payload ->> 'by' from pgwake.jobs"
    row = worker.execute(enqueue, ['{"by": "worker"}', "return"]).fetchone()
    with pytest.raises(psycopg.errors.InsufficientPrivilege, match="may not replace"):
        producer.execute(enqueue, ['{"by": "producer"}', "replace"])
    assert producer.execute(payload).fetchone() == ("worker",)
    assert worker.execute(enqueue, ['{"by": "again"}', "replace"]).fetchone() == row
    with psycopg.connect(admin_url, autocommit=True) as owner:
        let = "execute on function pgwake.allow_replace"
        owner.execute(f"grant {let} to app_producer")
        producer.execute(enqueue, ['{"by": "producer"}', "replace"])
        owner.execute(f"revoke {let} from app_producer")
    assert producer.execute(payload).fetchone() == ("producer",)


def test_a_publication_of_all_tables_refuses_no_statement(
    session: Login, admin_url: str
) -> None:
    with psycopg.connect(admin_url, autocommit=True) as owner:
        found = "select check_name, fix from pgwake.diagnose_installation()"
        owner.execute("set client_min_messages = error")  # wal_level is replica
        owner.execute("create publication everything for all tables")
        live(session("app_producer"), session("app_worker"), session("app_admin"))
        owner.execute("delete from pgwake.jobs")

        assert owner.execute(found).fetchall() == []
        owner.execute("alter table pgwake.counts replica identity default")
        ((check, fix),) = owner.execute(found)
        assert check == "unpublishable"
        owner.execute(fix)
        assert owner.execute(found).fetchall() == []


def test_a_producer_is_told_what_to_do_about_a_time_that_can_not_be_meant(
    session: Login,
) -> None:
    with pytest.raises(psycopg.Error, match="expires_at is infinity") as raised:
        session("app_producer").execute(
            "insert into pgwake.jobs (kind, expires_at) values ('noop', 'infinity')"
        )
    assert raised.value.sqlstate == "PW003"


def test_a_producer_can_use_two_phase_commit(session: Login) -> None:
    producer = session("app_producer")
    producer.execute("set pgwake.notify = off")
    with producer.transaction():
        producer.execute(
            "insert into pgwake.jobs (kind, concurrency_key) values ('a', 'k')"
        )
        producer.execute("prepare transaction 'roles'")
    producer.execute("commit prepared 'roles'")

    ((job, *_),) = session("app_worker").execute(
        "select * from pgwake.claim_next_job()"
    )
    assert job == 1


def test_the_clock_is_the_owners_to_set(session: Login, database: str) -> None:
    for login in ("app_producer", "app_worker", "app_admin"):
        other = session(login)
        other.execute("set pgwake.clock_offset = '1 hour'")
        assert other.execute("select pgwake.now() = now()").fetchone() == (True,)
        other.execute("insert into pgwake.jobs (kind) values ('a')")
        other.execute("select pgwake.enqueue('a')")
    with psycopg.connect(database) as owner:
        owner.execute("set pgwake.clock_offset = '1 hour'")
        (count,) = owner.execute(
            "select count(*) from pgwake.jobs"
            " where run_at < pgwake.now() - interval '59 minutes'"
        ).fetchone() or (None,)
    assert count == 6


def test_leases_do_not_run_out_by_a_workers_settings(session: Login) -> None:
    worker = session("app_worker")
    worker.execute("insert into pgwake.jobs (kind) values ('a')")
    worker.execute("select pgwake.claim_next_job()")
    worker.execute("set pgwake.clock_offset = '100 years'")
    assert worker.execute("select pgwake.maintain('sweep')").fetchone() == (
        {"sweep": 0},
    )


def test_a_hook_runs_as_the_owner(session: Login, database: str) -> None:
    with psycopg.connect(database, autocommit=True) as owner:
        owner.execute("create table hooked (who text)")
        owner.execute(
            "create function hook() returns trigger language plpgsql"
            " set search_path = public, pg_temp as"
            " $$ begin insert into hooked values (current_user); return null; end $$"
        )
        owner.execute(
            "create trigger hook after insert on pgwake.jobs_failed"
            " for each row execute function hook()"
        )
        worker = session("app_worker")
        worker.execute("select pgwake.enqueue('a')")
        worker.execute(
            "select pgwake.fail_job(j.id, j.lease_id, 'no', retryable => false)"
            " from pgwake.claim_next_job() as j"
        )
        assert owner.execute("select who from hooked").fetchall() == [(OWNER,)]


def test_what_is_no_longer_listed_is_taken_back(
    session: Login, server: EmbeddedServer, database: str
) -> None:
    with psycopg.connect(database, autocommit=True) as owner:
        owner.execute("grant update, delete on pgwake.jobs to pgwake_producer")
        owner.execute("grant update (status) on pgwake.jobs_live to pgwake_worker")
        owner.execute("grant execute on function pgwake.purge to pgwake_worker")
        owner.execute("grant create on schema pgwake to pgwake_admin")
        owner.execute("grant update on sequence pgwake.jobs_id_seq to pgwake_worker")
    worker = session("app_worker")
    extra = [
        "update pgwake.jobs set priority = 1 where false",
        "delete from pgwake.jobs where false",
        "update pgwake.jobs_live set status = 'failed' where false",
        "select pgwake.purge('failed', queue => 'x')",
        "select setval('pgwake.jobs_id_seq', 1)",
    ]
    assert not any(is_denied(worker, statement) for statement in extra)

    psql(server, database, "-f", ROLES)

    assert all(is_denied(worker, statement) for statement in extra)
    assert is_denied(session("app_admin"), "create table pgwake.mine (a int)")


async def test_it_may_run_many_times_at_once_while_producers_insert(
    role_url: RoleUrl, server: EmbeddedServer, database: str
) -> None:
    def insert() -> int:
        with psycopg.connect(role_url("app_producer"), autocommit=True) as producer:
            for _ in range(200):
                producer.execute("insert into pgwake.jobs (kind) values ('a')")
        return 200

    runs = [asyncio.to_thread(psql, server, database, "-f", ROLES) for _ in range(4)]
    *_, count = await asyncio.gather(*runs, asyncio.to_thread(insert))
    assert count == 200


async def test_an_upgrade_by_a_superuser_leaves_all_to_the_owner(
    server: EmbeddedServer, admin_url: str, db: Connection
) -> None:
    await db.execute("drop function pgwake.purge")
    psql(server, admin_url, "-f", INSTALL)
    owners = await db.fetch(
        "select distinct proowner::regrole::text from pg_proc"
        " where pronamespace = to_regnamespace('pgwake')"
    )
    assert [owner for (owner,) in owners] == [OWNER]
