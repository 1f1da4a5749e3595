"""What the HTTP API does: cancel, retry, pause, resume."""

import asyncio
import json
from datetime import UTC, datetime, timedelta, timezone

import httpx

from pgwake import Job, Registry
from support import Connection
from support.sql.helpers import insert, job, job_in, running, status
from support.worker.api import problem, serving
from support.worker.helpers import ended, in_status

CLAIM = "select * from pgwake.claim_jobs('default', 1)"
NAMES = (
    "q",
    "a/b",
    "a/push",
    "a\n/b",
    "..",
    "%2F",
    "?#&=+ ",
    "\N{SNOWMAN}",
    "u\N{COMBINING DIAERESIS}",
    "\xfc",
    "x'; drop table pgwake.jobs; --",
    "%I %s $1 {0} \\ U&''",
)


async def test_a_pending_job_is_cancelled_at_once(
    connection: Connection, database: str
) -> None:
    job_id = await insert(connection)
    async with serving(database) as api:
        answer = await api.post(f"/api/jobs/{job_id}/cancel")
        assert answer.json() == {"id": job_id, "outcome": "cancelled"}
        assert await status(connection, job_id) == "cancelled"
        again = await api.post(f"/api/jobs/{job_id}/cancel")
        assert again.json() == {"id": job_id, "outcome": "cancelled"}


async def test_a_running_job_is_asked_to_stop_and_stops(
    connection: Connection, database: str
) -> None:
    registry = Registry()

    @registry.job("wait")
    async def wait() -> None:
        await asyncio.sleep(3600)

    async with serving(database, registry) as api:
        job_id = await insert(connection, "wait")
        await in_status(connection, job_id, "running")
        answer = await api.post(f"/api/jobs/{job_id}/cancel")
        assert answer.json() == {"id": job_id, "outcome": "cancel_requested"}
        assert (await ended(connection, job_id))["status"] == "cancelled"


async def test_a_dead_letter_is_retried_and_runs(
    connection: Connection, database: str
) -> None:
    registry, tries = Registry(), []

    @registry.job("fail_once", max_attempts=1)
    async def fail_once(job: Job) -> None:
        tries.append(job.id)
        if len(tries) == 1:
            raise ValueError("not yet")

    async with serving(database, registry) as api:
        job_id = await insert(connection, "fail_once")
        assert (await ended(connection, job_id))["status"] == "failed"
        answer = await api.post(f"/api/jobs/{job_id}/retry")
        assert answer.json() == {"id": job_id, "status": "pending"}
        assert (await ended(connection, job_id))["status"] == "completed"


async def test_what_can_not_be_retried_says_why(
    connection: Connection, database: str
) -> None:
    done = await job_in(connection, "completed")
    failed = await job_in(connection, "failed", unique_key="k")
    live = await insert(connection, unique_key="k")
    async with serving(database) as api:
        found = problem(await api.post(f"/api/jobs/{done}/retry"), 422, code="PW003")
        assert found["detail"] == f"job {done} is completed"
        found = problem(await api.post(f"/api/jobs/{failed}/retry"), 409, code="PW005")
        assert f"job {live}" in found["detail"]
        assert found["hint"]
    assert await status(connection, failed) == "failed"


async def test_jobs_that_wait_are_changed_and_run_now(
    connection: Connection, database: str
) -> None:
    later = datetime(2099, 1, 1, tzinfo=UTC)
    first, second = [await insert(connection, "a", run_at=later) for _ in "12"]
    held = await running(connection, queue="other", kind="a")
    async with serving(database) as api:

        async def update(changes: object, **body: object) -> dict[str, list[int]]:
            answer = await api.post(
                "/api/waiting/update",
                content=json.dumps({**body, "changes": changes}).replace(
                    '"1e-99"', "1e-99"
                ),
                headers={"Content-Type": "application/json"},
            )
            outcomes = answer.json()["outcomes"]
            assert all(row["count"] == len(row["ids"]) for row in outcomes)
            return {row["outcome"]: row["ids"] for row in outcomes}

        changes = {"priority": 5, "payload": {"n": "1e-99"}, "max_attempts": None}
        changes |= {"metadata": {"by": "me"}, "queue": "moved"}
        changes["expires_at"] = "2098-01-01T00:00:00+01:00"
        dry = await update(changes, kind="a", dry_run=True)
        assert dry == {"updated": [first, second], "running": [held["id"]]}
        assert (await job(connection, first))["queue"] == "default"
        assert await update(changes, ids=[first, 4711]) == {
            "updated": [first],
            "no_such_job": [4711],
        }
        row = await job(connection, first)
        assert (row["priority"], row["queue"]) == (5, "moved")
        assert (row["metadata"], row["run_at"]) == ({"by": "me"}, later)
        assert row["expires_at"].year == 2097
        exact = "select payload ->> 'n' = (1e-99)::text from pgwake.jobs where id = $1"
        assert await connection.fetchval(exact, first)
        await update(
            {
                "metadata": None,
                "expires_at": None,
                "run_at": "2098-01-01T00:00:00+01:00",
            },
            ids=[first],
        )
        row = await job(connection, first)
        assert (row["metadata"], row["expires_at"]) == (None, None)
        assert await update({"run_at": "now"}, kind="a", limit=1, after=first) == {
            "updated": [second]
        }

        path = "/api/jobs/{}/run-now".format
        answer = await api.post(path(first))
        assert answer.json() == {"id": first, "outcome": "updated"}
        answer = await api.post(path(held["id"]))
        assert answer.json() == {"id": held["id"], "outcome": "running"}
        problem(await api.post(path(4711)), 404, code="PW001")
        for body in (
            {"changes": {"priority": 1}},
            {"ids": [first]},
            {"ids": [first], "changes": {}},
            {"ids": [first], "changes": {"priority": None}},
            {"ids": [first], "changes": {"priority": 101}},
            {"ids": [first], "changes": {"run_at": "tomorrow"}},
            {"ids": [first], "changes": {"unique_key": "k"}},
            {"ids": [], "changes": {"priority": 1}},
            {"kind": "a", "status": "running", "changes": {"priority": 1}},
        ):
            problem(await api.post("/api/waiting/update", json=body), 422)


async def test_dead_letters_are_retried_by_what_they_are(
    connection: Connection, database: str
) -> None:
    first = await job_in(connection, "failed", queue="a", kind="x")
    second = await job_in(connection, "failed", queue="a", kind="y")
    taken = await job_in(connection, "failed", queue="a", kind="z", unique_key="k")
    await insert(connection, kind="z", unique_key="k")
    fingerprint = (await job(connection, first))["fingerprint"]
    async with serving(database) as api:

        async def retry(**body: object) -> object:
            return (await api.post("/api/failed/retry", json=body)).json()

        assert await retry(queue="b") == {"retried": 0, "skipped": 0}
        assert await retry(fingerprint=fingerprint) == {"retried": 1, "skipped": 0}
        assert await status(connection, first) == "pending"
        assert await retry(limit=1) == {"retried": 1, "skipped": 0}
        assert await status(connection, second) == "pending"
        assert await retry() == {"retried": 0, "skipped": 1}
        assert await status(connection, taken) == "failed"
        for body in (
            {"limit": 0},
            {"limit": 10_001},
            {"fingerprint": "x"},
            {"all": True},
        ):
            problem(await api.post("/api/failed/retry", json=body), 422)
        problem(await api.post("/api/failed/retry"), 400)
        again = await job_in(connection, "failed", queue="slow")
        await job_in(connection, "failed", queue="slow")
        assert await retry(queue="slow", rate=0.001) == {"retried": 2, "skipped": 0}
        count = "select count(*) from pgwake.jobs where run_at > now()"
        assert await connection.fetchval(count) == 1
        assert await status(connection, again) == "pending"


async def test_dead_letters_are_purged_and_live_jobs_cancelled_after_a_dry_run(
    connection: Connection, database: str
) -> None:
    letters = [await job_in(connection, "failed", queue="a") for _ in "12"]
    held = await running(connection, queue="b")
    waits = await insert(connection, queue="b")
    async with serving(database) as api:

        async def post(path: str, **body: object) -> object:
            return (await api.post(path, json=body)).json()

        purge, cancel = "/api/failed/purge", "/api/live/cancel"
        assert await post(purge, queue="a", dry_run=True) == {"purged": 2}
        assert await post(purge, queue="a", limit=1) == {"purged": 1}
        left = "select array_agg(id) from pgwake.jobs_failed"
        assert await connection.fetchval(left) == letters[1:]

        done = {"cancelled": 1, "cancel_requested": 1, "missed": 0}
        assert await post(cancel, queue="b", dry_run=True) == done
        assert await status(connection, waits) == "pending"
        assert await post(cancel, queue="b", status="pending") == {
            **done,
            "cancel_requested": 0,
        }
        assert await status(connection, waits) == "cancelled"
        assert await status(connection, held["id"]) == "running"
        for path, body in (
            (purge, {}),
            (cancel, {}),
            (cancel, {"dry_run": True}),
            (cancel, {"queue": "b", "status": "failed"}),
        ):
            problem(await api.post(path, json=body), 422)


async def test_a_queue_is_paused_and_resumed_whatever_its_name(
    connection: Connection, database: str
) -> None:
    async with serving(database) as api:
        for name in NAMES:
            address = "/api/queues/" + "".join(f"%{byte:02X}" for byte in name.encode())
            await is_paused_and_resumed(api, name, address, connection)


async def is_paused_and_resumed(
    api: httpx.AsyncClient, name: str, address: str, connection: Connection
) -> None:
    async def state() -> tuple[object, object]:
        answer = await api.get("/api/queue/stats", params={"queue": name})
        (found,) = answer.json()["queues"]
        return found["is_paused"], found["paused_until"]

    for_good = await api.post(f"{address}/pause")
    assert for_good.json() == {"queue": name, "paused_until": None}
    assert await state() == (True, None)

    until = datetime(2099, 1, 1, 12, tzinfo=UTC)
    given = until.astimezone(timezone(timedelta(hours=3))).isoformat()
    answer = await api.post(f"{address}/pause", json={"until": given})
    assert answer.json() == {"queue": name, "paused_until": until.isoformat()}
    assert await state() == (True, until.isoformat())

    answer = await api.post(f"{address}/pause", json={"seconds": 60})
    found = datetime.fromisoformat(answer.json()["paused_until"])
    now = await connection.fetchval("select now()")
    assert timedelta(0) < found - now <= timedelta(seconds=60)

    answer = await api.post(f"{address}/resume")
    assert answer.json() == {"queue": name, "was_paused": True}
    assert await state() == (False, None)
    answer = await api.post(f"{address}/resume")
    assert answer.json() == {"queue": name, "was_paused": False}

    body = {"kind": name, "unique_key": name}
    pushed = await api.post(address.removeprefix("/api") + "/push", json=body)
    filters = {"queue": name, "kind": name, "unique_key": name, "status": "pending"}
    listed = (await api.get("/api/jobs", params=filters)).json()["jobs"]
    assert [job["id"] for job in listed] == pushed.json()["ids"]


async def test_a_schedule_is_paused_run_and_resumed(
    connection: Connection, database: str
) -> None:
    await connection.execute(
        "select pgwake.schedule('a/b', '@daily', 'k', may_overlap => false)"
    )
    async with serving(database) as api:

        async def change(name: str) -> object:
            return (await api.post(f"/api/schedules/a%2Fb/{name}")).json()

        assert await change("pause") == {"was_paused": False}
        assert await change("pause") == {"was_paused": True}
        assert await change("run") == {"job_id": 1}
        assert await change("run") == {"job_id": None}
        assert await change("resume") == {"was_paused": True}
        (found,) = (await api.get("/api/schedules")).json()["schedules"]
        assert (found["name"], found["cron"], found["last_job_id"]) == (
            "a/b",
            "@daily",
            1,
        )
        assert await change("remove") == {"was_there": True}
        assert await change("remove") == {"was_there": False}
        problem(await api.post("/api/schedules/nobody/run"), 422)


async def test_limits_are_changed_one_by_one_also_those_of_a_key(
    connection: Connection, database: str
) -> None:
    await insert(connection, queue="a/b")
    path = "/api/queues/a%2Fb/limits"
    async with serving(database) as api:
        limits = {"max_running": 5, "rate_limit": 0.5, "max_pending": 9}
        await api.post(path, json=limits)
        answer = await api.post(path, json={"rate_limit": None, "key_rate": 2})
        assert (answer.json()["rate_limit"], answer.json()["max_running"]) == (None, 5)
        key = {"key": "acme", "key_limit": 0, "key_rate": 1.5}
        told = (await api.post(path, json=key)).json()
        assert (told["keys"], told["key_rates"]) == ({"acme": 0}, {"acme": 1.5})
        (queue,) = (await api.get("/api/queues")).json()["queues"]
        assert told.items() <= queue.items()
        assert queue["policy"] == {}
        for body in (
            {"max_running": 0},
            {"max_running": "none"},
            {"rate_burst": 3},
            {"key_rate": -1},
            {"key": "acme", "max_running": 1},
            {"key": ""},
            {"timeout": 5},
        ):
            problem(await api.post(path, json=body), 422)
        assert (await api.post(path, json={})).json() == told


async def test_limits_of_a_kind_are_changed_one_by_one(database: str) -> None:
    path = "/api/kinds/a%2Fb/limits"
    async with serving(database) as api:
        await api.post(path, json={"max_running": 0, "rate_limit": 0.5})
        told = (await api.post(path, json={"rate_limit": None})).json()
        assert told == {"max_running": 0, "rate_limit": None, "rate_burst": None}
        found = (await api.get("/api/kinds")).json()["kinds"]
        overrides = {kind["name"]: kind["overrides"] for kind in found}
        assert overrides["a/b"] == {"max_running": 0}
        for body in ({"max_running": -1}, {"rate_burst": 3}, {"key_limit": 1}):
            problem(await api.post(path, json=body), 422)
        assert (await api.post(path, json={})).json() == told


async def test_a_schedule_is_added_and_an_event_emitted_to_the_last_digit(
    connection: Connection, database: str
) -> None:
    exact = '{"n": 9007199254740993.10}'
    headers = {"Content-Type": "application/json"}

    def text(fields: dict[str, object]) -> str:
        return json.dumps(fields)[:-1] + f', "payload": {exact}}}'

    nightly = {"name": "nightly", "kind": "k", "priority": 2.0, "misfire": "all"}
    async with serving(database) as api:

        async def post(path: str, fields: dict[str, object]) -> httpx.Response:
            return await api.post(path, content=text(fields), headers=headers)

        for is_different in (True, False):
            added = await post("/api/schedules", {**nightly, "cron": "@daily"})
            assert added.json() == {"is_different": is_different}
        for wrong in ({}, {"cron": "@often"}, {"cron": "@daily", "every_seconds": 5}):
            problem(await post("/api/schedules", {**nightly, **wrong}), 422)
        for is_first in (True, False):
            emitted = await post("/api/emit", {"name": "order:42:approved"})
            assert emitted.json() == {"is_first": is_first}
        problem(await post("/api/emit", {"name": ""}), 422)
    found = (
        "select cron, queue, priority, misfire, s.payload::text, e.payload::text"
        " from pgwake.schedules as s, pgwake.events as e"
    )
    row = ("@daily", "default", 2, "all", exact, exact)
    assert [tuple(one) for one in await connection.fetch(found)] == [row]


async def test_a_retry_keeps_steps_and_patches_the_payloads_of_a_group(
    connection: Connection, database: str
) -> None:
    await insert(connection, "k", payload={"old": 1, "n": 1}, max_attempts=1)
    (held,) = await connection.fetch(CLAIM)
    pair = held["id"], held["lease_id"]
    for name in "ab":
        await connection.execute("select pgwake.record_step($1, $2, $3)", *pair, name)
    await connection.execute("select pgwake.fail_job($1, $2, 'no')", *pair)
    async with serving(database) as api:
        patch = b'{"kind": "k", "patch": {"old": null, "price": 0.10}}'
        answer = await api.post(
            "/api/failed/retry",
            content=patch,
            headers={"Content-Type": "application/json"},
        )
        assert answer.json() == {"retried": 1, "skipped": 0}
        payload = "select payload::text from pgwake.jobs"
        assert await connection.fetchval(payload) == '{"n": 1, "price": 0.10}'

        await api.post(f"/api/jobs/{held['id']}/cancel")
        path = f"/api/jobs/{held['id']}/retry"
        problem(await api.post(path, json={"keep_steps": -1}), 422)
        await api.post(path, json={"keep_steps": 1})
        (held,) = await connection.fetch(CLAIM)
        await connection.execute(
            "select pgwake.await_event($1, $2, 'paid')", held["id"], held["lease_id"]
        )
        found = (await api.get(f"/api/jobs/{held['id']}")).json()
        assert [step["name"] for step in found["steps"]] == ["a"]
        assert (found["status"], found["waits_for"]) == ("waiting", "paid")


async def test_a_pause_that_can_not_be_meant_pauses_nothing(
    connection: Connection, database: str
) -> None:
    bodies: tuple[object, ...] = (
        {"until": "2020-01-01T00:00:00Z"},
        {"until": "0001-01-01T00:00:00+14:00"},
        {"until": "9999-12-31T23:59:59-12:00"},
        {"until": "tomorrow"},
        {"until": "infinity"},
        {"until": "2099-01-01T00:00:00"},
        {"until": "2099-02-30T00:00:00Z"},
        {"until": 4070908800},
        {"seconds": 0},
        {"seconds": -1},
        {"seconds": 1e300},
        {"seconds": "60"},
        {"seconds": True},
        {"until": "2099-01-01T00:00:00Z", "seconds": 60},
        {"for": 60},
        [],
        None,
    )
    async with serving(database) as api:
        for body in bodies:
            answer = await api.post(
                "/api/queues/q/pause",
                content=json.dumps(body),
                headers={"Content-Type": "application/json"},
            )
            problem(answer, 422)
    assert await connection.fetchval("select count(*) from pgwake.queues") == 0


async def test_names_that_no_queue_can_have_are_problems(database: str) -> None:
    async with serving(database) as api:
        for name in ("q" * 129, "%C3%BC" * 65, "%00", "a%00b", ""):
            for path in (
                f"/api/queues/{name}/pause",
                f"/api/queues/{name}/resume",
                f"/queues/{name}/push",
            ):
                answer = await api.post(
                    path, json={} if "api" in path else {"kind": "a"}
                )
                assert problem(answer, 422)["errors"][0]["field"] == "name"
        problem(await api.post("/queues/%FF/push", json={"kind": "a"}), 400)
