"""What the HTTP API tells: stats, history, jobs, dead letters, workers."""

import json
from datetime import UTC, datetime, timedelta
from typing import Any

import httpx
import pytest

from pgwake import Registry
from pgwake.database.statements.stats import list_jobs
from pgwake.http.api.history import drawn
from pgwake.observe.history import History
from support import Connection, wait_for
from support.sql.helpers import call, insert, job_in, pair, running
from support.worker.api import problem, serving
from support.worker.helpers import all_ended


async def reported(api: httpx.AsyncClient) -> None:
    """Wait until the worker has reported itself, a moment after its start."""

    async def is_there() -> bool:
        return bool((await api.get("/api/workers")).json()["workers"])

    await wait_for(is_there)


async def test_stats_tell_what_stands_in_each_queue_and_in_all(
    connection: Connection, database: str
) -> None:
    async with serving(database) as api:
        for queue in ("a", "b"):
            await job_in(connection, "completed", queue=queue)
            await job_in(connection, "failed", queue=queue)
            await job_in(connection, "running", queue=queue)
            await insert(connection, queue=queue)
        tomorrow = datetime.now(UTC) + timedelta(days=1)
        await insert(connection, queue="b", run_at=tomorrow)
        await reported(api)
        found = (await api.get("/api/queue/stats")).json()
        only = (await api.get("/api/queue/stats", params={"queue": "b"})).json()
        none = (await api.get("/api/queue/stats", params={"queue": "none"})).json()

    assert found["queue_size"] == 3
    assert found["active_tasks"] == 2
    assert found["workers"] == 1
    assert found["tasks_enqueued"] == 9
    assert found["tasks_completed"] == found["tasks_failed"] == 2
    assert [one["queue"] for one in found["queues"]] == ["a", "b"]
    b = found["queues"][1]
    assert only["queues"][0]["queue"] == "b"
    assert (b["pending"], b["scheduled"], b["waiting"], b["failed"]) == (1, 1, 0, 1)
    assert (b["queue_size"], b["active_tasks"], b["workers"]) == (2, 1, 0)
    assert (b["tasks_enqueued"], b["tasks_completed"], b["tasks_failed"]) == (5, 1, 1)
    assert b["oldest_pending_seconds"] > 0
    assert not b["is_paused"]
    # Each has completed one job, so the average of all is that of the two.
    for average in ("avg_queue_time_ms", "avg_execution_time_ms"):
        mean = sum(one[average] for one in found["queues"]) / 2
        assert found[average] == pytest.approx(mean)
    assert (only["queue_size"], only["workers"]) == (2, 0)
    assert none["queues"] == []
    assert none["queue_size"] == none["tasks_enqueued"] == none["workers"] == 0
    assert none["avg_queue_time_ms"] is None


async def test_the_average_of_all_queues_counts_each_job_once(
    connection: Connection, database: str
) -> None:
    await connection.execute(
        "insert into pgwake.counts (queue, at, completed, queue_ms, execution_ms)"
        " values ('a', now(), 9, 900, 90), ('b', now(), 1, 1100, 110)"
    )
    async with serving(database) as api:
        found = (await api.get("/api/queue/stats")).json()
    assert found["avg_queue_time_ms"] == 200
    assert found["avg_execution_time_ms"] == 20


async def test_history_tells_what_each_queue_was_like_and_how_fast_it_went() -> None:
    history = History()
    start = datetime(2026, 1, 1, tzinfo=UTC)
    empty: dict[str, Any] = dict.fromkeys(
        (
            *("pending_count", "scheduled_count", "running_count"),
            *("failed_total", "retried_total", "completed_total"),
        ),
        0,
    ) | dict.fromkeys(("avg_queue_time_ms", "avg_execution_time_ms"))
    history.add(start, [{"queue": "a", "enqueued_total": 5, **empty}])
    history.add(
        start + timedelta(seconds=10),
        [
            {"queue": "a", "enqueued_total": 30, **empty},
            {"queue": "b", "enqueued_total": 7, **empty, "avg_queue_time_ms": 1.5},
        ],
    )
    # As after a restore from a backup, which has seen less.
    history.add(
        start + timedelta(seconds=20), [{"queue": "a", "enqueued_total": 2, **empty}]
    )
    found = json.loads(drawn(history))
    a, b = found["queues"]
    assert found["at"][0] == "2026-01-01T00:00:00+00:00"
    assert a["enqueued"] == [None, 2.5, None]
    assert a["pending"] == [0, 0, 0]
    assert b["enqueued"] == [None, None, None]
    assert b["avg_queue_time_ms"] == [None, 1.5, None]


async def test_history_is_what_the_worker_has_sampled(
    connection: Connection, database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pgwake.engine.upkeep.SAMPLE_SECONDS", 0.1)
    await insert(connection, queue="a")
    async with serving(database) as api:

        async def has_samples() -> bool:
            return len((await api.get("/api/queue/history")).json()["at"]) > 2

        await wait_for(has_samples)
        found = (await api.get("/api/queue/history")).json()
    assert found["interval_seconds"] == 10
    a = next(queue for queue in found["queues"] if queue["queue"] == "a")
    assert set(a["pending"]) == {1}
    assert {len(series) for name, series in a.items() if name != "queue"} == {
        len(found["at"])
    }


async def test_active_tasks_are_told_longest_running_first_with_their_progress(
    connection: Connection, database: str
) -> None:
    first = await running(connection, queue="a", kind="x")
    second = await running(connection, queue="b", kind="y")
    await call(connection, "set_progress", **pair(second), progress={"done": 0.5})
    await insert(connection, queue="a")
    async with serving(database) as api:
        found = (await api.get("/api/queue/active-tasks")).json()
        one = (await api.get("/api/queue/active-tasks?limit=1")).json()
        of_b = (await api.get("/api/queue/active-tasks?queue=b")).json()
    assert found["count"] == 2
    assert [task["id"] for task in found["tasks"]] == [first["id"], second["id"]]
    x, y = found["tasks"]
    assert (x["kind"], x["queue"], x["worker"], x["progress"]) == ("x", "a", "w1", None)
    assert datetime.fromisoformat(x["enqueued_at"]) == first["created_at"]
    assert x["started_at"].endswith("+00:00")
    assert y["progress"] == {"done": 0.5}
    assert (one["count"], len(one["tasks"])) == (2, 1)
    assert (of_b["count"], of_b["tasks"][0]["id"]) == (1, second["id"])


async def test_jobs_are_listed_newest_first_by_what_they_are(
    connection: Connection, database: str
) -> None:
    done = await job_in(connection, "completed", queue="a", kind="x")
    failed = await job_in(connection, "failed", queue="a", kind="y")
    held = await running(connection, queue="b", kind="x", unique_key="k")
    pending = await insert(connection, queue="b", kind="y", concurrency_key="c")
    async with serving(database) as api:

        async def ids(**wanted: str) -> list[int]:
            answer = await api.get("/api/jobs", params=wanted)
            return [job["id"] for job in answer.json()["jobs"]]

        assert await ids() == [pending, held["id"], failed, done]
        assert await ids(queue="a") == [failed, done]
        assert await ids(kind="x") == [held["id"], done]
        assert await ids(status="failed") == [failed]
        assert await ids(status="running", worker="w1") == [held["id"]]
        assert await ids(worker="w2") == []
        assert await ids(unique_key="k") == [held["id"]]
        assert await ids(concurrency_key="c") == [pending]
        (listed,) = (await api.get("/api/jobs?status=running")).json()["jobs"]
    assert datetime.fromisoformat(listed["created_at"]) == held["created_at"]
    assert listed == {
        "id": held["id"],
        "queue": "b",
        "kind": "x",
        "status": "running",
        "priority": 0,
        "run_at": listed["run_at"],
        "attempt": 1,
        "progress": None,
        "concurrency_key": None,
        "worker": "w1",
        "created_at": listed["created_at"],
        "started_at": listed["started_at"],
        "finished_at": None,
    }


async def test_pages_of_jobs_stay_whole_while_jobs_come_and_end(
    connection: Connection, database: str
) -> None:
    before = [await insert(connection, "quick", queue="elsewhere") for _ in range(50)]
    async with serving(database) as api:
        seen: list[int] = []
        after: dict[str, str] = {}
        while True:
            await insert(connection, "quick", queue="elsewhere")
            page = (await api.get("/api/jobs", params={"limit": "7", **after})).json()
            seen += [job["id"] for job in page["jobs"]]
            if page["next"] is None:
                break
            after = {"after": page["next"]}
        await all_ended(connection)
    assert seen == sorted(seen, reverse=True)
    assert len(set(seen)) == len(seen)
    assert set(before) <= set(seen)


async def test_a_filter_that_nothing_matches_looks_at_so_many_jobs_a_page(
    connection: Connection, database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pgwake.database.statements.http.LIST_WINDOW", 10)
    monkeypatch.setattr("pgwake.database.statements.http.LIST_SECONDS", 0)
    monkeypatch.setattr("pgwake.database.statements.stats.LIST_WINDOW", 1)
    oldest = await insert(connection, "oldest", queue="elsewhere")
    for _ in range(35):
        await insert(connection, "quick", queue="elsewhere")
    found: list[int] = []
    pages, after = 0, dict[str, str]()
    async with serving(database) as api:
        while pages == 0 or after:
            parameters = {"kind": "oldest", **after}
            page = (await api.get("/api/jobs", params=parameters)).json()
            found += [job["id"] for job in page["jobs"]]
            pages += 1
            after = {"after": page["next"]} if page["next"] else {}
    assert (found, pages) == ([oldest], 4)

    told: list[int] = []
    only: dict[str, Any] = dict.fromkeys(["queue", "status", "before"])
    (row,) = await list_jobs(
        connection, kind="oldest", limit=5, tell=told.append, **only
    )
    assert row["id"] == oldest
    assert len(told) == 3


async def test_a_job_is_shown_with_all_that_it_is_and_an_explanation(
    connection: Connection, database: str
) -> None:
    payload = {"a": "\N{SNOWMAN}<script>", "n": 1}
    held = await running(connection, kind="x", payload=payload)
    async with serving(database) as api:
        found = (await api.get(f"/api/jobs/{held['id']}")).json()
        row = await call(connection, "get_job", job_id=held["id"])
    assert found["payload"] == payload
    assert found["worker"] == found["claimed_by"] == "w1"
    assert found["explanation"].startswith(f"Job {held['id']} is running.")
    assert set(row) | {"worker", "explanation", "is_queue_paused"} == set(found)


async def test_a_job_that_is_not_there_is_a_problem(database: str) -> None:
    async with serving(database) as api:
        for path in ("", "/cancel", "/retry"):
            method = "POST" if path else "GET"
            answer = await api.request(method, f"/api/jobs/17{path}")
            found = problem(answer, 404, code="PW001", detail="there is no job 17")
            assert found["hint"]
        for word in ("x", "0", "-1", "1.5", "9223372036854775808", "1_0", "%00", " 1"):
            problem(await api.get(f"/api/jobs/{word}"), 422)


async def test_dead_letters_are_told_in_groups(
    connection: Connection, database: str
) -> None:
    last = 0
    for _ in range(3):
        held = await running(connection, queue="a", kind="x")
        last = held["id"]
        await call(
            connection, "fail_job", **pair(held), error="no room", retryable=False
        )
    await job_in(connection, "failed", queue="b", kind="y")
    async with serving(database) as api:
        found = (await api.get("/api/failed")).json()["groups"]
        of_a = (await api.get("/api/failed?queue=a&kind=x")).json()["groups"]
        one = (await api.get("/api/failed?limit=1")).json()["groups"]
    assert [group["queue"] for group in found] == ["b", "a"]
    (group,) = of_a
    assert (group["count"], group["message"], group["reason"]) == (
        3,
        "no room",
        "failed",
    )
    assert group["last_job_id"] == last
    assert group["first_failed_at"] < group["last_failed_at"]
    assert one == found[:1]


async def test_workers_are_told_with_what_they_do(database: str) -> None:
    registry = Registry()

    @registry.job("b", queue="q")
    async def b() -> None: ...

    async with serving(database, registry) as api:
        await reported(api)
        (worker,) = (await api.get("/api/workers")).json()["workers"]
        (kind,) = (await api.get("/api/kinds")).json()["kinds"]
    assert (kind["name"], kind["workers"], kind["bounce_count"]) == ("b", 1, 0)
    assert (worker["queues"], worker["kinds"]) == (["q"], ["b"])
    assert worker["is_live"]
    assert worker["slots"] == 10
    assert worker["running"] == 0
    assert worker["started_at"] <= worker["seen_at"]


async def test_queues_are_told_with_their_policy_and_kinds_with_their_schema(
    connection: Connection, database: str
) -> None:
    await connection.execute(
        "insert into pgwake.queues (name, max_running, timeout)"
        " values ('q', 4, '1 minute');"
        "insert into pgwake.concurrency_limits values ('q', 'customer', 2);"
        "insert into pgwake.concurrency_limits (queue, key, rate_limit)"
        " values ('default', 'fast', 3);"
        "insert into pgwake.jobs (kind) values ('b');"
        "insert into pgwake.kinds (name, declared_schema)"
        " values ('a', '{\"type\": \"object\"}')"
    )
    failed = await job_in(connection, "failed", queue="q")
    async with serving(database) as api:
        before = (await api.get(f"/api/jobs/{failed}")).json()
        await api.post("/api/queues/q/pause")
        queues = (await api.get("/api/queues")).json()["queues"]
        kinds = (await api.get("/api/kinds")).json()["kinds"]
        after = (await api.get(f"/api/jobs/{failed}")).json()
        (group,) = (await api.get("/api/failed")).json()["groups"]
    (queue,) = (queue for queue in queues if queue["name"] == "q")
    assert (queue["max_running"], queue["failed_count"]) == (4, 1)
    assert (queue["keys"], queue["policy"]) == (
        {"customer": 2},
        {"timeout": "00:01:00"},
    )
    assert (queue["is_paused"], queue["paused_until"]) == (True, None)
    (default,) = (queue for queue in queues if queue["name"] == "default")
    assert (default["keys"], default["key_rates"]) == ({}, {"fast": 3})
    assert {"type": "object"} in [kind["schema"] for kind in kinds]
    told = [row["is_queue_paused"] for row in (before, after, group)]
    assert told == [False, True, True]


async def test_findings_tell_what_is_wrong_and_what_to_type(
    connection: Connection, database: str
) -> None:
    await connection.execute(
        "insert into pgwake.jobs (kind, queue, run_at) values ('a', 'q', '2020-01-01')"
    )
    async with serving(database) as api:
        found = (await api.get("/api/findings")).json()["findings"]
    (queue,) = (one for one in found if one["check"] == "queue_without_worker")
    assert (queue["severity"], queue["subject"]) == ("error", "q")
    assert "list_workers" in queue["fix"]


async def test_parameters_that_can_not_be_meant_are_problems_that_name_them(
    database: str,
) -> None:
    async with serving(database) as api:
        for query, field in {
            "limit=0": "limit",
            "limit=501": "limit",
            "limit=many": "limit",
            "limit=5.0": "limit",
            "status=lost": "status",
            "queue=": "queue",
            "queue=%00": "queue",
            "queue=" + "q" * 129: "queue",
            "queue=" + "%C3%BC" * 65: "queue",
            "queue=a&queue=b": "queue",
            "after=0": "after",
            "qeue=a": "qeue",
        }.items():
            found = problem(await api.get(f"/api/jobs?{query}"), 422)
            assert found["errors"][0]["field"] == field, query
        for address in ("/api/jobs?queue=%FF", "/api/jobs/%FF", "/api/jobs?%FF=a"):
            problem(await api.get(address), 400, detail="the address is not UTF-8")


async def test_what_is_not_there_is_a_problem_too(database: str) -> None:
    async with serving(database) as api:
        problem(await api.get("/api/nothing"), 404)
        problem(await api.get("/api/jobs/"), 404)
        assert problem(await api.post("/api/jobs"), 405)
        allowed = (await api.post("/api/jobs")).headers["allow"]
        assert sorted(allowed.split(", ")) == ["GET", "HEAD"]
        problem(await api.get("/queues/a/push"), 405)


async def test_answers_are_kept_by_nobody(database: str) -> None:
    async with serving(database) as api:
        for path in ("/api/jobs", "/api/jobs/1", "/api/jobs?x=1", "/openapi.json"):
            answer = await api.get(path)
            assert answer.headers["cache-control"] == "no-store"
            assert answer.headers["x-content-type-options"] == "nosniff"
            assert "access-control-allow-origin" not in answer.headers
