"""The faults, each with a name: how to make it, for how long, and how to mend it."""

import asyncio
import os
import random
import signal
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from typing import Literal, NamedTuple

from pgwake.chaos.crew import LEASE_SECONDS
from pgwake.chaos.disk import SmallDisk
from pgwake.chaos.stage import Stage
from pgwake.chaos.strike import Strike
from pgwake.database.embedded import EmbeddedServer, StopMode
from pgwake.names import application_name, handlers_application_name

# What is done to the server at once with a restart would fail, or fail the restart.
Target = Literal["workers", "server", "network"]

REPEAT_SECONDS = 1.0
ZOMBIE_SECONDS = LEASE_SECONDS + 4.0  # its jobs run elsewhere by then
SLOW_SECONDS = 0.05
SLOW_BYTES_PER_SECOND = 65_536

OWN_PROCESSES = "nothing: only workers that it has started itself are hit"
OWN_RELAY = "nothing: only what it has started itself goes through its relay"
EVERYBODY = "all sessions of the server are ended, everybody's"

# In two steps: within one condition the planner may end all before it compares names.
_TERMINATE = """
with mine as materialized (
  select a.pid, a.application_name
  from pg_catalog.pg_stat_activity as a
  where a.datname = current_database() and a.application_name = any ($1)
)
select m.application_name, pg_catalog.pg_terminate_backend(m.pid)
from mine as m
"""


class Harm(NamedTuple):
    """What a fault has to tell of itself: as in Strike."""

    victims: tuple[str, ...] = ()
    accepting_at: datetime | None = None


Act = Callable[[Stage, float, random.Random], Awaitable[Harm]]
Obstacle = Callable[[EmbeddedServer | None, str | None], str | None]


@dataclass(frozen=True, slots=True)
class Fault:
    """A fault.

    Attributes:
        name: What it is called.
        sentence: What it does.
        target: What it is done to; two at once need two targets.
        act: Makes it, holds it for some seconds, mends it.
        for_others: What it does to others on the same server.
        obstacle: Why it can't be made, of a server of pgwake's own or None, and with a
            restart command or None; None: it can.
    """

    name: str
    sentence: str
    target: Target
    act: Act
    for_others: str
    obstacle: Obstacle

    async def strike(self, stage: Stage, seconds: float, dice: random.Random) -> Strike:
        """Make it, hold it, mend it.

        Args:
            stage: What it is done to.
            seconds: How long; a restart takes what it takes, a stop outlasts the lease.
            dice: Who is hit.
        """
        began_at = stage.now()
        harm = await self.act(stage, seconds, dice)
        return Strike(self.name, began_at, stage.now(), harm.victims, harm.accepting_at)


FAULTS: dict[str, Fault] = {}


def _never(server: EmbeddedServer | None, command: str | None) -> None:  # noqa: ARG001
    return None


def _fault(
    name: str,
    sentence: str,
    target: Target,
    for_others: str,
    obstacle: Obstacle = _never,
) -> Callable[[Act], Act]:
    def register(act: Act) -> Act:
        FAULTS[name] = Fault(name, sentence, target, act, for_others, obstacle)
        return act

    return register


@_fault(
    "kill",
    "kill -9 of a worker process each second, and of a supervisor with all its workers",
    "workers",
    OWN_PROCESSES,
)
async def kill(stage: Stage, seconds: float, dice: random.Random) -> Harm:
    """The supervisor goes first: with it gone, leases have to run out."""
    victims: list[str] = []
    team = dice.choice(stage.crew.teams)
    team.send(signal.SIGKILL)
    for name, pid in team.workers().items():
        _send(pid, signal.SIGKILL)
        victims.append(name)
    for _ in range(max(int(seconds / REPEAT_SECONDS), 1)):
        await asyncio.sleep(REPEAT_SECONDS)
        if not team.is_up:
            team.start_again()
        if workers := stage.crew.workers():
            name = dice.choice(sorted(workers))
            _send(workers[name], signal.SIGKILL)
            victims.append(name)
    return Harm(tuple(victims))


@_fault(
    "stop",
    "SIGSTOP of a supervisor and its workers for longer than the lease, then SIGCONT",
    "workers",
    OWN_PROCESSES,
)
async def stop(stage: Stage, seconds: float, dice: random.Random) -> Harm:
    """The workers go on first: their supervisor would end them, silent as they were."""
    team = dice.choice(stage.crew.teams)
    team.send(signal.SIGSTOP)  # first, or it would end them now
    workers = team.workers()
    try:
        for pid in workers.values():
            _send(pid, signal.SIGSTOP)
        await asyncio.sleep(max(seconds, ZOMBIE_SECONDS))
    finally:
        for pid in workers.values():
            _send(pid, signal.SIGCONT)
        await asyncio.sleep(REPEAT_SECONDS)
        team.send(signal.SIGCONT)
    return Harm(tuple(workers))


@_fault(
    "terminate",
    "pg_terminate_backend of all sessions of the workers, each second",
    "server",
    "nothing: only its own workers' sessions are ended",
)
async def terminate(stage: Stage, seconds: float, dice: random.Random) -> Harm:  # noqa: ARG001
    """By their names, so that nobody else's is hit."""
    connection = await stage.connect()
    victims: set[str] = set()
    try:
        for _ in range(max(int(seconds / REPEAT_SECONDS), 1)):
            sessions = {
                name(worker): worker
                for worker in stage.crew.workers()
                for name in (application_name, handlers_application_name)
            }
            rows = await connection.fetch(_TERMINATE, list(sessions))
            victims |= {sessions[row["application_name"]] for row in rows}
            await asyncio.sleep(REPEAT_SECONDS)
    finally:
        connection.terminate()
    return Harm(tuple(sorted(victims)))


def _no_restart(server: EmbeddedServer | None, command: str | None) -> str | None:
    if server is None and command is None:
        return "say how to restart the server, with --restart-command"
    return None


def _restart(mode: StopMode, sentence: str) -> None:
    """Add the fault that restarts the server in a mode of pg_ctl's."""

    @_fault(f"restart-{mode}", sentence, "server", EVERYBODY, _no_restart)
    async def restart(stage: Stage, seconds: float, dice: random.Random) -> Harm:  # noqa: ARG001
        return Harm(accepting_at=await stage.restart(mode))


_restart("fast", "the server is restarted: all sessions are ended, then it shuts down")
_restart(
    "immediate",
    "the server is restarted as after a crash: it recovers from its WAL",
)


@_fault(
    "half-open",
    "the network forwards nothing and closes nothing; sessions from before stay dead",
    "network",
    OWN_RELAY,
)
async def half_open(stage: Stage, seconds: float, dice: random.Random) -> Harm:  # noqa: ARG001
    """As when a NAT has forgotten its connections."""
    stage.relay.freeze()
    return await _until_healed(stage, seconds)


@_fault(
    "one-way",
    "the network holds back what goes to the server, then what comes from it",
    "network",
    OWN_RELAY,
)
async def one_way(stage: Stage, seconds: float, dice: random.Random) -> Harm:  # noqa: ARG001
    """Half of the time each."""
    stage.relay.block("to the server")
    await _until_healed(stage, seconds / 2)
    stage.relay.block("from the server")
    return await _until_healed(stage, seconds / 2)


@_fault(
    "slow",
    f"the network takes {SLOW_SECONDS * 1000:.0f} ms each way, and "
    f"{SLOW_BYTES_PER_SECOND // 1024} KiB/s",
    "network",
    OWN_RELAY,
)
async def slow(stage: Stage, seconds: float, dice: random.Random) -> Harm:  # noqa: ARG001
    """For each connection."""
    stage.relay.slow(SLOW_SECONDS, SLOW_BYTES_PER_SECOND)
    return await _until_healed(stage, seconds)


@_fault(
    "cut",
    "the network resets all connections each second, then refuses new ones, too",
    "network",
    OWN_RELAY,
)
async def cut(stage: Stage, seconds: float, dice: random.Random) -> Harm:  # noqa: ARG001
    """Half of the time each."""
    for _ in range(max(int(seconds / 2 / REPEAT_SECONDS), 1)):
        stage.relay.cut()
        await asyncio.sleep(REPEAT_SECONDS)
    stage.relay.refuse()
    stage.relay.cut()
    return await _until_healed(stage, seconds / 2)


async def _until_healed(stage: Stage, seconds: float) -> Harm:
    try:
        await asyncio.sleep(seconds)
    finally:
        await stage.relay.heal()
    return Harm()


@_fault(
    "snapshot",
    "a transaction holds an old snapshot, so that dead rows can't be removed",
    "server",
    "vacuum removes no row of this database that dies meanwhile",
)
async def snapshot(stage: Stage, seconds: float, dice: random.Random) -> Harm:  # noqa: ARG001
    """It pins the dead rows of the whole database, and in part of the server."""
    connection = await stage.connect()
    try:
        async with connection.transaction(isolation="repeatable_read"):
            await connection.execute("select 1")
            await asyncio.sleep(seconds)
    finally:
        connection.terminate()
    return Harm()


def _no_disk(server: EmbeddedServer | None, command: str | None) -> str | None:  # noqa: ARG001
    return SmallDisk.obstacle(server)


@_fault(
    "disk-full",
    "the disk with the jobs' tables is full",
    "server",
    "nothing: it is made on a server of pgwake's own only",
    _no_disk,
)
async def disk_full(stage: Stage, seconds: float, dice: random.Random) -> Harm:  # noqa: ARG001
    """Every INSERT, claim and end that needs another page is refused: 53100."""
    disk = stage.disk
    assert disk is not None  # noqa: S101, there is no obstacle
    await asyncio.to_thread(disk.fill)
    try:
        await asyncio.sleep(seconds)
    finally:
        await asyncio.to_thread(disk.free)
    return Harm()


def _send(pid: int, number: signal.Signals) -> None:
    with suppress(ProcessLookupError):
        os.kill(pid, number)
