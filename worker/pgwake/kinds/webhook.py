"""Webhooks: tell a URL how a job has ended. Each is a job itself; see send_webhooks."""

import json
from datetime import datetime
from typing import Any

import asyncpg

from pgwake.database.session import Session
from pgwake.database.statements.stats import get_job
from pgwake.jobs.job import Job
from pgwake.jsontext import dumps
from pgwake.kinds.http import HttpClient

_COLUMNS = ("attempt", "created_at", "started_at", "metadata", "result")


class Webhook:
    """The handler of webhooks.

    Args:
        client: What posts them.
        session: Where the job that has ended is read.
    """

    def __init__(self, client: HttpClient, session: Session) -> None:
        self._client = client
        self._session = session

    async def handle(
        self,
        /,
        job: Job,
        url: str,
        id: int,  # noqa: A002
        queue: str,
        kind: str,
        status: str,
        finished_at: datetime,
        **_: Any,
    ) -> Any:
        """Post {type, timestamp, data}, as Standard Webhooks has it.

        What is long is read now. A job that has been retried or purged since is told
        of without it: its row no longer says how it ended then.
        """
        data: dict[str, Any] = {
            "id": id,
            "queue": queue,
            "kind": kind,
            "status": status,
            "finished_at": finished_at,
        }
        row = await self._ended(id, status, finished_at)
        if row is not None:
            data |= {name: row[name] for name in _COLUMNS}
            errors = row["errors"] if status != "completed" else None
            data["error"] = _without_trace(errors[-1]) if errors else None
        message = {"type": f"job.{status}", "timestamp": finished_at, "data": data}
        return await self._client.post(url, str(job.id), dumps(message).encode())

    async def _ended(
        self, job_id: int, status: str, finished_at: datetime
    ) -> dict[str, Any] | None:
        try:
            text = await self._session.call(lambda c: get_job(c, job_id))
        except asyncpg.PostgresError as error:
            if error.sqlstate == "PW001":
                return None
            raise
        row: dict[str, Any] = json.loads(text)
        is_same = row["status"] == status and row["finished_at"] is not None
        if is_same and datetime.fromisoformat(row["finished_at"]) == finished_at:
            return row
        return None


def _without_trace(error: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in error.items() if name != "traceback"}
