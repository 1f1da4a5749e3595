"""One run: load, faults, and the account of what they did to it."""

import asyncio
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from time import monotonic
from typing import Protocol

from pgwake.chaos.account import Account, account
from pgwake.chaos.faults import FAULTS
from pgwake.chaos.identity import Run
from pgwake.chaos.load import Load
from pgwake.chaos.recovery import Recovery, recovery
from pgwake.chaos.stage import Stage
from pgwake.chaos.strike import Strike
from pgwake.database.connection import connect
from pgwake.database.session import Session

RECOVERY_SECONDS = 60.0
END_SECONDS = 120.0  # in which no job ends any more
LOOK_SECONDS = 0.5
QUESTION_SECONDS = 30.0
ACCOUNT_SECONDS = 1800.0

_LEFT = "select count(*) from pgwake.jobs_live as j where j.queue = $1"


@dataclass(frozen=True, slots=True)
class Plan:
    """Which faults, when.

    Attributes:
        faults: Their names.
        rate: Jobs a second.
        hold_seconds: How long each lasts.
        jobs: The faults are made again until so many are enqueued; 0: once each.
        seed: Of who is hit, and of the mix.
        calm_seconds: How long nothing is done before each; the throughput afterwards is
            compared with that of the last five.
        is_mixed: Up to two at once, in any order, for half to one and a half times as
            long; else each alone, in turn.
    """

    faults: Sequence[str]
    rate: float
    hold_seconds: float
    jobs: int = 0
    seed: int = 1
    calm_seconds: float = 6.0
    is_mixed: bool = False

    def rounds(self, dice: random.Random) -> Iterator[tuple[str, ...]]:
        """Yield what is made at once, until each has been."""
        left = list(self.faults)
        if self.is_mixed:
            dice.shuffle(left)
        while left:
            first = left.pop(0)
            others = [n for n in left if FAULTS[n].target != FAULTS[first].target]
            if self.is_mixed and others and dice.random() < 0.5:
                second = dice.choice(others)
                left.remove(second)
                yield first, second
            else:
                yield (first,)


@dataclass(frozen=True, slots=True)
class Outcome:
    """What came of a run.

    Attributes:
        account: Of its jobs.
        strikes: What was done to it, in order.
        recoveries: How it went on after each of them.
        problems: What is not as it should be: why the account does not close; who has
            not stopped in order; after what it was not as fast as before.
    """

    account: Account
    strikes: Sequence[Strike]
    recoveries: Sequence[Recovery]
    problems: Sequence[str]


class Audience(Protocol):
    """Who is told what happens."""

    def doing(self, what: str) -> None:
        """What is being done from now on."""

    def done(self, strike: Strike, recovery: Recovery) -> None:
        """What a fault did, and how it went on."""


async def run(stage: Stage, plan: Plan, audience: Audience) -> Outcome:
    """Do it, and draw up the account.

    Args:
        stage: Where; its run's tables must be there.
        plan: What.
        audience: Who is told.

    Raises:
        PgwakeError: A fault could not be made or mended.
        asyncpg.PostgresError: The database refuses the load.
    """
    session = Session(stage.url, stage.run.queue, "accountant", QUESTION_SECONDS)
    load = Load(stage.relay.url, stage.run, rate=plan.rate)
    strikes: list[Strike] = []
    recoveries: list[Recovery] = []
    dice = random.Random(plan.seed)  # noqa: S311
    try:
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(load.run())
            while not strikes or load.enqueued < plan.jobs:
                for names in plan.rounds(dice):
                    audience.doing(f"calm; next: {', '.join(names)}")
                    await asyncio.sleep(plan.calm_seconds)
                    audience.doing(", ".join(names))
                    made = await _strike(stage, plan, names, dice)
                    audience.doing(f"until it is as before {', '.join(names)}")
                    for strike in made:
                        after = await _recovery(session, stage, strike, plan.rate)
                        strikes.append(strike)
                        recoveries.append(after)
                        audience.done(strike, after)
            load.stop()
        audience.doing("until all jobs have ended")
        await until_ended(session, stage.run)
    except BaseExceptionGroup as group:
        raise _first(group) from None
    finally:
        session.close()
    audience.doing("the account")
    await asyncio.to_thread(stage.crew.stop)
    drawn_up = await _account(stage, load, strikes)
    problems = [*drawn_up.problems, *stage.crew.problems]
    problems += [
        f"{recovered.fault}: not back at nine tenths of the throughput from before "
        f"within {RECOVERY_SECONDS:.0f} s"
        for recovered in recoveries
        if recovered.seconds is None
    ]
    return Outcome(drawn_up, strikes, recoveries, problems)


def _first(group: BaseExceptionGroup) -> BaseException:
    error = group.exceptions[0]
    return _first(error) if isinstance(error, BaseExceptionGroup) else error


async def _strike(
    stage: Stage, plan: Plan, names: tuple[str, ...], dice: random.Random
) -> list[Strike]:
    share = dice.uniform(0.5, 1.5) if plan.is_mixed else 1.0
    async with asyncio.TaskGroup() as tasks:
        making = [
            tasks.create_task(
                FAULTS[name].strike(stage, share * plan.hold_seconds, dice)
            )
            for name in names
        ]
    return [task.result() for task in making]


async def _recovery(
    session: Session, stage: Stage, strike: Strike, rate: float
) -> Recovery:
    deadline = monotonic() + RECOVERY_SECONDS
    while True:
        found = await session.call(lambda c: recovery(c, stage.run, strike, rate))
        if found.seconds is not None or monotonic() > deadline:
            return found
        await asyncio.sleep(LOOK_SECONDS)


async def until_ended(session: Session, run: Run) -> None:
    """Wait until no job is left, or none has ended for a while: the account says so."""
    left, deadline = 0, 0.0
    while True:
        now_left = await session.call(lambda c: c.fetchval(_LEFT, run.queue))
        if now_left == 0:
            return
        if now_left != left:
            left, deadline = now_left, monotonic() + END_SECONDS
        if monotonic() > deadline:
            return
        await asyncio.sleep(LOOK_SECONDS)


async def _account(stage: Stage, load: Load, strikes: Sequence[Strike]) -> Account:
    connection = await connect(stage.url, stage.run.queue, ACCOUNT_SECONDS)
    try:
        return await account(
            connection, stage.run, load.enqueued, load.settled, strikes
        )
    finally:
        connection.terminate()
