"""A run's faults, under load, and the account of what they did to it."""

import asyncio
import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from time import monotonic

from pgwake.database.connection import connect
from pgwake.database.session import Session

from . import report
from .account import Account, account
from .faults import FAULTS
from .load import Load
from .recovery import Recovery, recovery
from .run import Run, Strike
from .stage import Stage

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
        hold_seconds: How long each lasts; in a mix half to one and a half times that.
        jobs: Until so many are enqueued there are mixes: up to two at once, in any
            order; 0: none.
        seed: Of who is hit, and of the mixes.
        calm_seconds: How long nothing is done before each; the throughput afterwards is
            compared with that of the last five.
        is_mixed: Mixes from the beginning; else each is made alone before.
    """

    faults: Sequence[str]
    rate: float
    hold_seconds: float
    jobs: int = 0
    seed: int = 1
    calm_seconds: float = 6.0
    is_mixed: bool = False


def mix(faults: Sequence[str], dice: random.Random) -> Iterator[tuple[str, ...]]:
    """Yield what is made at once, until each has been."""
    left = list(faults)
    dice.shuffle(left)
    while left:
        first = left.pop(0)
        others = [n for n in left if FAULTS[n].target != FAULTS[first].target]
        if others and dice.random() < 0.5:
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
        problems: What is not as it should be: why a job is not accounted for; who has
            not stopped in order; after what it was not as fast as before.
    """

    account: Account
    strikes: Sequence[Strike]
    recoveries: Sequence[Recovery]
    problems: Sequence[str]


async def run(stage: Stage, plan: Plan, say: Callable[[str], object]) -> Outcome:
    """Do it, and draw up the account.

    Args:
        stage: Where; its run's tables must be there.
        plan: What.
        say: What is called with a line for each fault that was made.

    Raises:
        PgwakeError: A fault could not be made or mended.
        asyncpg.PostgresError: The database refuses the load.
    """
    session = Session(stage.url, stage.run.queue, "accountant", QUESTION_SECONDS)
    load = Load(stage.relay.url, stage.run, rate=plan.rate)
    made: list[tuple[Strike, Recovery]] = []
    dice = random.Random(plan.seed)  # noqa: S311
    say(report.HEADING)

    async def make(names: tuple[str, ...], seconds: float) -> None:
        await asyncio.sleep(plan.calm_seconds)
        async with asyncio.TaskGroup() as tasks:
            making = [
                tasks.create_task(FAULTS[name].strike(stage, seconds, dice))
                for name in names
            ]
        for strike in [task.result() for task in making]:
            after = await _recovery(session, stage, strike, plan.rate)
            made.append((strike, after))
            say(report.line(strike, after, is_joined=strike.fault != names[0]))

    try:
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(load.run())
            for name in () if plan.is_mixed else plan.faults:
                await make((name,), plan.hold_seconds)
            while load.enqueued < plan.jobs:
                for names in mix(plan.faults, dice):
                    await make(names, dice.uniform(0.5, 1.5) * plan.hold_seconds)
            load.stop()
        await until_ended(session, stage.run)
    except BaseExceptionGroup as group:
        raise _first(group) from None
    finally:
        session.close()
    await asyncio.to_thread(stage.crew.stop)
    strikes = [strike for strike, _ in made]
    drawn_up = await _account(stage, load, strikes)
    problems = [*drawn_up.problems, *stage.crew.problems]
    problems += [
        f"{recovered.fault}: not back at nine tenths of the throughput from before "
        f"within {RECOVERY_SECONDS:.0f} s"
        for _, recovered in made
        if recovered.seconds is None
    ]
    return Outcome(drawn_up, strikes, [after for _, after in made], problems)


def _first(group: BaseExceptionGroup) -> BaseException:
    error = group.exceptions[0]
    return _first(error) if isinstance(error, BaseExceptionGroup) else error


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
