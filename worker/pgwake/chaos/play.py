"""A run from its first table to its last trace."""

import shutil
from contextlib import AsyncExitStack
from dataclasses import dataclass

from pgwake.chaos.identity import Run
from pgwake.chaos.load import prepare
from pgwake.chaos.report import Report
from pgwake.chaos.run import Outcome, Plan, run
from pgwake.chaos.stage import Stage
from pgwake.chaos.traces import clean
from pgwake.connection import connect
from pgwake.demo_stage import started
from pgwake.embedded import EmbeddedServer
from pgwake.install import install

PREPARE_SECONDS = 60.0


@dataclass(slots=True)
class Play:
    """What is to be done, and where.

    Attributes:
        run: The run; its folder must be there.
        url: The database's URL, with the schema in it; None: server is to be started.
        server: A server of pgwake's own.
        restart_command: What restarts the server, where it is somebody else's.
        plan: What is to be done.
        processes: Worker processes of each supervisor.
        keeps: Leave all that it makes; what does not close is left in any case.
        outcome: What came of it, at the end.
    """

    run: Run
    url: str | None
    server: EmbeddedServer | None
    restart_command: str | None
    plan: Plan
    processes: int
    keeps: bool
    outcome: Outcome | None = None

    async def perform(self, report: Report) -> int:
        """Do it all, and tell; the exit code: 0 if the account closes, 1 if not.

        Raises:
            PgwakeError: The server, the workers or a fault failed.
            asyncpg.PostgresError: The database refused something.
            OSError: The database can't be reached.
        """
        try:
            async with AsyncExitStack() as stack:
                stack.callback(report.over)
                report.doing("the database")
                self.outcome = await self._on_stage(stack, report)
                self.keeps = self.keeps or bool(self.outcome.problems)
            report.account(self.outcome)
        finally:
            if not self.keeps:
                if self.url is not None:
                    await clean(self.url, self.run)
                shutil.rmtree(self.run.folder, ignore_errors=True)
        if self.keeps:
            report.kept(self.run, self.url)
        return bool(self.outcome.problems)

    async def _on_stage(self, stack: AsyncExitStack, report: Report) -> Outcome:
        url = self.url
        if self.server is not None:
            await stack.enter_async_context(started(self.server))
            url = self.server.url
            await install(url)
        assert url is not None  # noqa: S101, one of them is given
        connection = await connect(url, self.run.queue, PREPARE_SECONDS)
        try:
            await prepare(connection, self.run)
        finally:
            connection.terminate()
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
        return await run(stage, self.plan, report)
