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

from pgwake.database.embedded import EmbeddedServer, StopMode
from pgwake.worker_names import application_name, handlers_application_name

from .crew import LEASE_SECONDS
from .disk import SmallDisk
from .run import Strike, django_application_name
from .stage import Stage

# What is done to the server at once with a restart would fail, or fail the restart.
Target = Literal["workers", "server", "network"]

REPEAT_SECONDS = 1.0
ZOMBIE_SECONDS = LEASE_SECONDS + 4.0  # its jobs run elsewhere by then
SLOW_SECONDS = 0.05
SLOW_BYTES_PER_SECOND = 65_536

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


@dataclass(frozen=True, slots=True)
class Fault:
    """A fault.

    Attributes:
        name: What it is called.
        target: What it is done to; two at once need two targets.
        act: Makes it, holds it for some seconds, mends it.
    """

    name: str
    target: Target
    act: Act

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


def obstacle(
    fault: str, server: EmbeddedServer | None, restart_command: str | None
) -> str | None:
    """Return why a fault can't be made here; None: it can."""
    if fault == "disk-full":
        return SmallDisk.obstacle(server)
    if fault.startswith("restart") and server is None and restart_command is None:
        return "say how to restart the server, with --restart-command"
    return None


def _fault(name: str, target: Target) -> Callable[[Act], Act]:
    def register(act: Act) -> Act:
        FAULTS[name] = Fault(name, target, act)
        return act

    return register


@_fault("kill", "workers")
async def kill(stage: Stage, seconds: float, dice: random.Random) -> Harm:
    """Kill -9 a supervisor with all its workers, then a worker process each second.

    The supervisor goes first: with it gone, leases have to run out.
    """
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


@_fault("stop", "workers")
async def stop(stage: Stage, seconds: float, dice: random.Random) -> Harm:
    """SIGSTOP a supervisor and its workers for longer than the lease, then SIGCONT.

    The workers go on first: their supervisor would end them, silent as they were.
    """
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


@_fault("terminate", "server")
async def terminate(stage: Stage, seconds: float, _dice: random.Random) -> Harm:
    """End all sessions of the workers each second, by their names: nobody else's."""
    connection = await stage.connect()
    victims: set[str] = set()
    try:
        for _ in range(max(int(seconds / REPEAT_SECONDS), 1)):
            sessions = {
                name: worker
                for worker, pid in stage.crew.workers().items()
                for name in (
                    application_name(worker),
                    handlers_application_name(worker),
                    django_application_name(stage.run.schema, pid),
                )
            }
            rows = await connection.fetch(_TERMINATE, list(sessions))
            victims |= {sessions[row["application_name"]] for row in rows}
            await asyncio.sleep(REPEAT_SECONDS)
    finally:
        connection.terminate()
    return Harm(tuple(sorted(victims)))


def _restart(mode: StopMode) -> None:
    """Add the fault that restarts the server, in order or as after a crash."""

    @_fault(f"restart-{mode}", "server")
    async def restart(stage: Stage, _seconds: float, _dice: random.Random) -> Harm:
        return Harm(accepting_at=await stage.restart(mode))


_restart("fast")
_restart("immediate")


@_fault("half-open", "network")
async def half_open(stage: Stage, seconds: float, _dice: random.Random) -> Harm:
    """Forward nothing and close nothing; sessions from before stay dead.

    As when a NAT has forgotten its connections.
    """
    stage.relay.freeze()
    return await _until_healed(stage, seconds)


@_fault("one-way", "network")
async def one_way(stage: Stage, seconds: float, _dice: random.Random) -> Harm:
    """Hold back what goes to the server, then what comes from it; then it arrives."""
    stage.relay.block("to the server")
    await _until_healed(stage, seconds / 2)
    stage.relay.block("from the server")
    return await _until_healed(stage, seconds / 2)


@_fault("slow", "network")
async def slow(stage: Stage, seconds: float, _dice: random.Random) -> Harm:
    """Take 50 ms each way, and 64 KiB/s, for each connection."""
    stage.relay.slow(SLOW_SECONDS, SLOW_BYTES_PER_SECOND)
    return await _until_healed(stage, seconds)


@_fault("cut", "network")
async def cut(stage: Stage, seconds: float, _dice: random.Random) -> Harm:
    """Reset all connections each second, then refuse new ones, too."""
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


@_fault("snapshot", "server")
async def snapshot(stage: Stage, seconds: float, _dice: random.Random) -> Harm:
    """Hold an old snapshot, so that no dead row of the database can be removed."""
    connection = await stage.connect()
    try:
        async with connection.transaction(isolation="repeatable_read"):
            await connection.execute("select 1")
            await asyncio.sleep(seconds)
    finally:
        connection.terminate()
    return Harm()


@_fault("disk-full", "server")
async def disk_full(stage: Stage, seconds: float, _dice: random.Random) -> Harm:
    """Every INSERT, claim and end that needs another page is refused: 53100."""
    disk = stage.disk
    assert disk is not None, "there is no obstacle"
    await asyncio.to_thread(disk.fill)
    try:
        await asyncio.sleep(seconds)
    finally:
        await asyncio.to_thread(disk.free)
    return Harm()


def _send(pid: int, number: signal.Signals) -> None:
    with suppress(ProcessLookupError):
        os.kill(pid, number)
