"""Programs by roles that may do their own part and no more."""

import functools
import json

import psycopg
import pytest

from pgwake import NewJob, Queue
from pgwake.errors import ROLES_HINT, ConfigurationError
from support import Connection, RoleUrl, free_port, wait_for
from support.sql.helpers import insert
from support.worker.api import TOKEN, client, problem
from support.worker.helpers import ended
from support.worker.metrics import Samples, fetch
from support.worker.paying import SCHEMA
from support.worker.processes import Pgwake, StartProcess
from support.worker.receiver import Receiver

HINT = "a member of pgwake_producer to enqueue, of pgwake_worker to run jobs"


async def test_a_worker_that_is_only_a_worker_does_all_that_a_worker_does(
    start_worker: StartProcess, connection: Connection, role_url: RoleUrl
) -> None:
    await connection.execute(SCHEMA)
    await connection.execute("grant select, update on account to app_worker")
    await connection.execute("grant insert on ledger to app_worker")
    await connection.execute(
        "select pgwake.schedule('s', kind => 'noop', every => '1 hour',"
        " starts_at => now() + interval '1 second')"
    )
    await connection.execute(
        "insert into pgwake.jobs (kind, status, attempt, lease_id, lease_expires_at,"
        " claimed_by, started_at) values ('noop', 'running', 1, gen_random_uuid(),"
        " now() - interval '1 hour', 'a dead worker', now() - interval '2 hours')"
    )
    port = free_port()
    with Receiver().serve() as receiver:
        worker = await start_worker(
            "--webhooks",
            f"--http=posted={receiver.url}/posted",
            "--exec=commanded=cat",
            imports="support.worker.paying,support.worker.handlers,support.worker.process_handlers,"
            "support.worker.batch_handlers",
            database_url=role_url("app_worker"),
            http_port=port,
            http_allow_private="127.0.0.1",
            api_token=TOKEN,
            lease=4,  # a session that has been up for a quarter of it sweeps
        )
        await insert(connection, "batched nap", payload={"seconds": 0})  # makes two
        kinds = {
            "echo": {"a": 1},
            "thread": {"seconds": 0.01},
            "pid": {},
            "batched nap": {"seconds": 0},
            "pay": {},
            "posted": {},
            "commanded": {},
            "fail": {"message": "no"},
        }
        jobs = {
            kind: await insert(
                connection,
                kind,
                payload=payload,
                max_attempts=1,
                webhook=f"{receiver.url}/told",
            )
            for kind, payload in kinds.items()
        }
        statuses = {
            kind: (await ended(connection, job))["status"] for kind, job in jobs.items()
        }
        assert statuses == dict.fromkeys(jobs, "completed") | {"fail": "failed"}
        await receiver.has_posts(1 + len(jobs))

        async def is_kept_up() -> bool:
            done: bool = await connection.fetchval(
                "select not exists (select from pgwake.jobs_live)"  # swept, and run
                " and exists (select from pgwake.count_folds)"
                " and (select fired_count = 1 from pgwake.schedules)"
            )
            return done

        await wait_for(is_kept_up, 15)

        metrics = Samples((await fetch(port, "/metrics")).text)
        assert metrics.has("pgwake_queue_pending_jobs")
        async with client(port) as api:
            for path in (
                "queue/stats",
                "queue/active-tasks",
                "queue/history",
                "jobs",
                f"jobs/{jobs['pay']}",
                "workers",
                "failed",
            ):
                answer = await api.get(f"/api/{path}")
                assert answer.status_code == 200, answer.text
            # What needs another role's rights is refused, and says so.
            found = problem(
                await api.post("/api/queues/default/pause"), 403, code="42501"
            )
            assert "pgwake_admin" in found["hint"]
            limits = "/api/queues/default/limits"
            problem(await api.post(limits, json={"max_running": 5}), 403)
            assert (await api.post("/api/emit", json={"name": "e"})).is_success
            problem(await api.post(f"/api/jobs/{jobs['fail']}/retry"), 403)
            problem(await api.post(f"/api/jobs/{jobs['pay']}/cancel"), 403)
    refused = [line for line in worker.lines if "42501" in json.dumps(line)]
    assert refused == []


async def test_a_producers_queue_enqueues_waits_and_is_refused_the_rest(
    role_url: RoleUrl, start_worker: StartProcess
) -> None:
    await start_worker(database_url=role_url("app_worker"))
    async with Queue(role_url("app_producer")) as queue:
        job_id = await queue.enqueue("echo", {"a": 1})
        (other,) = await queue.enqueue_many([NewJob("echo", {})])
        ended = await queue.wait_for(job_id, timeout=15)
        assert ended.result == {"a": 1}
        assert (await queue.get_job(other))["kind"] == "echo"
        assert await queue.stats()
        with pytest.raises(ConfigurationError, match=HINT):
            await queue.cancel(job_id)


async def test_a_worker_without_its_role_waits_and_says_which_it_needs(
    start_process: StartProcess, role_url: RoleUrl
) -> None:
    worker = await start_process(
        *("-m", "pgwake", "run", "--import=support.worker.handlers", "--http-port=0"),
        database_url=role_url("app_producer"),
    )
    assert HINT in (await worker.logged("database not usable"))["problem"]


async def test_what_a_command_may_not_do_is_told_with_the_roles_that_may(
    pgwake: Pgwake, role_url: RoleUrl
) -> None:
    for login, line in (
        ("app_worker", "pause default"),
        ("app_worker", "retry 1"),
        ("app_worker", "purge --queue default --yes"),
        ("app_worker", "limit default --max-running 3"),
        ("app_producer", "schedule list"),
        ("app_producer", "workers"),
        ("app_nobody", "stats"),
        ("app_nobody", "enqueue a"),
    ):
        answer = await pgwake(*line.split(), PGWAKE_DATABASE_URL=role_url(login))
        assert answer.code == 1, line
        assert "pgwake: permission denied for " in answer.errors
        assert answer.errors.splitlines()[-1] == ROLES_HINT


async def test_an_admins_commands_work(pgwake: Pgwake, role_url: RoleUrl) -> None:
    for line in (
        "enqueue a",
        "list",
        "show 1",
        "explain 1",
        "peek",
        "failed",
        "stats",
        "queues",
        "workers",
        "kinds",
        "limit default --max-running 3",
        "limit default --key k --key-limit 3",
        "schedule add s a --every 3600",
        "schedule list",
        "pause default",
        "resume default",
        "cancel 1",
        "retry 1",
        "drain default",
    ):
        answer = await pgwake(*line.split(), PGWAKE_DATABASE_URL=role_url("app_admin"))
        assert answer.code == 0, f"{line}: {answer.errors}"


async def test_init_makes_the_roles_and_a_later_one_grants_what_is_new(
    pgwake: Pgwake, role_url: RoleUrl, admin_url: str
) -> None:
    may_maintain = (
        "select has_function_privilege('pgwake_worker', 'pgwake.maintain(text)',"
        " 'execute'), has_schema_privilege('pgwake_worker', 'pgwake', 'usage')"
    )
    init = functools.partial(pgwake, "init", PGWAKE_DATABASE_URL=role_url("postgres"))
    with psycopg.connect(admin_url, autocommit=True) as owner:
        owner.execute("revoke all on function pgwake.maintain from pgwake_worker")
        assert (await init()).code == 0
        assert owner.execute(may_maintain).fetchone() == (True, True)

        # Where nobody has asked for the roles, they get nothing.
        owner.execute("drop owned by pgwake_producer, pgwake_worker, pgwake_admin")
        assert (await init()).code == 0
        assert owner.execute(may_maintain).fetchone() == (False, False)
        assert (await init("--roles")).code == 0
        assert owner.execute(may_maintain).fetchone() == (True, True)
