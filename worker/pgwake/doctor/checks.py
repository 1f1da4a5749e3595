"""The checks of `pgwake doctor` that only a client can make, in their order.

A check is one function here: what it looks at, its words, and what to type against it.
What SQL can see is a check of pgwake.diagnose() or pgwake.diagnose_worker() instead.
"""

import asyncio
import re
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from time import monotonic

from pgwake.database.connection import FAULTS, Connection, connect
from pgwake.database.install import schema_problem, sql_directory
from pgwake.database.pooler import PooledError, check_listening, delivery_seconds
from pgwake.database.statements import doctor
from pgwake.database.statements.install import installed_schema
from pgwake.database.url import host_name, host_urls
from pgwake.doctor.connect import explain_refusal, without_password
from pgwake.errors import PgwakeError
from pgwake.finding import Finding
from pgwake.settings import Settings

NAME = "pgwake:doctor"
CLOCK_SECONDS = 1.0
ROUND_TRIP_SECONDS = 0.05
DELIVERY_SECONDS = 0.5
LEASE_SECONDS = 10.0

_GRANT = re.compile(r"grant execute on function\s+([^;]*?)\s+to (\w+);")


@dataclass
class Patient:
    """What is examined.

    Attributes:
        settings: Those that a worker would have.
        timeout: How many seconds to wait for an answer.
        session: The session on its database, once there is one.
    """

    settings: Settings
    timeout: float
    session: "Connection | None" = None

    @property
    def connection(self) -> Connection:
        """The session that the check `connect` has made."""
        assert self.session is not None  # noqa: S101, that check is vital
        return self.session


Look = Callable[[Patient], AsyncIterator[Finding]]


@dataclass(frozen=True)
class Check:
    """A check: after an error of a vital one, the later ones can't be made."""

    name: str
    look: Look
    is_vital: bool


CHECKS: list[Check] = []


def _check(name: str, *, is_vital: bool = False) -> Callable[[Look], Look]:
    def add(look: Look) -> Look:
        CHECKS.append(Check(name, look, is_vital))
        return look

    return add


@_check("settings")
async def _settings(patient: Patient) -> AsyncIterator[Finding]:
    """Find settings that don't go together."""
    lease, timeout = patient.settings.lease, patient.settings.query_timeout
    if lease is not None and lease < LEASE_SECONDS:
        yield Finding(
            *("settings", "warning", "PGWAKE_LEASE"),
            f"one slow renewal loses a lease of {lease:g} s",
            f"export PGWAKE_LEASE={LEASE_SECONDS:g}  # or more; 300 by default",
            lease,
        )
    if lease is not None and timeout > lease / 2:
        yield Finding(
            *("settings", "warning", "PGWAKE_QUERY_TIMEOUT"),
            f"a renewal that hangs for {timeout:g} s loses a lease of {lease:g} s",
            f"export PGWAKE_QUERY_TIMEOUT={lease / 3:g}  # a third of the lease",
            timeout,
        )


@_check("hosts")
async def _hosts(patient: Patient) -> AsyncIterator[Finding]:
    """Ask each of several hosts what it is."""
    urls = host_urls(patient.settings.dsn)
    if len(urls) < 2:
        return
    places = {}
    asked = (_ask_host(url, patient.timeout / 2) for url in urls)
    for url, answer in zip(urls, await asyncio.gather(*asked), strict=True):
        if isinstance(answer, Finding):
            yield answer
        else:
            places[host_name(url)] = answer.is_standby
    primaries = [host for host, is_standby in places.items() if not is_standby]
    if len(primaries) > 1:
        yield Finding(
            *("hosts", "error", ", ".join(primaries)),
            "more than one host takes writes: they are no cluster, or it has split",
            "select system_identifier from pg_control_system();  -- on each; then stop"
            " the one that should not lead",
        )
    elif places and not primaries:
        yield Finding(
            *("hosts", "error", ", ".join(places)),
            "no host takes writes: all that answer are standbys",
            "select pg_promote();  -- on the one that is to lead, or await a failover",
        )


async def _ask_host(url: str, timeout: float) -> doctor.Where | Finding:  # noqa: ASYNC109
    try:
        connection = await connect(url, NAME, timeout)
        try:
            return await doctor.where(connection)
        finally:
            connection.terminate()
    except (*FAULTS, PgwakeError) as error:
        found = explain_refusal("PGWAKE_DATABASE_URL", url, error)
        return Finding("hosts", "warning", found.subject, found.problem, found.fix)


@_check("connect", is_vital=True)
async def _connect(patient: Patient) -> AsyncIterator[Finding]:
    """Connect, for the checks that follow."""
    url = patient.settings.dsn
    try:
        # Before the check's own deadline, which knows no reason.
        patient.session = await connect(url, NAME, 0.9 * patient.timeout)
    except (*FAULTS, PgwakeError) as error:
        yield explain_refusal("PGWAKE_DATABASE_URL", url, error)


@_check("clock")
async def _clock(patient: Patient) -> AsyncIterator[Finding]:
    """Compare the clocks, as of the quickest of five round trips."""
    trips = []
    for _ in range(5):
        here, began = datetime.now(UTC), monotonic()
        there = await doctor.clock(patient.connection)
        seconds = monotonic() - began
        trips.append((seconds, (there - here).total_seconds() - seconds / 2))
    seconds, ahead = min(trips)
    if abs(ahead) > CLOCK_SECONDS + seconds:
        yield Finding(
            *("clock", "warning", "this machine"),
            f"its clock is {abs(ahead):.1f} s {'behind' if ahead > 0 else 'ahead of'} "
            "the server's: jobs go by the server's alone, logs and dashboards by both",
            "timedatectl set-ntp true  # on whichever of the two is wrong",
            ahead,
        )
    if seconds > ROUND_TRIP_SECONDS:
        yield Finding(
            *("round_trip", "warning", "the network"),
            f"a round trip to the server takes {seconds * 1000:.0f} ms, and each claim "
            "is one",
            "psql \"$PGWAKE_DATABASE_URL\" -c '\\timing' -c 'select 1'  # from here; "
            "run workers near the database",
            seconds,
        )


@_check("listen")
async def _listen(patient: Patient) -> AsyncIterator[Finding]:
    """Have a session of the listen URL hear what this one sends, and take the time."""
    settings, timeout = patient.settings, patient.timeout
    here = await doctor.where(patient.connection)
    if here.is_standby:
        return  # which knows no LISTEN
    is_apart = settings.listen_url is not None
    variable = "PGWAKE_LISTEN_URL" if is_apart else "PGWAKE_DATABASE_URL"
    url = settings.listen_dsn
    try:
        listener = await connect(url, NAME, timeout)
    except (*FAULTS, PgwakeError) as error:
        yield explain_refusal(variable, url, error)
        return
    try:
        await check_listening(listener, url, NAME, timeout)
        seconds = await delivery_seconds(listener, patient.connection)
        there = await doctor.where(listener)
    except PooledError:
        yield Finding(
            *("listen", "warning", variable),
            "a transaction pooler stands before the database, and LISTEN can't work: "
            f"jobs begin up to {settings.poll_interval:g} s late",
            "export PGWAKE_LISTEN_URL=postgresql://...  # of the server itself",
            settings.poll_interval,
        )
        return
    finally:
        listener.terminate()
    if seconds is None:
        yield Finding(
            *("listen", "error", variable),
            f"what is sent in database {here.database} at "
            f"{without_password(settings.dsn)} is not heard in database "
            f"{there.database} at {without_password(url)}",
            "select current_database(), pg_postmaster_start_time();  -- by both URLs: "
            "they must be of one database",
        )
    elif seconds > DELIVERY_SECONDS:
        yield Finding(
            *("listen", "warning", variable),
            f"a notification took {seconds:.1f} s: jobs begin as late",
            "select pg_notification_queue_usage();  -- and look at the server's load",
            seconds,
        )


@_check("schema", is_vital=True)
async def _schema(patient: Patient) -> AsyncIterator[Finding]:
    """Find a schema that this version can't use."""
    if problem := schema_problem(await installed_schema(patient.connection)):
        yield Finding("schema", "error", "pgwake", problem, "pgwake init")


@_check("diagnose")
async def _diagnose(patient: Patient) -> AsyncIterator[Finding]:
    """Find what the database itself can see."""
    settings = patient.settings
    for finding in await doctor.diagnose(
        patient.connection,
        settings.processes,
        settings.environment,
        *granted_functions(),
    ):
        yield finding


def granted_functions() -> tuple[list[str], list[str]]:
    """Return who may execute what, as roles.sql grants it: two parallel lists."""
    roles, functions = [], []
    with suppress(FileNotFoundError):
        text = (sql_directory() / "roles.sql").read_text(encoding="utf-8")
        for names, role in _GRANT.findall(text):
            for name in names.split(","):
                roles.append(role)
                functions.append(name.strip().removeprefix("pgwake."))
    return roles, functions
