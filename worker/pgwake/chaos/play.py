"""A run from its first table to its last trace."""

import shutil
from contextlib import AsyncExitStack
from dataclasses import dataclass

import asyncpg

from pgwake.chaos import KIND
from pgwake.chaos.identity import Run
from pgwake.chaos.load import prepare
from pgwake.chaos.report import Report
from pgwake.chaos.run import Outcome, Plan, run
from pgwake.chaos.stage import Stage
from pgwake.cli.demo.stage import started
from pgwake.cli.scratch import scratch_queue
from pgwake.database.connection import connect
from pgwake.database.embedded import EmbeddedServer
from pgwake.database.install import install
from pgwake.errors import ConfigurationError
from pgwake.settings import Settings

SCHEMA_SECONDS = 60.0


@dataclass(slots=True)
class Play:
    """What is to be done, and where.

    Attributes:
        run: The run; its folder is made if it is not there.
        settings: Whose database it is, where no server is given.
        server: A server of pgwake's own, to be started.
        restart_command: What restarts the server, where it is somebody else's.
        plan: What is to be done.
        processes: Worker processes of each supervisor.
        in_production: Go on in an environment that is named production.
        keeps: Leave all that it makes; what does not close is left in any case.
        outcome: What came of it, at the end.
    """

    run: Run
    settings: Settings
    server: EmbeddedServer | None
    restart_command: str | None
    plan: Plan
    processes: int
    in_production: bool
    keeps: bool
    outcome: Outcome | None = None

    async def perform(self, report: Report) -> int:
        """Do it all, and tell; the exit code: 0 if the account closes, 1 if not.

        Raises:
            PgwakeError: The database won't do, or the server, the workers or a fault
                failed.
            asyncpg.PostgresError: The database refused something.
            OSError: The database can't be reached.
        """
        self.run.folder.mkdir(0o700, exist_ok=True)
        try:
            async with AsyncExitStack() as stack:
                stack.callback(report.over)
                report.doing("the database")
                url = await self._database(stack)
                report.doing("the workers")
                stage = await stack.enter_async_context(
                    Stage.set(
                        url,
                        self.run,
                        server=self.server,
                        restart_command=self.restart_command,
                        processes=self.processes,
                        has_disk="disk-full" in self.plan.faults,
                    )
                )
                self.outcome = await run(stage, self.plan, report)
                self.keeps = self.keeps or bool(self.outcome.problems)
        finally:
            if not self.keeps:
                shutil.rmtree(self.run.folder, ignore_errors=True)
        report.account(self.outcome)
        if self.keeps:
            report.kept(self.run, self.plan, self.server)
        return bool(self.outcome.problems)

    async def _database(self, stack: AsyncExitStack) -> str:
        """Have one with the run's queue and schema until the stack ends; its URL."""
        if self.server is not None:
            await stack.enter_async_context(started(self.server))
            url = self.server.url
            await install(url)
        else:
            url = self.settings.dsn
            queue = scratch_queue(
                self.settings,
                self.run.queue,
                [KIND],
                in_production=self.in_production,
                keep=lambda: self.keeps,
            )
            await stack.enter_async_context(queue)
            stack.push_async_callback(self._drop_schema, url)
        connection = await connect(url, self.run.queue, SCHEMA_SECONDS)
        try:
            await prepare(connection, self.run)
        except asyncpg.InsufficientPrivilegeError as error:
            raise ConfigurationError(
                f"a run needs a schema of its own, and {error.message}: grant the role "
                "create on the database"
            ) from None
        finally:
            connection.terminate()
        return url

    async def _drop_schema(self, url: str) -> None:
        if self.keeps:
            return
        connection = await connect(url, self.run.queue, SCHEMA_SECONDS)
        try:
            await connection.execute(f"drop schema if exists {self.run.schema} cascade")
        finally:
            connection.terminate()
