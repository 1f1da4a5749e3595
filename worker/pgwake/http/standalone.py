"""HTTP without a worker: metrics, health, the API, its events and the status page."""

import asyncio
import random
from collections.abc import Awaitable, Callable
from time import monotonic

import asyncpg
import structlog

from pgwake import worker_names
from pgwake.database.connection import Connection, describe
from pgwake.database.session import Session
from pgwake.database.statements.install import is_read_only
from pgwake.errors import ConfigurationError
from pgwake.heartbeat import Heartbeat
from pgwake.http.app import application
from pgwake.http.context import ApiContext
from pgwake.http.events import EventFanout
from pgwake.http.pool import Pool
from pgwake.http.server import bind, serve
from pgwake.observe.database_fit import DatabaseFit
from pgwake.observe.health import Health
from pgwake.observe.metrics import Metrics
from pgwake.observe.sampler import SAMPLE_SECONDS, Sampler
from pgwake.settings import Settings

log = structlog.get_logger()

LOOK_SECONDS = 5.0


class StandaloneServer:
    """Serves HTTP, runs no jobs and does no upkeep: it writes what it is asked to.

    Args:
        settings: Where to serve, and what; what is of workers means nothing here.
        name: Names its sessions.
    """

    def __init__(self, settings: Settings, name: str) -> None:
        self._settings = settings
        self._application_name = worker_names.api_application_name(name)
        self._session = Session(
            settings.dsn, self._application_name, "samples", settings.query_timeout
        )
        self._health = Health(self._session)
        self._health.is_starting = False  # it claims nothing
        self._heartbeat = Heartbeat("the samples", settings.query_timeout)
        self._health.heartbeats = [self._heartbeat]
        self._metrics = Metrics([])
        for of_workers in (
            self._metrics.listener_up,
            self._metrics.loop_lag,
            self._metrics.bad_notifications,
        ):
            self._metrics.registry.unregister(of_workers)
        self._metrics.database_up.set(lambda: self._session.up_since is not None)
        self._sampler = Sampler(self._metrics)
        self._stopping = asyncio.Event()
        self._database_fit = DatabaseFit(
            self._session, self._health, settings.environment, self._stopping
        )

    def stop(self) -> None:
        """End run()."""
        self._stopping.set()

    async def run(self) -> None:
        """Serve until stop() is called; the database may come and go.

        Raises:
            ConfigurationError: The port can't be had, or is 0.
        """
        settings = self._settings
        if not settings.http_port:
            raise ConfigurationError(
                "no port to serve on: set --port (or PGWAKE_HTTP_PORT) to a free one"
            )
        listening = bind(settings.http_host, settings.http_port)
        name = self._application_name
        context = ApiContext(
            settings,
            self._metrics,
            self._health,
            self._sampler.history,
            Pool(settings.dsn, name, settings.query_timeout),
            EventFanout(settings.listen_dsn, name),
        )
        log.info(
            "serving",
            host=settings.http_host,
            port=settings.http_port,
            has_api=context.token is not None,
        )
        try:
            async with asyncio.TaskGroup() as tasks:
                running = [
                    tasks.create_task(serve(application(context), listening)),
                    tasks.create_task(context.fanout.run()),
                    tasks.create_task(self._look()),
                ]
                await self._stopping.wait()
                for task in running:
                    task.cancel()
        finally:
            context.pool.close()
            self._session.close()
            log.info("serving ended")

    async def _look(self) -> None:
        """Look for ever whether the database can be used, and what stands in it."""
        sample_at = monotonic()
        self._metrics.upkeep_succeeded.note(("sample",))
        self._heartbeat.start()
        while True:
            self._heartbeat.beat()
            await self._database_fit.look()
            await self._ask(self._check)
            if self._health.misfit is None and monotonic() >= sample_at:
                await self._ask(self._sample)
                seconds = max(SAMPLE_SECONDS, self._sampler.seconds)
                sample_at = monotonic() + seconds * random.uniform(0.9, 1.1)  # noqa: S311
            await asyncio.sleep(LOOK_SECONDS)

    async def _ask(self, query: Callable[[Connection], Awaitable[None]]) -> None:
        try:
            await self._session.call(query)
        except asyncpg.PostgresError as error:
            log.error("sample refused", error=describe(error), hint=error.hint)

    async def _sample(self, connection: Connection) -> None:
        if await self._sampler.sample(connection):
            self._metrics.upkeep_succeeded.note(("sample",))

    async def _check(self, connection: Connection) -> None:
        self._health.is_read_only = await is_read_only(connection)
