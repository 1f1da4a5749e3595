"""What only a client can see of a database and its settings, a function a check."""

import asyncio
import re
import shlex
from collections.abc import AsyncIterator
from contextlib import suppress
from datetime import UTC, datetime
from time import monotonic

from pgwake.database.connection import FAULTS, Connection, connect
from pgwake.database.install import schema_problem, sql_directory
from pgwake.database.pooler import PooledError, check_listening, delivery_seconds
from pgwake.database.statements import doctor
from pgwake.database.statements.install import get_adoption, installed_schema
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
SESSIONS = 5  # of a worker process; its supervisor has one more

_GRANT = re.compile(r"grant execute on function\s+([^;]*?)\s+to (\w+);")


async def look_at_settings(settings: Settings) -> AsyncIterator[Finding]:
    """Find settings that don't go together."""
    lease, timeout = settings.lease, settings.query_timeout
    if lease is not None and lease < LEASE_SECONDS:
        yield Finding(
            "settings",
            "warning",
            "PGWAKE_LEASE",
            f"one slow renewal loses a lease of {lease:g} s",
            f"export PGWAKE_LEASE={LEASE_SECONDS:g}  # or more; 300 by default",
            lease,
        )
    if lease is not None and timeout > lease / 2:
        yield Finding(
            "settings",
            "warning",
            "PGWAKE_QUERY_TIMEOUT",
            f"a renewal that hangs for {timeout:g} s loses a lease of {lease:g} s",
            f"export PGWAKE_QUERY_TIMEOUT={lease / 3:g}  # a third of the lease",
            timeout,
        )


async def look_at_hosts(settings: Settings, timeout: float) -> AsyncIterator[Finding]:  # noqa: ASYNC109
    """Ask each of several hosts what it is."""
    urls = host_urls(settings.dsn)
    if len(urls) < 2:
        return
    places = {}
    answers = await asyncio.gather(*(_ask_host(url, timeout) for url in urls))
    for url, answer in zip(urls, answers, strict=True):
        if isinstance(answer, Finding):
            yield answer
        else:
            places[host_name(url)] = answer.is_standby
    primaries = [host for host, is_standby in places.items() if not is_standby]
    if len(primaries) > 1:
        yield Finding(
            "hosts",
            "error",
            ", ".join(primaries),
            "more than one host takes writes: they are no cluster, or it has split",
            "select system_identifier from pg_control_system();  -- on each; then stop"
            " the one that should not lead",
        )
    elif places and not primaries:
        yield Finding(
            "hosts",
            "error",
            ", ".join(places),
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


async def look_at_clock(connection: Connection) -> AsyncIterator[Finding]:
    """Compare the clocks, as of the quickest of five round trips."""
    trips = []
    for _ in range(5):
        here, began = datetime.now(UTC), monotonic()
        there = await doctor.clock(connection)
        seconds = monotonic() - began
        trips.append((seconds, (there - here).total_seconds() - seconds / 2))
    seconds, ahead = min(trips)
    if abs(ahead) > CLOCK_SECONDS + seconds:
        yield Finding(
            "clock",
            "warning",
            "this machine",
            f"its clock is {abs(ahead):.1f} s {'behind' if ahead > 0 else 'ahead of'} "
            "the server's: jobs go by the server's alone, logs and dashboards by both",
            "timedatectl set-ntp true  # on whichever of the two is wrong",
            ahead,
        )
    if seconds > ROUND_TRIP_SECONDS:
        yield Finding(
            "round_trip",
            "warning",
            "the network",
            f"a round trip to the server takes {seconds * 1000:.0f} ms, and each claim "
            "is one",
            "psql \"$PGWAKE_DATABASE_URL\" -c '\\timing' -c 'select 1'  # from here; "
            "run workers near the database",
            seconds,
        )


async def look_at_sessions(
    connection: Connection, settings: Settings
) -> AsyncIterator[Finding]:
    """Find too little room for the sessions of a worker."""
    needed = SESSIONS * settings.processes + 1
    allowed, used = await doctor.sessions(connection)
    if used + needed > allowed:
        yield Finding(
            "sessions",
            "warning",
            "PGWAKE_PROCESSES",
            f"a worker of {settings.processes} processes has {needed} sessions; of the "
            f"{allowed} that this role may have, {used} are in use by others",
            "export PGWAKE_PROCESSES=1  # or raise max_connections, or the limit of "
            "the role or database, or have others use a pooler",
            needed,
        )


async def look_at_listening(
    connection: Connection,
    settings: Settings,
    timeout: float,  # noqa: ASYNC109
) -> AsyncIterator[Finding]:
    """Have a session of the listen URL hear what this one sends, and take the time."""
    here = await doctor.where(connection)
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
        seconds = await delivery_seconds(listener, connection)
        there = await doctor.where(listener)
    except PooledError:
        yield Finding(
            "listen",
            "warning",
            variable,
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
            "listen",
            "error",
            variable,
            f"what is sent in database {here.database} at "
            f"{without_password(settings.dsn)} is not heard in database "
            f"{there.database} at {without_password(url)}",
            "select current_database(), pg_postmaster_start_time();  -- by both URLs: "
            "they must be of one database",
        )
    elif seconds > DELIVERY_SECONDS:
        yield Finding(
            "listen",
            "warning",
            variable,
            f"a notification took {seconds:.1f} s: jobs begin as late",
            "select pg_notification_queue_usage();  -- and look at the server's load",
            seconds,
        )


async def look_at_schema(connection: Connection) -> AsyncIterator[Finding]:
    """Find a schema that this version can't use, or this role."""
    if await doctor.may_use_schema(connection) is False:
        role = (await doctor.where(connection)).role
        yield _denied(role, "this role may not use the schema pgwake")
    elif problem := schema_problem(await installed_schema(connection)):
        yield Finding("schema", "error", "pgwake", problem, "pgwake init")


async def look_at_rights(connection: Connection) -> AsyncIterator[Finding]:
    """Find what this role lacks to be a worker's."""
    role = (await doctor.where(connection)).role
    if names := await doctor.denied(connection):
        yield _denied(role, f"a worker of this role may not call {', '.join(names)}")


def _denied(role: str, problem: str) -> Finding:
    name = role.replace('"', '""')
    fix = f'grant pgwake_worker to "{name}";  -- once pgwake init --roles has been run'
    return Finding("rights", "error", role, problem, fix)


async def look_at_grants(connection: Connection) -> AsyncIterator[Finding]:
    """Find what the three roles lack."""
    roles, functions = granted_functions()
    for role, names in await doctor.missing_grants(connection, roles, functions):
        yield Finding(
            "grants",
            "error",
            role,
            f"{role} may not call {', '.join(names)}",
            "pgwake init --roles",
        )


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


async def look_at_environment(
    connection: Connection, settings: Settings
) -> AsyncIterator[Finding]:
    """Find a database of another environment."""
    wanted = settings.environment
    if wanted is None:
        return
    noted = (await get_adoption(connection)).environment
    if noted == wanted:
        return
    yield Finding(
        "environment",
        "error",
        "PGWAKE_ENVIRONMENT",
        f"it is {wanted}, and the database is noted for "
        f"{'none' if noted is None else noted}: a worker waits",
        f"pgwake adopt --environment {shlex.quote(wanted)}  # if this is its database",
    )


async def diagnose(connection: Connection) -> AsyncIterator[Finding]:
    """Find what the database itself can see."""
    for finding in await doctor.diagnose(connection):
        yield finding
