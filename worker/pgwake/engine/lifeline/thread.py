"""The lifeline: a thread with its own loop, which a blocked main loop can't stop."""

import asyncio
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress

from pgwake import worker_names
from pgwake.database.session import Session
from pgwake.engine.finisher import Finisher
from pgwake.engine.held_jobs import HeldJobs
from pgwake.engine.lifeline.listener import Listener
from pgwake.engine.lifeline.renewal import Renewal
from pgwake.engine.lifeline.watchdog import Watchdog
from pgwake.engine.mailbox import Mailbox
from pgwake.engine.ready_jobs import ReadyJobs
from pgwake.errors import PgwakeError
from pgwake.http.context import ApiContext
from pgwake.jobs.attempt import Attempt
from pgwake.jobs.service import StopReason
from pgwake.observe.health import Health
from pgwake.observe.metrics import Metrics
from pgwake.settings import Settings

STOP_SECONDS = 3.0
LEAVE_SECONDS = 1.0  # that giving up the notify locks may take


class Lifeline:
    """Listens, renews leases, enforces time limits, serves HTTP and gives the beat.

    Args:
        settings: The worker's settings.
        worker: The worker's name.
        mailboxes: Those of the queues to listen for.
        held_jobs: The jobs that the process holds; exactly these are renewed.
        all_ready: Where unstarted jobs are taken back from when the main loop is
            blocked.
        finisher: Whose ends are written when the process has to be ended.
        health: Where the lag is noted, and that renewal goes round.
        metrics: Where the lag and the notify locks are shown.
        api_context: What HTTP works with.
        stop_claiming: Called on the main loop before the process has to be ended.
        beat_fd: Where to write the beat for the supervisor; None: there is none. Then
            the process is somebody else's, and is not ended over a job.
        http_port: Where to serve; 0: nowhere.
    """

    def __init__(
        self,
        settings: Settings,
        worker: str,
        *,
        mailboxes: Sequence[Mailbox],
        held_jobs: HeldJobs,
        all_ready: Sequence[ReadyJobs],
        finisher: Finisher,
        health: Health,
        metrics: Metrics,
        api_context: ApiContext,
        stop_claiming: Callable[[], None],
        beat_fd: int | None,
        http_port: int,
    ) -> None:
        name = worker_names.application_name(worker)
        self._settings = settings
        self._beat_fd = beat_fd
        self._http_port = http_port
        self.health = health
        self._main = asyncio.get_running_loop()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._task: asyncio.Task[None] | None = None
        self._is_stopping = False
        self._started: asyncio.Future[None] = self._main.create_future()
        self._ended: asyncio.Future[None] = self._main.create_future()
        self._api_context = api_context
        self._session = Session(settings.dsn, name, "lifeline", settings.query_timeout)
        self._listener = Listener(
            settings.listen_dsn,
            name,
            mailboxes,
            timeout=settings.query_timeout,
            metrics=metrics,
            tell_cancelled=lambda news: self._renewal.look(news),  # noqa: PLW0108
        )
        self._renewal = Renewal(
            self._session, worker, held_jobs, self._tell_job, metrics
        )
        health.heartbeats.append(self._renewal.heartbeat)
        self._watchdog = Watchdog(
            self._session,
            held_jobs=held_jobs,
            all_ready=all_ready,
            finisher=finisher,
            metrics=metrics,
            health=health,
            tell_main=self._tell_main,
            main_is_blocked=self._listener.set_away,
            stop_claiming=stop_claiming,
            cancel_grace=settings.cancel_grace,
            exit_seconds=settings.query_timeout,
            may_exit=beat_fd is not None,
        )
        self._thread = threading.Thread(
            target=self._run, name="pgwake-lifeline", daemon=True
        )

    async def start(self) -> None:
        """Start the thread; returns when it is at work.

        Raises:
            ConfigurationError: The HTTP port can't be had.
        """
        self._ended.add_done_callback(lambda ended: ended.exception())
        self._thread.start()
        await self._started

    def expect_stop(self, seconds: float) -> None:
        """End the process if its main loop is blocked then; from any thread."""
        self._watchdog.expect_stop(seconds)

    async def ended(self) -> None:
        """Wait for the thread's end; raises what ended it."""
        await asyncio.shield(self._ended)

    async def stop(self) -> None:
        """End the thread, after everything else: renewal goes on until then."""
        if not self._thread.ident:
            return
        self._is_stopping = True  # seen by a thread that has only just begun
        with suppress(TimeoutError, PgwakeError):
            async with asyncio.timeout(STOP_SECONDS):
                if self._task is not None:
                    await self._leave()
                    self._tell(self._task.cancel)
                await self.ended()

    async def _leave(self) -> None:
        """Let others have the notify locks, and hear of it."""
        self._tell(self._listener.set_away, True)
        with suppress(TimeoutError):
            async with asyncio.timeout(LEAVE_SECONDS):
                while not (self._listener.has_left or self._ended.done()):
                    await asyncio.sleep(0.005)

    def _tell(self, function: Callable[..., object], *arguments: object) -> None:
        """Call a function on the thread's loop; from any other."""
        if self._loop is not None:
            with suppress(RuntimeError):  # it is closed already
                self._loop.call_soon_threadsafe(function, *arguments)

    def _run(self) -> None:
        try:
            asyncio.run(self._work())
        except BaseException as error:  # noqa: BLE001, it is handed to the main loop
            self._tell_main(_settle, self._ended, error)
            self._tell_main(_settle, self._started, error)
        else:
            self._tell_main(_settle, self._ended, None)

    async def _work(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._task = asyncio.current_task()
        self._listener.connect()
        if self._is_stopping:
            return
        try:
            async with asyncio.TaskGroup() as tasks:
                if self._http_port:
                    # Here, since a worker without HTTP needs nothing of it.
                    from pgwake.http.app import application  # noqa: PLC0415
                    from pgwake.http.server import bind, serve  # noqa: PLC0415

                    listening = bind(self._settings.http_host, self._http_port)
                    tasks.create_task(serve(application(self._api_context), listening))
                    tasks.create_task(self._api_context.fanout.run())
                if self._beat_fd is not None:
                    tasks.create_task(self._watchdog.beat(self._beat_fd))
                tasks.create_task(self._listener.run())
                tasks.create_task(self._renewal.run())
                tasks.create_task(self._watchdog.run())
                self._tell_main(_settle, self._started, None)
        except asyncio.CancelledError:
            pass
        except BaseExceptionGroup as group:
            raise group.exceptions[0] from None
        finally:
            self._api_context.pool.close()
            self._session.close()

    def _tell_main(self, function: Callable[..., object], *arguments: object) -> None:
        if not self._main.is_closed():
            self._main.call_soon_threadsafe(function, *arguments)

    def _tell_job(self, job: Attempt, reason: StopReason) -> None:
        if job.stop_reason is None:
            self._tell_main(job.stop, reason)


def _settle(future: "asyncio.Future[None]", error: BaseException | None) -> None:
    if future.done():
        return
    if error is None:
        future.set_result(None)
    elif isinstance(error, Exception):
        future.set_exception(error)
    else:
        future.set_exception(PgwakeError(f"the lifeline ended: {error!r}"))
