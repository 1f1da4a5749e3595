"""The Security table of deploy/SECURITY.md, tried as each role."""

from collections.abc import Iterator

import psycopg
import pytest

from support import OWNER, RoleUrl
from support.sql.every_call import Login, Session

# Jobs of every sort, all made by others.
PREPARE = """
create table public.secrets ();
insert into pgwake.queues (name, max_running) values ('limited', 1);
insert into pgwake.jobs (kind, queue, unique_key, concurrency_key) values
  ('due', 'due', 'theirs', null), ('due', 'limited', null, null),
  ('due', 'keyed', null, 'k'), ('runs', 'runs', null, null),
  ('done', 'done', null, null), ('dead', 'dead', null, null);
select pgwake.claim_next_job('runs', worker => 'theirs');
select pgwake.complete_job(c.id, c.lease_id, '"result"')
from pgwake.claim_next_job('done') as c;
select pgwake.fail_job(c.id, c.lease_id, 'error', retryable => false)
from pgwake.claim_next_job('dead') as c;
select pgwake.schedule('theirs', kind => 'due', every => '1 hour');
select pgwake.declare_kinds('{"due": {"max_attempts": 3}}');
"""
TAKE = "select pgwake.enqueue('due', unique_key => 'theirs')"
REPLACE = f"{TAKE[:-1]}, queue => 'due', on_conflict => 'replace')"
HEAR = ["listen pgwake", "listen pgwake_duty", "listen job_status_changed"]
TELL = ["notify pgwake, 'due'", "notify job_status_changed, 'false'"]
ADD = [
    "select pgwake.enqueue('any', '{}', queue => 'any', webhook => 'http://a.b/')",
    "insert into pgwake.jobs (kind, queue, payload) values ('any', 'any', '{}')",
]
READ = ["select payload, result, errors from pgwake.jobs"]
READ_POLICY = ["table pgwake.queues", "table pgwake.kinds", "table pgwake.schedules"]
# With the lease that another's claim has got: it stands in the row.
END = [
    f"select pgwake.{end} from pgwake.jobs as j where status = 'running'"
    for end in (
        "complete_job(j.id, j.lease_id)",
        "fail_job(j.id, j.lease_id, 'no')",
        "release_jobs(array[j.id], array[j.lease_id])",
    )
]
FIRE = """
select pgwake.fire_schedule(s.name, s.version, array[s.now], s.now + '1 hour')
from pgwake.due_schedules() as s
"""
WORK = [
    "select pgwake.claim_next_job('due')",
    'select pgwake.declare_kinds(\'{"due": {"max_attempts": 9}}\')',
    FIRE,
    "select pgwake.maintain('retention')",
]
DECIDE = [
    "select pgwake.cancel_job(min(id)) from pgwake.jobs_live",
    "select pgwake.retry_job(min(id)) from pgwake.jobs_failed",
    """select pgwake.update_jobs('{"priority": 1}', queue => 'due')""",
    "select pgwake.run_now(min(id)) from pgwake.jobs_live",
    "select pgwake.purge(before => now())",
    "select pgwake.force_fail_job(min(id), 'by hand') from pgwake.jobs_live",
    "select pgwake.pause_queue('due')",
]
SET_POLICY = [
    "insert into pgwake.queues (name, max_running) values ('mine', 1)",
    "insert into pgwake.concurrency_limits values ('mine', 'k', 1)",
    "update pgwake.kinds set max_attempts = 1",
    "select pgwake.schedule('mine', kind => 'due', every => '1 hour')",
]
WRITE = [
    "update pgwake.jobs set payload = '{}'",
    "update pgwake.jobs_live set status = 'pending' where queue = 'none'",
    "delete from pgwake.jobs",
]
DDL = [
    "create table pgwake.mine ()",
    "alter table pgwake.queues add column mine int",
    "drop function pgwake.purge",
]
OUTSIDE = ["select from public.secrets", "create schema mine"]

# What each can do, and what is refused to it.
CLAIMS = {
    "app_nobody": (
        [*HEAR, *TELL],
        [*ADD, *READ, *READ_POLICY, *END, *WORK, *WRITE, *DDL, *OUTSIDE],
    ),
    "app_producer": (
        [*HEAR, *TELL, *ADD, *READ, TAKE],
        [REPLACE, *READ_POLICY, *END, *WORK, *DECIDE, *SET_POLICY, *WRITE, *DDL],
    ),
    "app_worker": (
        [*ADD, *READ, REPLACE, *READ_POLICY, *END, *WORK],
        [*DECIDE, *SET_POLICY, *WRITE, *DDL, *OUTSIDE],
    ),
    "app_admin": (
        [*ADD, *READ, REPLACE, *READ_POLICY, *END, *WORK, *DECIDE, *SET_POLICY],
        [*WRITE, *DDL, *OUTSIDE],
    ),
    "owner": ([*READ, *READ_POLICY, *DECIDE, *SET_POLICY, *DDL], ["table pg_authid"]),
}


@pytest.fixture
def owner(admin_url: str) -> Iterator[Session]:
    """A session of the schema's owner, in a database with jobs of every sort."""
    with psycopg.connect(admin_url, autocommit=True) as session:
        session.execute(f"set role {OWNER}")
        session.execute(PREPARE)
        yield session
        session.execute("drop table public.secrets")


def tried(db: Session, statement: str) -> str:
    """Run a statement and take it back: done, nothing, or with which SQLSTATE not."""
    try:
        with db.transaction(force_rollback=True):
            return "done" if db.execute(statement).rowcount else "nothing"
    except psycopg.Error as error:
        return error.sqlstate or str(error)


def test_each_role_can_what_the_table_says(session: Login, owner: Session) -> None:
    wrong: list[tuple[str, str, str]] = []
    for login, (can, can_not) in CLAIMS.items():
        db = owner if login == "owner" else session(login)
        told = {statement: tried(db, statement) for statement in [*can, *can_not]}
        wrong += [(login, s, told[s]) for s in can if told[s] != "done"]
        wrong += [(login, s, told[s]) for s in can_not if told[s] != "42501"]
    assert wrong == []


def test_who_may_only_connect_holds_up_what_is_locked_until_it_is_kept_out(
    session: Login, owner: Session, role_url: RoleUrl
) -> None:
    worker, stranger = session("app_worker"), session("app_nobody")
    claim = "select count(*) from pgwake.claim_jobs('{}', 9)"
    fold = "select pgwake.maintain('fold') ? 'fold'"
    park = "select pgwake.park('due')"
    asked = [claim.format("limited"), claim.format("keyed"), fold, park]
    for lock in (
        "1885828975, hashtext('limited')",
        "1885828974, hashtext('keyed/k')",
        "1885828971, 2",
        "hashtextextended('due', 1885828972) & -2::bigint | 1",
    ):
        stranger.execute(f"select pg_advisory_lock({lock})")
    held = [worker.execute(statement).fetchone() for statement in asked]
    assert held == [(0,), (0,), (False,), (False,)]
    found = owner.execute("select check_name from pgwake.diagnose()").fetchall()
    assert ("lock_held",) in found

    # As the table says: without CONNECT it can't come back.
    (name,) = owner.execute("select quote_ident(current_database())").fetchone() or ()
    owner.execute(f"reset role; revoke connect on database {name} from public")
    try:
        stranger.close()
        with pytest.raises(psycopg.OperationalError, match="permission denied"):
            psycopg.connect(role_url("app_nobody"))
    finally:
        owner.execute(f"grant connect on database {name} to public")
    free = [worker.execute(statement).fetchone() for statement in asked]
    assert free == [(1,), (1,), (True,), (True,)]


def test_a_producer_keeps_a_key_or_a_job_from_others_while_its_transaction_is_open(
    session: Login, owner: Session
) -> None:
    producer, worker = session("app_producer"), session("app_worker")
    worker.execute("set lock_timeout = '100 ms'")
    claim = "select count(*) from pgwake.claim_next_job('due')"
    with producer.transaction(force_rollback=True):
        producer.execute("select pgwake.enqueue('due', unique_key => 'new')")
        with pytest.raises(psycopg.errors.LockNotAvailable):
            worker.execute("select pgwake.enqueue('due', unique_key => 'new')")

    # Once it has been let replace others' jobs.
    let = "execute on function pgwake.allow_replace"
    owner.execute(f"grant {let} to app_producer")
    try:
        with producer.transaction(force_rollback=True):
            producer.execute(REPLACE)
            assert worker.execute(claim).fetchone() == (0,)
    finally:
        owner.execute(f"revoke {let} from app_producer")
    assert worker.execute(claim).fetchone() == (1,)
