"""One soak: load, workers, faults now and then, and a look each few seconds."""

import asyncio
import random
import secrets
import signal
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from time import monotonic

import asyncpg

from lab.chaos.account import Account, account
from lab.chaos.campaign import END_SECONDS, until_ended
from lab.chaos.crew import Team
from lab.chaos.faults import FAULTS
from lab.chaos.load import Load, prepare
from lab.chaos.run import Run, Strike
from lab.chaos.stage import Stage
from pgwake.database.connection import FAULTS as NO_ANSWER
from pgwake.database.connection import Connection
from pgwake.database.embedded import EmbeddedServer
from pgwake.database.session import Session

from .mix import Mix, MixAccount
from .sample import Sample, Sampler

SAMPLES = 300  # of a run, if that is neither too often nor too seldom
EVERY_SECONDS = (0.25, 5.0)
ANSWER_SECONDS = 5.0
QUESTION_SECONDS = 30.0
MIX_SHARE = 0.2  # of the rate
MIX_SLOTS = 10


@dataclass(frozen=True, slots=True)
class Plan:
    """What to do.

    Attributes:
        seconds: How long.
        rate: Jobs a second.
        faults: Which; one of them at a time, drawn by the seed.
        every: Seconds from the begin of one to that of the next, at least.
        hold: Seconds that a fault lasts, of those that last.
        seed: For the draws.
        processes: Worker processes of each of the three supervisors.
    """

    seconds: float
    rate: float
    faults: Sequence[str]
    every: float
    hold: float
    seed: int
    processes: int = 2


@dataclass(frozen=True, slots=True)
class Outcome:
    """What came of it.

    Attributes:
        samples: What was measured while the load went on.
        unanswered: Looks that the server did not answer.
        strikes: The faults.
        account: That of the chaos engine's jobs.
        mix: That of the others.
        problems: Supervisors that did not stop as they should.
    """

    samples: list[Sample]
    unanswered: int
    strikes: list[Strike]
    account: Account
    mix: MixAccount
    problems: list[str]


async def run(
    url: str,
    plan: Plan,
    folder: Path,
    server: EmbeddedServer | None = None,
    restart_command: str | None = None,
) -> Outcome:
    """Do it, on a database with the schema.

    Beside the workers that the faults are done to there is a supervisor that no fault
    kills or stops, with as many: who lives through all the others is who would grow.

    Args:
        url: Of a role that may do everything in it.
        plan: What to do.
        folder: For the logs, the journal and what the workers note.
        server: The database's server, where pgwake has started it.
        restart_command: What restarts it where it is somebody else's.

    Raises:
        PgwakeError: The workers did not start, or a fault could not be made.
    """
    this = Run(secrets.token_hex(4), folder)
    mix = Mix(f"soak-{this.name}", rate=plan.rate * MIX_SHARE)
    async with _session(url) as connection:
        await prepare(connection, this)
        await mix.prepare(connection)
    options = (
        *("--import", "tests.lab.soak.handlers"),
        *("--queue", f"{mix.queue}:{MIX_SLOTS}"),
    )
    async with AsyncExitStack() as stack:
        stage = await stack.enter_async_context(
            Stage.set(
                url,
                this,
                server=server,
                restart_command=restart_command,
                processes=plan.processes,
                options=options,
                has_disk="disk-full" in plan.faults,
            )
        )
        spared = stage.crew.team("spared")
        stack.push_async_callback(asyncio.to_thread, _stop, spared)
        load = Load(stage.relay.url, this, rate=plan.rate * (1 - MIX_SHARE))
        looks = _Looks(stage, spared)
        strikes: list[Strike] = []
        end = monotonic() + plan.seconds
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(load.run())
            tasks.create_task(mix.run(stage.relay.url))
            tasks.create_task(_strike_until(end, stage, plan, strikes))
            await looks.until(end, plan.seconds)
            load.stop()
            mix.stop()
        session = Session(url, this.queue, "accountant", QUESTION_SECONDS)
        await until_ended(session, this)
        session.close()
        async with _session(url) as connection:
            await mix.end(connection, END_SECONDS)
    # Now that all have stopped, and with them what was frozen on the way.
    async with _session(url) as connection:
        drawn_up = await account(connection, this, load.enqueued, load.settled, strikes)
        return Outcome(
            looks.samples,
            looks.unanswered,
            strikes,
            drawn_up,
            await mix.account(connection),
            stage.crew.problems,
        )


def _stop(team: Team) -> None:
    team.send(signal.SIGTERM)
    team.stop()


class _Looks:
    """The samples, taken on a session of their own, which may be lost."""

    def __init__(self, stage: Stage, spared: Team) -> None:
        self._stage = stage
        self._spared = spared
        self._sampler = Sampler(stage.run.folder / "looks")
        self.samples: list[Sample] = []
        self.unanswered = 0

    async def until(self, end: float, seconds: float) -> None:
        """Look until then, as often as a run of so many seconds asks for."""
        began = end - seconds
        every = min(max(seconds / SAMPLES, EVERY_SECONDS[0]), EVERY_SECONDS[1])
        connection: Connection | None = None
        while monotonic() < end:
            next_at = monotonic() + every
            try:
                async with asyncio.timeout(ANSWER_SECONDS):
                    connection = connection or await self._stage.connect()
                    teams = [*self._stage.crew.teams, self._spared]
                    sample = await self._sampler.sample(
                        connection,
                        monotonic() - began,
                        supervisors=[team.pid for team in teams],
                        workers=[
                            pid for one in teams for pid in one.workers().values()
                        ],
                    )
                    self.samples.append(sample)
            except NO_ANSWER:
                self.unanswered += 1
                if connection is not None:
                    connection.terminate()
                connection = None
            await asyncio.sleep(max(min(next_at, end) - monotonic(), 0))
        if connection is not None:
            connection.terminate()


async def _strike_until(
    end: float, stage: Stage, plan: Plan, strikes: list[Strike]
) -> None:
    """Make one fault after the other, each drawn by the seed."""
    dice = random.Random(plan.seed)  # noqa: S311
    next_at = end - plan.seconds + plan.every
    while plan.faults and next_at + plan.hold < end:
        await asyncio.sleep(max(next_at - monotonic(), 0))
        fault = FAULTS[dice.choice(plan.faults)]
        if monotonic() + plan.hold < end:
            strikes.append(await fault.strike(stage, plan.hold, dice))
        next_at = max(next_at + plan.every, monotonic())


@asynccontextmanager
async def _session(url: str) -> AsyncIterator[Connection]:
    connection: Connection = await asyncpg.connect(url)
    try:
        yield connection
    finally:
        connection.terminate()
