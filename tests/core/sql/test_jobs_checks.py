"""Illegal rows are impossible: each named check refuses one."""

from datetime import UTC, datetime
from typing import Any
from uuid import UUID

import pytest

from support import Connection
from support.sql.helpers import claim_batch, insert, refused, set_queue, status

NOW = datetime(2026, 1, 1, tzinfo=UTC)
YEAR_9999 = datetime(9999, 12, 31, tzinfo=UTC)
LEASE = UUID(int=1)

LEGAL: dict[str, dict[str, Any]] = {
    "waiting": {"has_parents_left": True},
    "pending": {},
    "running": {
        "lease_id": LEASE,
        "lease_expires_at": NOW,
        "claimed_by": "w1",
        "started_at": NOW,
    },
    "completed": {"finished_at": NOW, "finished_slot": 31, "result": 1},
    "failed": {"finished_at": NOW},
    "cancelled": {"finished_at": NOW, "finished_slot": 0},
}

ILLEGAL: list[tuple[str, dict[str, Any], str]] = [
    ("pending", {"queue": ""}, "queue_is_1_to_128_bytes"),
    ("pending", {"queue": "é" * 64 + "x"}, "queue_is_1_to_128_bytes"),
    ("pending", {"kind": ""}, "kind_is_1_to_128_bytes"),
    ("pending", {"kind": "x" * 129}, "kind_is_1_to_128_bytes"),
    ("pending", {"unique_key": ""}, "unique_key_is_1_to_512_bytes"),
    ("pending", {"unique_key": "x" * 513}, "unique_key_is_1_to_512_bytes"),
    ("pending", {"concurrency_key": ""}, "concurrency_key_is_1_to_512_bytes"),
    ("pending", {"concurrency_key": "x" * 513}, "concurrency_key_is_1_to_512_bytes"),
    ("pending", {"fingerprint": "x"}, "end_matches_status"),
    ("pending", {"priority": 101}, "priority_is_minus_100_to_100"),
    ("pending", {"priority": -101}, "priority_is_minus_100_to_100"),
    ("pending", {"attempt": -1}, "attempt_is_not_negative"),
    ("pending", {"max_attempts": 0}, "max_attempts_is_1_to_10000"),
    ("pending", {"max_attempts": 10001}, "max_attempts_is_1_to_10000"),
    ("pending", {"crash_count": -1}, "crash_count_is_not_negative"),
    ("pending", {"bounce_count": -1}, "bounce_count_is_not_negative"),
    ("pending", {"payload": [1]}, "payload_is_an_object"),
    ("pending", {"payload": "text"}, "payload_is_an_object"),
    ("pending", {"metadata": [1]}, "metadata_is_an_object"),
    ("pending", {"metadata": {"a": "x" * 65536}}, "metadata_is_at_most_64_kib"),
    ("completed", {"result": "x" * 1048576}, "result_is_at_most_1_mib"),
    ("pending", {"progress": "x" * 4096}, "progress_is_at_most_4_kib"),
    ("pending", {"depends_on": []}, "depends_on_has_1_to_10000_ids"),
    ("pending", {"depends_on": [1] * 10001}, "depends_on_has_1_to_10000_ids"),
    ("pending", {"depends_on": [[1], [2]]}, "depends_on_has_1_to_10000_ids"),
    ("pending", {"on_parent_failure": "retry"}, "on_parent_failure_is_known"),
    ("pending", {"webhook": "ftp://a.example"}, "webhook_is_an_http_url"),
    ("pending", {"webhook": "http:///a"}, "webhook_is_an_http_url"),
    ("pending", {"webhook": "http://a/" + "x" * 2048}, "webhook_is_an_http_url"),
    # one that waits waits for something, and the others don't
    ("waiting", {"has_parents_left": None}, "lease_matches_status"),
    ("pending", {"has_parents_left": True}, "lease_matches_status"),
    ("running", {"has_parents_left": True}, "lease_matches_status"),
    # a result belongs to a completed job
    ("pending", {"result": {}}, "end_matches_status"),
    ("failed", {"result": {}}, "end_matches_status"),
    # a lease belongs to a running job, whole
    ("pending", {"lease_id": LEASE}, "lease_matches_status"),
    ("pending", {"claimed_by": "w1"}, "lease_matches_status"),
    ("waiting", {"lease_expires_at": NOW}, "lease_matches_status"),
    ("running", {"lease_id": None}, "lease_matches_status"),
    ("running", {"lease_expires_at": None}, "lease_matches_status"),
    ("running", {"claimed_by": None}, "lease_matches_status"),
    ("failed", {"lease_expires_at": NOW}, "lease_matches_status"),
    ("running", {"claimed_by": ""}, "claimed_by_is_1_to_512_bytes"),
    ("running", {"claimed_by": "x" * 513}, "claimed_by_is_1_to_512_bytes"),
    # a start belongs to one that has been started
    ("pending", {"started_at": NOW}, "lease_matches_status"),
    ("running", {"started_at": None}, "lease_matches_status"),
    ("pending", {"cancel_requested_at": NOW}, "lease_matches_status"),
    ("waiting", {"cancel_requested_at": NOW}, "lease_matches_status"),
    # an end belongs to one that has ended
    ("pending", {"finished_at": NOW}, "end_matches_status"),
    ("running", {"finished_at": NOW}, "end_matches_status"),
    ("completed", {"finished_at": None}, "end_matches_status"),
    ("failed", {"finished_at": None}, "end_matches_status"),
    ("cancelled", {"finished_at": None}, "end_matches_status"),
    ("pending", {"finished_slot": 1}, "end_matches_status"),
    ("failed", {"finished_slot": 1}, "end_matches_status"),
]


@pytest.mark.parametrize("state", LEGAL)
async def test_every_status_has_a_legal_row(db: Connection, state: str) -> None:
    job_id = await insert(db, status=state, **LEGAL[state])

    assert await status(db, job_id) == state


@pytest.mark.parametrize(("state", "changes", "check"), ILLEGAL)
async def test_a_named_check_refuses(
    db: Connection, state: str, changes: dict[str, Any], check: str
) -> None:
    with refused("23514", by=f"jobs_{check}"):
        await insert(db, **{"status": state, **LEGAL[state], **changes})


@pytest.mark.parametrize(
    "instant", ["infinity", "-infinity", "10000-01-01", "0001-01-01", "4000-01-01 BC"]
)
@pytest.mark.parametrize("column", ["run_at", "created_at"])
async def test_times_are_such_as_every_client_can_read(
    db: Connection, column: str, instant: str
) -> None:
    with refused("23514", by=f"jobs_{column}_is_in_years_1_to_9999"):
        await db.execute(
            f"insert into pgwake.jobs (kind, {column}) values ('a', '{instant}')"
        )


@pytest.mark.parametrize("instant", ["0001-01-02 00:00+00", "9999-12-30 23:59:59+00"])
async def test_a_job_of_the_last_year_harms_no_claim(
    db: Connection, instant: str
) -> None:
    await db.execute(
        "insert into pgwake.jobs (kind, run_at, created_at)"
        f" values ('a', '{instant}', '{instant}')"
    )
    row = await claim_batch(db, 9)

    assert (row["ids"] == [1]) == (row["next_run_at"] is None)


@pytest.mark.parametrize(
    "columns",
    [
        {"status": "done"},
        {"status": "Pending"},
        {"status": None},
        {"status": "completed", "finished_at": NOW, "finished_slot": None},
        {"status": "completed", "finished_at": NOW, "finished_slot": 32},
        {"status": "cancelled", "finished_at": NOW, "finished_slot": -1},
    ],
)
async def test_there_is_no_leaf_for_an_unknown_status_or_slot(
    db: Connection, columns: dict[str, Any]
) -> None:
    with refused("23514"):
        await insert(db, **columns)


@pytest.mark.parametrize(
    "column",
    [
        *("kind", "queue", "priority", "run_at", "attempt", "payload"),
        *("crash_count", "bounce_count", "created_at"),
    ],
)
async def test_what_every_job_has_is_never_null(db: Connection, column: str) -> None:
    with refused("23502"):
        await insert(db, **{"kind": "a", column: None})


ILLEGAL_POLICY: list[tuple[dict[str, Any], str]] = [
    ({"name": ""}, "name_is_1_to_128_bytes"),
    ({"webhook": "a.example"}, "webhook_is_an_http_url"),
    ({"name": "x" * 129}, "name_is_1_to_128_bytes"),
    ({"paused_until": YEAR_9999}, "paused_until_is_infinity_or_before_year_10000"),
    ({"max_attempts": 0}, "max_attempts_is_1_to_10000"),
    ({"max_attempts": 10001}, "max_attempts_is_1_to_10000"),
    ({"max_crashes": 0}, "max_crashes_is_1_to_100"),
    ({"max_crashes": 101}, "max_crashes_is_1_to_100"),
    ({"backoff_jitter": -0.1}, "backoff_jitter_is_0_to_1"),
    ({"backoff_jitter": 1.1}, "backoff_jitter_is_0_to_1"),
    ({"priority": 101}, "priority_is_minus_100_to_100"),
    ({"max_running": 0}, "max_running_is_1_to_100000"),
    ({"max_running": 100_001}, "max_running_is_1_to_100000"),
    ({"rate_limit": 0.0}, "rate_limit_is_up_to_1000000_a_second"),
    ({"rate_limit": float("inf")}, "rate_limit_is_up_to_1000000_a_second"),
    ({"rate_limit": float("nan")}, "rate_limit_is_up_to_1000000_a_second"),
    ({"rate_limit": 1.0, "rate_burst": 0}, "rate_burst_is_1_to_1000000"),
    ({"rate_burst": 1}, "rate_burst_needs_rate_limit"),
    ({"key_limit": 0}, "key_limit_is_1_to_10000"),
    ({"key_rate": 0.0}, "key_rate_is_up_to_1000000_a_second"),
    ({"key_rate": float("nan")}, "key_rate_is_up_to_1000000_a_second"),
    ({"key_burst": 0}, "key_burst_is_1_to_1000000"),
    ({"max_pending": 0}, "max_pending_is_1_to_10000000"),
    ({"name": "pgwake.webhooks", "max_pending": 1}, "webhooks_have_no_max_pending"),
    ({"wakeups": "never"}, "wakeups_is_known"),
    ({"status_events": "sometimes"}, "status_events_is_known"),
]
ILLEGAL_INTERVALS = [
    ("lease", "999 ms", "lease_is_1_second_to_1_day"),
    ("lease", "1 day 1 ms", "lease_is_1_second_to_1_day"),
    ("backoff_base", "-1 ms", "backoff_base_is_at_most_1_day"),
    ("backoff_base", "1 day 1 ms", "backoff_base_is_at_most_1_day"),
    ("backoff_cap", "-1 ms", "backoff_cap_is_at_most_1_year"),
    ("backoff_cap", "1 year 1 ms", "backoff_cap_is_at_most_1_year"),
    ("timeout", "0", "timeout_is_up_to_1_day"),
    ("timeout", "1 day 1 ms", "timeout_is_up_to_1_day"),
    ("retention_completed", "-1 s", "retention_completed_is_at_most_10_years"),
    ("retention_completed", "10 years 1 s", "retention_completed_is_at_most_10_years"),
    ("retention_failed", "-1 s", "retention_failed_is_at_most_10_years"),
    ("retention_failed", "10 years 1 s", "retention_failed_is_at_most_10_years"),
]


@pytest.mark.parametrize(("policy", "check"), ILLEGAL_POLICY)
async def test_a_named_check_refuses_policy(
    db: Connection, policy: dict[str, Any], check: str
) -> None:
    with refused("23514", by=f"queues_{check}"):
        await set_queue(db, **policy)


@pytest.mark.parametrize(("column", "interval", "check"), ILLEGAL_INTERVALS)
async def test_a_named_check_refuses_an_interval(
    db: Connection, column: str, interval: str, check: str
) -> None:
    with refused("23514", by=f"queues_{check}"):
        await db.execute(
            f"insert into pgwake.queues (name, {column}) values ('a', '{interval}')"
        )


async def test_every_check_has_a_row_that_it_refuses(db: Connection) -> None:
    tested = {f"jobs_{check}" for _, _, check in ILLEGAL}
    tested |= {f"queues_{check}" for _, check in ILLEGAL_POLICY}
    tested |= {f"queues_{check}" for _, _, check in ILLEGAL_INTERVALS}
    tested |= {"jobs_run_at_is_in_years_1_to_9999"}
    tested |= {"jobs_created_at_is_in_years_1_to_9999"}
    elsewhere = {"jobs_payload_is_at_most_1_mib"}  # test_payloads_and_names.py

    rows = await db.fetch(
        "select c.conname from pg_constraint as c"
        " left join pg_type as t on t.oid = c.contypid"
        " where c.contype = 'c' and ("
        " t.typnamespace = 'pgwake'::regnamespace"
        " or c.conrelid in ('pgwake.jobs'::regclass, 'pgwake.jobs_live'::regclass,"
        " 'pgwake.queues'::regclass))"
    )
    assert {name for (name,) in rows} == tested | elsewhere
