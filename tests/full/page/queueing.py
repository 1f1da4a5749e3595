"""Jobs in every state, brought there by the functions themselves."""

import json
from collections.abc import Mapping
from typing import Any, TypeAlias

import psycopg
from psycopg.types.json import Jsonb

Session: TypeAlias = psycopg.Connection[Any]

BOOM = "Traceback (most recent call last):\n  boom()\nValueError: boom"


def insert(sql: Session, kind: str = "hello", **columns: Any) -> int:
    """Insert a job by plain SQL; its id."""
    columns["kind"] = kind
    values = [Jsonb(v) if isinstance(v, Mapping) else v for v in columns.values()]
    places = ", ".join(["%s"] * len(values))
    row = sql.execute(
        f"insert into pgwake.jobs ({', '.join(columns)}) values ({places})"
        " returning id",
        values,
    ).fetchone()
    assert row is not None
    return int(row[0])


def insert_many(sql: Session, count: int, kind: str = "hello", **columns: Any) -> None:
    """Insert many alike."""
    columns["kind"] = kind
    places = ", ".join(["%s"] * len(columns))
    sql.execute(
        f"insert into pgwake.jobs ({', '.join(columns)})"
        f" select {places} from generate_series(1, {count})",
        list(columns.values()),
    )


def progress(sql: Session, done: int, of: int) -> None:
    """Say how far the running jobs are."""
    sql.execute(
        "update pgwake.jobs_live set progress = %s where status = 'running'",
        [Jsonb({"done": done, "of": of})],
    )


def claim(sql: Session, queue: str = "default", worker: str = "w1") -> Any:
    """Claim the next job; (id, lease_id)."""
    claimed = sql.execute(
        "select id, lease_id from pgwake.claim_next_job(%s, %s)", [queue, worker]
    ).fetchone()
    assert claimed is not None
    return claimed


def running(sql: Session, kind: str = "hello", **columns: Any) -> int:
    """Insert a job and claim it; nothing else of its queue may be due."""
    insert(sql, kind, **columns)
    return int(claim(sql, columns.get("queue", "default"))[0])


def completed(sql: Session, kind: str = "hello", result: Any = None) -> int:
    """A job that has completed."""
    insert(sql, kind)
    job_id, lease_id = claim(sql)
    sql.execute(
        "select pgwake.complete_job(%s, %s, %s)",
        [job_id, lease_id, None if result is None else json.dumps(result)],
    )
    return int(job_id)


def failed(
    sql: Session, kind: str = "hello", message: str = "boom", **columns: Any
) -> int:
    """A job that has failed for good."""
    insert(sql, kind, **columns)
    job_id, lease_id = claim(sql, columns.get("queue", "default"))
    sql.execute(
        "select pgwake.fail_job(%s, %s, reason => 'exception', error => %s,"
        " traceback => %s, retryable => false)",
        [job_id, lease_id, message, BOOM],
    )
    return int(job_id)


def status(sql: Session, job_id: int) -> str:
    row = sql.execute(
        "select status from pgwake.jobs where id = %s", [job_id]
    ).fetchone()
    assert row is not None
    return str(row[0])
