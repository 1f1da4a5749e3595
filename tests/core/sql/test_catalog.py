"""What the database says of the schema: the contract that clients are written to."""

import re
from pathlib import Path

from support import CHECKOUT, Connection
from support.readme import function_files
from support.sql.every_call import ADMIN

SIGNATURES = {
    "adopt": ("INOUT environment text, guard boolean, OUT identity text -> record"),
    "apply_retention": "max_rows integer -> integer",
    "allow_replace": "-> void",
    "await_event": (
        "job_id bigint, lease_id uuid, event text, timeout interval, name text,"
        " may_wait boolean, OUT outcome text, OUT result jsonb -> record"
    ),
    "await_job": (
        "job_id bigint, lease_id uuid, other_id bigint, timeout interval, name text,"
        " may_wait boolean, OUT outcome text, OUT result jsonb -> record"
    ),
    "cancel_job": "job_id bigint -> text",
    "cancel_jobs": (
        "queue text, kind text, concurrency_key text, unique_key text, status text,"
        " max_jobs integer, dry_run boolean -> TABLE(outcome text, job_count bigint)"
    ),
    "check_payload": "kind text, payload jsonb -> void",
    "claim_batch": (
        "queue text, count integer, worker text, lease interval, INOUT cursor jsonb,"
        " suspects boolean, OUT jobs pgwake.claimed_job[], OUT next_run_at timestamp"
        " with time zone, OUT claimed_at timestamp with time zone, OUT is_limited"
        " boolean -> record"
    ),
    "claim_jobs": (
        "queue text, count integer, worker text, lease interval -> SETOF"
        " pgwake.claimed_job"
    ),
    "claim_next_job": (
        "queue text, worker text, lease interval -> SETOF pgwake.claimed_job"
    ),
    "claim_or_wait": (
        "queue text, worker text, lease interval, poll interval -> TABLE(id bigint,"
        " lease_id uuid, kind text, payload jsonb, attempt integer, max_attempts"
        " integer, lease_expires_at timestamp with time zone, created_at timestamp with"
        " time zone, metadata jsonb, options jsonb, wait_seconds double precision,"
        " is_on_duty boolean)"
    ),
    "claim_rows": (
        "queue text, count integer, worker text, lease interval, cursor jsonb, suspects"
        " boolean, unknown_kinds text[] -> TABLE(id bigint, lease_id uuid, kind text,"
        " payload jsonb, attempt integer, max_attempts integer, lease_expires_at"
        " timestamp with time zone, created_at timestamp with time zone, metadata"
        " jsonb, options jsonb, claimed_at timestamp with time zone, is_limited"
        " boolean, next_run_at timestamp with time zone, left_out_id bigint,"
        " next_cursor jsonb)"
    ),
    "complete_job": "job_id bigint, lease_id uuid, result jsonb -> void",
    "complete_jobs": "job_ids bigint[], lease_ids uuid[], results jsonb[] -> text[]",
    "count_retries": "-> TABLE(queue text, retried_total bigint)",
    "declare_kinds": "kinds jsonb, version text, worker text -> integer",
    "diagnose": (
        "-> TABLE(check_name text, severity text, subject text, problem text, fix text,"
        " value double precision)"
    ),
    "diagnose_worker": (
        "processes integer, environment text, roles text[], functions text[] -> SETOF"
        " pgwake.finding"
    ),
    "due_schedules": (
        "-> TABLE(name text, version text, cron text, every interval, timezone text,"
        " misfire text, misfire_limit integer, since timestamp with time zone, now"
        " timestamp with time zone, until timestamp with time zone)"
    ),
    "enqueue": (
        "kind text, payload jsonb, queue text, priority integer, run_at timestamp"
        " with time zone, delay interval, max_attempts integer, unique_key text,"
        " on_conflict text, metadata jsonb, concurrency_key text, depends_on bigint[],"
        " on_parent_failure text, webhook text -> bigint"
    ),
    "emit_event": "name text, payload jsonb, keep interval -> boolean",
    "enqueue_many": "jobs jsonb -> bigint[]",
    "explain_job": "job_id bigint -> text",
    "extend_leases": "job_ids bigint[], lease_ids uuid[], lease interval -> text[]",
    "fail_job": (
        "job_id bigint, lease_id uuid, error text, traceback text, retry_in interval,"
        " retryable boolean, reason text -> text"
    ),
    "fail_jobs": (
        "job_ids bigint[], lease_ids uuid[], errors text[], tracebacks text[], reasons"
        " text[], retry_ins interval[], retryables boolean[] -> text[]"
    ),
    "fire_schedule": (
        "name text, version text, ticks timestamp with time zone[], next_at timestamp"
        " with time zone -> integer"
    ),
    "fire_schedules": (
        "names text[], versions text[], next_ats timestamp with time zone[], ticks"
        " timestamp with time zone[], tick_counts integer[] -> integer[]"
    ),
    "force_complete_job": "job_id bigint, reason text -> void",
    "force_fail_job": "job_id bigint, reason text -> void",
    "forget_worker": "worker text -> boolean",
    "get_adoption": (
        "OUT identity text, OUT present_identity text, OUT is_copy boolean, OUT"
        " environment text -> record"
    ),
    "get_job": "job_id bigint -> jsonb",
    "get_metrics": (
        "-> TABLE(queue text, pending_count bigint, scheduled_count bigint,"
        " waiting_count bigint, running_count bigint, failed_count bigint,"
        " oldest_pending_age interval, avg_queue_time_ms double precision,"
        " avg_execution_time_ms double precision, enqueued_total bigint,"
        " completed_total bigint, failed_total bigint, worker_count bigint, is_paused"
        " boolean, schedule_lag interval, oldest_snapshot_age interval,"
        " notification_queue_usage double precision)"
    ),
    "get_parent_results": (
        "job_id bigint -> TABLE(parent_id bigint, kind text, status text, result jsonb)"
    ),
    "get_queue_stats": (
        "queue text -> TABLE(queue text, pending_count bigint, scheduled_count"
        " bigint, waiting_count bigint, running_count bigint, completed_count bigint,"
        " failed_count bigint, cancelled_count bigint, oldest_pending_age interval,"
        " avg_queue_time_ms double precision, avg_execution_time_ms double precision,"
        " enqueued_total bigint, completed_total bigint, failed_total bigint,"
        " is_estimate boolean)"
    ),
    "get_steps": (
        "job_id bigint -> TABLE(place integer, name text, kind text, result jsonb,"
        " until timestamp with time zone, attempt integer, at timestamp with time zone)"
    ),
    "list_failed": (
        "queue text, kind text, fingerprint text, max_groups integer"
        " -> TABLE(fingerprint text, queue text, kind text, reason text, message text,"
        " job_count bigint, first_failed_at timestamp with time zone, last_failed_at"
        " timestamp with time zone, last_job_id bigint)"
    ),
    "list_kinds": (
        "-> TABLE(name text, declared jsonb, overrides jsonb, check_payload boolean,"
        " declared_version text, declared_by text, declared_at timestamp with time"
        " zone, bounce_count bigint, bounced_at timestamp with time zone,"
        " live_worker_count bigint)"
    ),
    "list_schedules": (
        "-> TABLE(name text, cron text, every interval, timezone text, kind text,"
        " queue text, is_paused boolean, next_at timestamp with time zone, last_at"
        " timestamp with time zone, last_job_id bigint, fired_count bigint,"
        " left_out_count bigint, problem text, payload jsonb, priority smallint,"
        " max_attempts integer, metadata jsonb, concurrency_key text, may_overlap"
        " boolean, misfire text, misfire_limit integer, starts_at timestamp with time"
        " zone, updated_at timestamp with time zone)"
    ),
    "list_workers": (
        "-> TABLE(name text, host text, pid integer, version text, queues text[],"
        " kinds text[], started_at timestamp with time zone, seen_at timestamp with"
        " time zone, running_count bigint, is_live boolean)"
    ),
    "maintain": "step text -> jsonb",
    "merge_patch": "target jsonb, patch jsonb -> jsonb",
    "mute": "queue text -> boolean",
    "next_run_at": "queue text -> timestamp with time zone",
    "next_run_ats": (
        "queues text[] -> TABLE(queue text, run_at timestamp with time zone, seconds"
        " double precision)"
    ),
    "next_suspect_run_at": "queues text[] -> timestamp with time zone",
    "note_schedule_problem": "name text, version text, problem text -> boolean",
    "now": "-> timestamp with time zone",
    "open_writers": "-> text[]",
    "park": "queue text, muted boolean -> boolean",
    "purge": (
        "status text, queue text, kind text, fingerprint text, before timestamp with"
        " time zone, max_jobs integer, dry_run boolean -> bigint"
    ),
    "pause_queue": (
        "queue text, until timestamp with time zone -> timestamp with time zone"
    ),
    "pause_schedule": "name text -> boolean",
    "peek_jobs": (
        "queue text, count integer -> TABLE(id bigint, kind text, priority smallint,"
        " run_at timestamp with time zone, attempt integer, crash_count integer,"
        " bounce_count integer, payload jsonb)"
    ),
    "recount_jobs": "max_bytes bigint -> integer",
    "record_step": "job_id bigint, lease_id uuid, name text, result jsonb -> jsonb",
    "record_steps": (
        "job_ids bigint[], lease_ids uuid[], names text[], results jsonb[] -> text[]"
    ),
    "release_jobs": (
        "job_ids bigint[], lease_ids uuid[], reason text, delays interval[], errors"
        " text[] -> text[]"
    ),
    "release_worker_jobs": (
        "worker text -> TABLE(queue text, kind text, job_count bigint, failed_count"
        " bigint, cancelled_count bigint)"
    ),
    "report_worker": (
        "worker text, host text, pid integer, queues text[], kinds text[], version"
        " text -> void"
    ),
    "report_worker_slots": (
        "worker text, host text, pid integer, queues text[], kinds text[], slots"
        " integer, version text -> void"
    ),
    "resume_queue": "queue text -> boolean",
    "resume_schedule": "name text -> boolean",
    "retry_delay": (
        "attempt integer, base interval, cap interval, jitter double precision,"
        " draw double precision -> interval"
    ),
    "retry_failed": (
        "queue text, kind text, fingerprint text, max_jobs integer, rate double"
        " precision, patch jsonb, dry_run boolean -> TABLE(job_id bigint, queue text,"
        " kind text, run_at timestamp with time zone, payload jsonb, outcome text)"
    ),
    "retry_from_step": "job_id bigint, keep_steps integer -> void",
    "retry_job": "job_id bigint -> void",
    "run_now": "job_id bigint -> text",
    "run_schedule": "name text -> bigint",
    "schedule": (
        "name text, cron text, kind text, payload jsonb, queue text, timezone text,"
        " every interval, priority integer, max_attempts integer, metadata jsonb,"
        " concurrency_key text, may_overlap boolean, misfire text, misfire_limit"
        " integer, starts_at timestamp with time zone -> boolean"
    ),
    "set_progress": "job_id bigint, lease_id uuid, progress jsonb -> text",
    "set_progresses": (
        "job_ids bigint[], lease_ids uuid[], progresses jsonb[] -> text[]"
    ),
    "sleep_job": (
        "job_id bigint, lease_id uuid, name text, until timestamp with time zone"
        " -> text"
    ),
    "snooze_job": "job_id bigint, lease_id uuid, delay interval -> text",
    "sweep_expired_leases": (
        "max_jobs integer -> TABLE(queue text, kind text, job_count bigint,"
        " failed_count bigint, cancelled_count bigint)"
    ),
    "take_upkeep": (
        "worker text, may_sweep boolean, done text[], OUT steps text[], OUT done_ago"
        " jsonb -> record"
    ),
    "unmute": "queue text -> void",
    "unpark": "queue text, muted boolean -> boolean",
    "unschedule": "name text -> boolean",
    "unwatch": "-> void",
    "update_jobs": (
        "changes jsonb, job_ids bigint[], queue text, kind text, concurrency_key text,"
        " unique_key text, status text, after_id bigint, max_jobs integer, dry_run"
        " boolean -> TABLE(outcome text, job_count bigint, ids bigint[])"
    ),
    "watch": "-> void",
}

CLAIMED_JOB = [
    ("id", "bigint"),
    ("lease_id", "uuid"),
    ("queue", "text"),
    ("kind", "text"),
    ("payload", "jsonb"),
    ("attempt", "integer"),
    ("max_attempts", "integer"),
    ("lease_expires_at", "timestamp with time zone"),
    ("created_at", "timestamp with time zone"),
    ("metadata", "jsonb"),
    ("options", "jsonb"),
]

OWN = "pronamespace = 'pgwake'::regnamespace"
EVERYBODY = "a.grantee = 0"


async def names(db: Connection, query: str) -> list[str]:
    return [name for (name,) in await db.fetch(query)]


async def test_every_public_function_has_one_signature(db: Connection) -> None:
    rows = await db.fetch(
        "select proname, pg_get_function_identity_arguments(oid),"
        f" pg_get_function_result(oid) from pg_proc where {OWN}"
        " and obj_description(oid, 'pg_proc') not like 'Internal:%'"
    )
    assert {
        name: f"{arguments} -> {result}".strip() for name, arguments, result in rows
    } == SIGNATURES
    assert len(rows) == len(SIGNATURES)


async def test_the_row_of_a_claim_never_changes(db: Connection) -> None:
    rows = await db.fetch(
        "select attname, format_type(atttypid, atttypmod) from pg_attribute"
        " where attrelid = 'pgwake.claimed_job'::regclass order by attnum"
    )
    assert [tuple(row) for row in rows] == CLAIMED_JOB


async def test_every_parameter_after_an_optional_one_is_optional(
    db: Connection,
) -> None:
    rows = await db.fetch(
        "select proname, pronargs - pronargdefaults from pg_proc"
        f" where {OWN} and pronargs > pronargdefaults"
    )
    required = dict(tuple(row) for row in rows)
    assert required["enqueue"] == required["cancel_job"] == 1
    assert required["claim_batch"] == required["claim_jobs"] == 2
    assert required["complete_jobs"] == required["fail_jobs"] == 2
    assert required["release_jobs"] == required["extend_leases"] == 2
    assert {"claim_next_job", "get_queue_stats", "maintain"}.isdisjoint(required)


async def test_every_function_says_what_it_does(db: Connection) -> None:
    silent = await names(
        db, f"select proname from pg_proc where {OWN} and obj_description(oid) is null"
    )
    assert silent == []


async def test_every_table_says_what_it_is(db: Connection) -> None:
    silent = await names(
        db,
        "select relname from pg_class where relnamespace = 'pgwake'::regnamespace"
        " and relkind in ('r', 'p') and not relispartition"
        " and obj_description(oid) is null",
    )
    assert silent == []


async def test_every_function_that_is_not_put_inline_pins_its_search_path(
    db: Connection,
) -> None:
    unpinned = await names(
        db,
        f"select proname from pg_proc where {OWN}"
        " and not coalesce(proconfig, '{}')"
        " @> array['search_path=pg_catalog, pg_temp']"
        " order by proname",
    )
    inline = {
        "append_error",
        "called_at",
        "retry_delay",
        "ring_slot",
        "status_after_attempt",
        "status_after_change",
        "notify_lock_key",
        "claim_cost",
        "is_announced",
        "is_notify_lock_held",
        "is_watched",
    }
    inline |= {"rows_read", "now", "key_heads", "key_room", "given_jobs", "live_bands"}
    inline |= {"event_lock_key", "is_lost_child"}
    qualified = {"get_audience", "wake"}  # called again and again
    parts = {"lock_due_jobs"}  # claim_rows pins its settings
    assert set(unpinned) == inline | qualified | parts


async def test_no_function_lets_a_forbidden_scan_look_dear_enough_to_compile(
    db: Connection,
) -> None:
    # A table without an index costs 10^10 then, before PostgreSQL 18: far above what
    # JIT starts at, and each call would take 40 ms.
    compiled = await names(
        db,
        f"select proname from pg_proc where {OWN}"
        " and proconfig @> '{enable_seqscan=off}' and not proconfig @> '{jit=off}'",
    )
    assert compiled == []


async def test_what_runs_as_the_owner_is_what_a_role_may_call_and_touches_tables(
    db: Connection,
) -> None:
    # The others are pure, or run in these. open_writers only names jobs, and
    # diagnose_worker is about the rights of its caller.
    sources = dict(
        tuple(row)
        for row in await db.fetch(f"select proname, prosrc from pg_proc where {OWN}")
    )
    relations = await names(
        db,
        "select relname from pg_class where relnamespace = 'pgwake'::regnamespace"
        " and relkind in ('r', 'p', 'v')",
    )

    def touches(function: str, seen: frozenset[str] = frozenset()) -> bool:
        words = set(re.findall(r"pgwake\.(\w+)", sources[function])) - seen
        return not words.isdisjoint(relations) or any(
            touches(word, seen | words) for word in words & sources.keys()
        )

    definers = await names(db, f"select proname from pg_proc where {OWN} and prosecdef")
    triggers = await names(
        db,
        f"select proname from pg_proc where {OWN} and prorettype = 'trigger'::regtype",
    )
    called = (ADMIN | set(triggers)) - {"open_writers", "diagnose_worker"}
    assert set(definers) == {name for name in called if touches(name)}


async def test_nobody_may_do_anything_without_a_grant(db: Connection) -> None:
    functions = await names(
        db,
        "select p.proname from pg_proc as p"
        ", aclexplode(coalesce(p.proacl, acldefault('f', p.proowner))) as a"
        f" where p.{OWN} and {EVERYBODY}",
    )
    relations = await names(
        db,
        "select c.relname from pg_class as c"
        ", aclexplode(coalesce(c.relacl, acldefault('r', c.relowner))) as a"
        f" where c.relnamespace = 'pgwake'::regnamespace and {EVERYBODY}",
    )
    schemas = await names(
        db,
        "select n.nspname from pg_namespace as n"
        ", aclexplode(coalesce(n.nspacl, acldefault('n', n.nspowner))) as a"
        f" where n.nspname = 'pgwake' and {EVERYBODY}",
    )
    assert [functions, relations, schemas] == [[], [], []]


async def test_every_check_and_key_has_a_name_of_its_own(db: Connection) -> None:
    unnamed = await names(
        db,
        "select conname from pg_constraint"
        " where connamespace = 'pgwake'::regnamespace and contype in ('c', 'p', 'u')"
        " and conname ~ '_check[0-9]*$'",
    )
    assert unnamed == []


async def test_every_leaf_has_a_primary_key_and_there_is_no_default_one(
    db: Connection,
) -> None:
    rows = await db.fetch(
        "select t.relid::regclass::text, i.indexrelid is not null,"
        " pg_get_expr(c.relpartbound, c.oid) = 'DEFAULT'"
        " from pg_partition_tree('pgwake.jobs') as t"
        " join pg_class as c on c.oid = t.relid"
        " left join pg_index as i on i.indrelid = t.relid and i.indisprimary"
        " where t.isleaf"
    )
    assert len(rows) == 34
    assert {tuple(row)[1:] for row in rows} == {(True, False)}


async def test_the_hot_tables_are_vacuumed_by_the_rows_they_leave_dead(
    db: Connection,
) -> None:
    # Without a share of the table's size, without pauses: another large table keeps
    # autovacuum busy, but a run here is short and comes often.
    rows = await db.fetch(
        "select relname, o.option_name, o.option_value from pg_class"
        ", pg_options_to_table(reloptions) as o"
        " where relnamespace = 'pgwake'::regnamespace"
    )
    options = {(table, name): value for table, name, value in rows}
    assert options["jobs_live", "fillfactor"] == "40"
    for table in ("jobs_live", "counts", "count_sums"):
        assert float(options[table, "autovacuum_vacuum_scale_factor"]) <= 0.02
        assert int(options[table, "autovacuum_vacuum_threshold"]) <= 5000
        assert options[table, "autovacuum_vacuum_cost_delay"] == "0"


async def test_one_function_a_file_and_the_file_is_named_after_it(
    db: Connection,
) -> None:
    files = {path.stem for path in function_files()}
    found = await names(
        db,
        f"select proname from pg_proc where {OWN} and prorettype <> 'trigger'::regtype",
    )
    assert files == set(found)


def test_every_file_is_installed() -> None:
    root = CHECKOUT / "sql"

    def included(path: Path) -> set[Path]:
        paths = {path}
        for line in path.read_text().splitlines():
            if line.startswith("\\ir "):
                paths |= included(path.parent / line.removeprefix("\\ir "))
        return paths

    assert included(root / "install.sql") | {root / "roles.sql"} == set(
        root.rglob("*.sql")
    )
