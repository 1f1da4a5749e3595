"""Where inputs are put in: a database, a worker beside them, and the books."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Self
from urllib.error import URLError
from urllib.request import urlopen

import psycopg

from support import CHECKOUT, PATIENCE, free_port
from support.sql.comparison import COUNTS, RECOUNTED
from support.sql.lifecycle import FORGOTTEN

from . import values
from .handlers import GOOD
from .verdict import fault

TOKEN = "a-token-of-the-tests"  # noqa: S105, it opens a service that lives for a test

VICTIMS = """
insert into pgwake.jobs
  (queue, kind, payload, unique_key, concurrency_key, max_attempts)
select (array['fuzz', 'q1', 'k1'])[1 + n %% 3],
  (array['fuzz', 'fuzz.echo'])[1 + n %% 2],
  '{"a": 1}', case n %% 4 when 0 then 'u' || n end, case n %% 5 when 0 then 'k1' end,
  case n %% 6 when 0 then 1 end
from generate_series(1, %s) as n
"""
# Some of them run, have failed, are over.
STATES = """
select case c.place % 4
  when 0 then pgwake.fail_job(c.id, c.lease_id, 'on purpose', retryable => false)
  when 1 then pgwake.complete_job(c.id, c.lease_id)::text
end
from (
  select c.*, row_number() over () as place
  from pgwake.claim_jobs('fuzz', 8, 'w1') as c
) as c
"""
ADD = """
insert into pgwake.jobs (queue, kind, payload)
select %s, %s, jsonb_build_object('number', n) from generate_series(1, %s) as n
"""
# By the counts: whoever purges completed jobs may have these.
DONE = "select completed_total from pgwake.get_queue_stats(%s)"


class Stage:
    """A context manager.

    Args:
        owner_url: The database, as its owner; with the schema, and empty.
        role_url: Its URL for one of support.LOGINS.
        folder: For the worker's log.
    """

    def __init__(
        self, owner_url: str, role_url: Callable[[str], str], folder: Path
    ) -> None:
        self.owner_url = owner_url
        self._role_url = role_url
        self.port = free_port()
        self.folder = folder
        self._log = folder / "worker.log"
        self.good_count = 0

    def __enter__(self) -> Self:
        self._owner = psycopg.connect(self.owner_url, autocommit=True)
        self._owner.execute(VICTIMS, [values.VICTIMS])
        self._owner.execute(STATES)
        self._owner.execute(
            "select setval('pgwake.jobs_id_seq', %s)", [values.FIRST_GOOD_ID]
        )
        environment = {
            name: value
            for name, value in os.environ.items()
            if not name.startswith("PGWAKE_")
        } | {
            "PGWAKE_DATABASE_URL": self.owner_url,
            "PGWAKE_API_TOKEN": TOKEN,
            "PGWAKE_HTTP_HOST": "127.0.0.1",
            "PGWAKE_HTTP_PORT": str(self.port),
            "PGWAKE_LOG_FORMAT": "json",
            "PYTHONPATH": str(CHECKOUT / "tests"),
        }
        with self._log.open("wb") as log:
            self._worker = subprocess.Popen(
                [
                    sys.executable,
                    "-m",
                    "pgwake",
                    "run",
                    "--import",
                    "lab.fuzz.handlers",
                ],
                env=environment,
                cwd=self.folder,
                stdout=log,
                stderr=log,
            )
        self._wait(self._is_ready, "the worker does not get ready")
        return self

    def __exit__(self, *_: object) -> None:
        self._worker.kill()
        self._worker.wait()
        self._owner.close()

    def role_url(self, role: str) -> str:
        """The database's URL for a producer, worker or admin."""
        return self._role_url(f"app_{role}")

    def add_good(self, count: int = 1) -> None:
        """Add good jobs, which the worker is to complete."""
        self._owner.execute(ADD, [GOOD, GOOD, count])
        self.good_count += count

    def settle(self) -> None:
        """Wait until the good jobs are done; then the books have to agree."""
        self._wait(self._are_good_done, "good jobs are not done")
        self._compare()

    def close(self) -> None:
        """End what the inputs have left, and look whether all is well."""
        for name in self._names("select name from pgwake.list_schedules()"):
            self._owner.execute("select pgwake.unschedule(%s)", [name])
        for status in ("waiting", "pending", "running"):
            while self._one(
                "select sum(job_count) from pgwake.cancel_jobs(status => %s)"
                " where outcome = 'cancelled'",
                status,
            ):
                pass
        self._owner.execute(
            "select pgwake.force_fail_job(id, 'left by an input') from pgwake.jobs_live"
        )
        self._worker.send_signal(signal.SIGTERM)
        try:
            code = self._worker.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            fault("the worker does not stop", self._tail())
        if code != 0:
            fault(f"the worker ended with exit code {code}", self._tail())
        for line in self._log.read_text(errors="replace").splitlines():
            if "Traceback" in line or _is_error(line):
                fault("the worker says", line)
        for name in self._names("select name from pgwake.list_workers()"):
            self._owner.execute("select pgwake.forget_worker(%s)", [name])
        self._owner.execute("select pgwake.maintain()")
        self._compare()
        problems = self._owner.execute(
            "select check_name, subject, problem from pgwake.diagnose()"
            " where severity = 'error'"
        ).fetchall()
        if problems:
            fault("diagnose() finds", problems)

    def _compare(self) -> None:
        """Hold the counts against the rows, and look for what nobody will look at."""
        with self._owner.transaction():
            self._owner.execute("set transaction isolation level repeatable read")
            recounted, counts = self._one(RECOUNTED), self._one(COUNTS)
            forgotten = self._owner.execute(FORGOTTEN).fetchall()
        if recounted != counts:
            differing = [
                (one, other)
                for one, other in zip(recounted, counts, strict=False)
                if one != other
            ]
            fault("counted rows and pgwake.counts differ", differing)
        if forgotten:
            fault("children that nobody will check", forgotten)

    def _are_good_done(self) -> bool:
        return bool((self._one(DONE, GOOD) or 0) == self.good_count)

    def _is_ready(self) -> bool:
        try:
            with urlopen(f"http://127.0.0.1:{self.port}/readyz") as answer:
                return bool(json.load(answer)["status"] == "ok")
        except (URLError, OSError):
            return False

    def _wait(self, condition: Callable[[], bool], otherwise: str) -> None:
        until = time.monotonic() + PATIENCE
        while not condition():
            if time.monotonic() > until:
                fault(otherwise, self._tail())
            if self._worker.poll() is not None:
                fault("the worker has ended", self._tail())
            time.sleep(0.01)

    def _one(self, statement: str, *arguments: object) -> Any:
        row = self._owner.execute(statement, arguments).fetchone()
        return row and row[0]

    def _names(self, statement: str) -> list[str]:
        return [name for (name,) in self._owner.execute(statement).fetchall()]

    def _tail(self) -> str:
        return "\n".join(self._log.read_text(errors="replace").splitlines()[-10:])


def _is_error(line: str) -> bool:
    """Whether a line of the log is of an error that no job or schedule may cause."""
    try:
        told = json.loads(line)
    except ValueError:
        return True  # nothing but JSON is asked for
    expected = ("job failed for good", "schedule can't be fired")
    return told["level"] in ("error", "critical") and told["event"] not in expected
