"""The supervisor: starts worker processes, and gives back what a dead one had.

Imports no user code, so nothing that a handler does can take it down.
"""

import asyncio
import signal
from time import monotonic

import asyncpg
import structlog

from pgwake import worker_names
from pgwake.database.connection import Connection, backoff, describe, is_pooled
from pgwake.database.session import Session
from pgwake.database.statements.claim import leases_of, next_suspect
from pgwake.database.statements.finish import release_jobs
from pgwake.database.statements.upkeep import (
    CrashCount,
    end_sessions,
    release_worker_jobs,
    session_count,
)
from pgwake.database.statements.wake import pass_duty
from pgwake.errors import EXIT_CONFIG, EXIT_START
from pgwake.observe import logs
from pgwake.settings import Settings
from pgwake.sleep import pause
from pgwake.supervise.worker_process import WorkerProcess

log = structlog.get_logger()

HEALTHY_SECONDS = 60.0  # a child that lived as long is started again at once
MAX_BACKOFF = 30.0
START_TRIES = 5  # of the first child, until the supervisor gives up
SAID = (0, EXIT_CONFIG, EXIT_START)  # exit codes of a child that has said why
GIVE_BACK_SECONDS = 30.0
# After which a dead worker's sessions are ended. What they are writing may take as
# long; what is left then lives in a process that a handler has forked.
SESSIONS_SECONDS = 1.0
LAST_SECONDS = 5.0  # that it may take once the supervisor is to stop
# Between looks for suspects. A supervisor hears of its processes' crashes at once, so
# with many workers it looks less often: all together about twice a second.
SUSPECTS_POLL_SECONDS, MAX_SUSPECTS_POLL_SECONDS = 5.0, 30.0
SUSPECTS_SHARE_SECONDS = 0.5  # for each live worker


def supervise(settings: Settings) -> int:
    """Run workers until a signal; the exit code of this process, which has a log."""
    name = f"supervisor:{worker_names.new_worker_name()}"
    logs.configure(settings, warns=True, worker=name)
    code = asyncio.run(Supervisor(settings).run())
    logs.flush()
    return code


class Supervisor:
    """Keeps settings.processes children at work, and a quarantine while it is needed.

    Args:
        settings: What the children work with.
    """

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._session = Session(
            settings.dsn,
            worker_names.application_name(worker_names.new_worker_name()),
            "supervisor",
            settings.query_timeout,
        )
        self._children: set[WorkerProcess] = set()
        self._queues: set[str] = set()
        # What crashed and is not yet counted by anybody, and whether its claims are: a
        # quarantine shows no metrics of its own.
        self._crashed: list[tuple[CrashCount, bool]] = []
        self._workers = 1  # live in the database, at the last look for suspects
        self._stopping = asyncio.Event()
        self._changed = asyncio.Event()  # a crash, or the stop
        self._exit_code = 0
        self._stops = 0  # how often it was told to
        self._has_worked = False  # a child has, once

    async def run(self) -> int:
        """Supervise until a signal; return the exit code."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._stop)
        async with asyncio.TaskGroup() as tasks:
            for index in range(self._settings.processes):
                tasks.create_task(self._keep(index))
            tasks.create_task(self._watch_suspects())
        self._session.close()
        return self._exit_code

    def _stop(self) -> None:
        """Forward: the first call drains the children, a second ends them at once."""
        self._stops += 1
        self._stopping.set()
        self._changed.set()
        settings = self._settings
        seconds = settings.grace + settings.cancel_grace + 2 * settings.query_timeout
        seconds += settings.resource_timeout
        for child in self._children:
            child.stop(self._stops)
            asyncio.get_running_loop().call_later(seconds, child.send, signal.SIGKILL)

    async def _keep(self, index: int) -> None:
        """Keep one child at work."""
        failures = 0
        port = self._settings.http_port and self._settings.http_port + index
        while not self._stopping.is_set():
            started = monotonic()
            code = await self._live(port, suspects=False)
            failures = 0 if monotonic() - started > HEALTHY_SECONDS else failures + 1
            if self._stopping.is_set() or self._has_worked:
                pass  # what it can't import may be about to be replaced
            elif code == EXIT_CONFIG:
                self._give_up(EXIT_CONFIG)
            elif failures == START_TRIES:
                log.error("no worker process could start", tries=failures)
                self._give_up(EXIT_START)
            if failures > 1:
                await pause(self._stopping, backoff(failures, MAX_BACKOFF))

    def _give_up(self, code: int) -> None:
        self._exit_code = code
        self._stop()

    async def _live(self, port: int, *, suspects: bool) -> int:
        """Start a child, wait for its end, give back what it had; its exit code."""
        try:
            child = await WorkerProcess.start(self._settings, port, suspects=suspects)
        except OSError as error:  # no memory, process or descriptor to be had just now
            log.error("process not started", error=describe(error))
            return 1
        self._children.add(child)
        self._tell_crashed()
        if self._stopping.is_set():
            child.stop(self._stops)
        log.info("process started", pid=child.pid, name=child.name, suspects=suspects)
        code = await child.wait(self._settings.stall_seconds)
        if child.is_beating and code not in SAID:
            self._has_worked = True  # it was on its way, perhaps between two beats
        self._has_worked |= any(child.has_worked for child in self._children)
        self._children.discard(child)
        self._queues.update(child.queues)
        was_told = self._stopping.is_set() and code == -signal.SIGTERM
        if code not in SAID and not (was_told and not child.is_beating):
            log.error("process died", pid=child.pid, name=child.name, exit=code)
        may_hold = code != EXIT_CONFIG and (code != 0 or not child.is_waiting)
        if child.is_beating and may_hold:
            await self._give_back(child, has_died=code not in SAID)
        return code

    async def _give_back(self, child: WorkerProcess, *, has_died: bool) -> None:
        """Give back what a child had, until no session of it is left.

        One that has ended by itself may have had a claim cut off that was under way:
        that counts as nobody's crash.
        """
        applications = [
            worker_names.application_name(child.name),
            worker_names.handlers_application_name(child.name),
        ]
        given_back: list[CrashCount] = []
        end_at = monotonic() + SESSIONS_SECONDS

        async def once(connection: Connection) -> bool:
            # A pooler keeps idle sessions open, under the name of their last client.
            busy = is_pooled(connection)
            if monotonic() > end_at:
                await end_sessions(connection, applications, busy=busy)
            sessions = await session_count(connection, applications, busy=busy)
            if has_died:
                given_back.extend(await release_worker_jobs(connection, child.name))
            elif leases := await leases_of(connection, child.name):
                job_ids, lease_ids = zip(*leases, strict=True)
                await release_jobs(connection, job_ids, lease_ids, "unstarted")
            if not sessions:
                for name in child.queues:  # it may have had the notify lock
                    await pass_duty(connection, name)
            return sessions > 0

        try:
            stopping = self._stopping.is_set()
            async with asyncio.timeout(LAST_SECONDS if stopping else GIVE_BACK_SECONDS):
                while await self._session.call(once):
                    await asyncio.sleep(0.02)
        except TimeoutError:
            log.error("give-back timed out, leases will run out", name=child.name)
        except asyncpg.PostgresError as error:
            log.error("give-back refused", name=child.name, error=describe(error))
        if given_back:
            jobs = sum(crashed.jobs for crashed in given_back)
            log.warning("jobs given back", name=child.name, jobs=jobs)
            self._changed.set()
            were_claimed = not child.is_quarantine
            self._crashed.extend((crashed, were_claimed) for crashed in given_back)
            self._tell_crashed()

    def _tell_crashed(self) -> None:
        """Have one of the children that show metrics count what crashed."""
        for child in self._children:
            if (
                self._crashed
                and not child.is_quarantine
                and child.tell_crashed(self._crashed)
            ):
                self._crashed = []

    async def _watch_suspects(self) -> None:
        """Run the quarantine, a child with one slot, while a suspect is due."""
        failures = 0
        while not self._stopping.is_set():
            self._changed.clear()
            seconds = await self._seconds_to_suspect()
            if seconds is not None and seconds <= 0:
                code = await self._live(0, suspects=True)
                failures = failures + 1 if code else 0
                if code:
                    await pause(self._stopping, backoff(failures, MAX_BACKOFF))
            else:
                share = self._workers * SUSPECTS_SHARE_SECONDS
                wait = min(max(SUSPECTS_POLL_SECONDS, share), MAX_SUSPECTS_POLL_SECONDS)
                await pause(self._changed, min(wait, seconds or wait))

    async def _seconds_to_suspect(self) -> float | None:
        """Ask the database; None if none is known, or it does not answer in time.

        Nor is it asked while it does not fit: a quarantine could claim nothing.
        """
        queues = self._queues.union(*(child.queues for child in self._children))
        if not queues or any(child.is_waiting for child in self._children):
            return None
        question = asyncio.ensure_future(
            self._session.call(lambda c: next_suspect(c, sorted(queues)))
        )
        stopped = asyncio.ensure_future(self._stopping.wait())
        try:
            await asyncio.wait({question, stopped}, return_when="FIRST_COMPLETED")
            if question.done():
                seconds, self._workers = question.result()
                return seconds
        except asyncpg.PostgresError as error:
            log.error("look for suspects refused", error=describe(error))
        finally:
            question.cancel()
            stopped.cancel()
        return None
