"""Webhooks: tell a URL how a job has ended. Each is a job itself; see send_webhooks."""

from datetime import datetime
from typing import Any

import asyncpg

from pgwake.database.session import Session
from pgwake.database.statements.stats import get_ended
from pgwake.jobs.job import Job
from pgwake.jsontext import dumps
from pgwake.kinds.http import HttpClient


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
        data = dumps(
            {
                "id": id,
                "queue": queue,
                "kind": kind,
                "status": status,
                "finished_at": finished_at,
            }
        )
        told = await self._ended(id, status, finished_at)
        if told is not None:
            # As PostgreSQL wrote it: what Python does not read is delivered, too.
            data = f"{data[:-1]},{told[1:]}"
        facts = dumps({"type": f"job.{status}", "timestamp": finished_at})
        body = f'{facts[:-1]},"data":{data}}}'
        return await self._client.post(url, str(job.id), body.encode())

    async def _ended(
        self, job_id: int, status: str, finished_at: datetime
    ) -> str | None:
        """Return what is told of an end, as JSON text; None: it is no longer there."""
        try:
            found = await self._session.call(lambda c: get_ended(c, job_id))
        except asyncpg.PostgresError as error:
            if error.sqlstate == "PW001":
                return None
            raise
        return found[2] if found[:2] == (status, finished_at) else None
