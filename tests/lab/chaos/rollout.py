"""python -m tests.lab.chaos.rollout: more workers than the server has sessions for.

Ten supervised workers with 20 slots start at once on a server of 30 sessions, then are
restarted one after the other, while a producer that connects anew for each job inserts.
Then fifty workers lose their server and get it back: how many connect in 100 ms.
"""

import asyncio
import json
import os
import re
import signal
import subprocess
import sys
from collections import Counter
from contextlib import AsyncExitStack
from datetime import datetime
from pathlib import Path
from tempfile import TemporaryDirectory
from time import monotonic

import asyncpg

from pgwake import Registry, Settings, Worker
from pgwake.database.embedded import EmbeddedServer
from pgwake.database.install import install

CHECKOUT = Path(__file__).resolve().parents[3]
WORKERS = 10
HERD = 50
COMMAND = [
    *("-m", "pgwake", "run", "--import", "tests.lab.chaos.handlers"),
    *("--queue", "chaos:20", "--http-port", "0", "--grace", "5"),
]
ROLES = """
create role app login password 'x' connection limit {limit};
create role web login password 'x' in role app;
"""
SESSIONS = """
select application_name, count(*) from pg_stat_activity
where usename = 'app' group by 1
"""
INSERT = """
insert into pgwake.jobs (queue, kind, payload)
values ('chaos', 'chaos', '{"seconds": 0.05}')
"""
TERMINATE = """
select pg_terminate_backend(pid) from pg_stat_activity
where application_name like 'pgwake:%'
"""
LIVE = "select count(*) from pgwake.jobs_live"
BAD = "select count(*) from pgwake.jobs where status <> 'completed' or attempt > 1"
AUTHORIZED = re.compile(r"^(\S+ \S+) .*connection authorized: .*pgwake:", re.MULTILINE)


def say(text: str) -> None:
    """Print a line."""
    print(text, flush=True)  # noqa: T201


def start(url: str, log: Path) -> "subprocess.Popen[bytes]":
    """Start a supervisor with a worker."""
    environment = {
        **os.environ,
        "PGWAKE_DATABASE_URL": url,
        "PGWAKE_LOG_FORMAT": "json",
        "PGWAKE_CHAOS_JOURNAL": str(log.parent / "journal"),
    }
    with log.open("ab") as output:
        return subprocess.Popen(
            [sys.executable, *COMMAND], cwd=CHECKOUT, env=environment, stderr=output
        )


async def have_asked(log: Path, count: int) -> None:
    """Wait until so many workers have asked the database, with whatever success."""
    asked: set[str] = set()
    while len(asked) < count:
        await asyncio.sleep(0.5)
        for line in (await asyncio.to_thread(log.read_text)).splitlines():
            told = json.loads(line)
            if told["event"] in ("worker started", "session failed"):
                asked.add(told["worker"])
        asked = {name for name in asked if not name.startswith("supervisor")}


async def produce(url: str, told: Counter[str]) -> None:
    """Connect, insert a job, and leave, 20 times a second."""
    while True:
        try:
            connection = await asyncpg.connect(url, timeout=5)
        except asyncpg.TooManyConnectionsError:
            told["producer refused"] += 1
        else:
            await connection.execute(INSERT)
            told["jobs"] += 1
            await connection.close()
        await asyncio.sleep(0.05)


async def watch(
    admin: "asyncpg.Connection[asyncpg.Record]", most: Counter[str]
) -> None:
    """Count the sessions of each process and of all, as often as can be."""
    while True:
        processes: Counter[str] = Counter()
        for name, count in await admin.fetch(SESSIONS):
            processes[name.partition("/")[0]] += count
        most["of a process"] = max([most["of a process"], *processes.values()])
        most["of all"] = max(most["of all"], processes.total())
        await asyncio.sleep(0.02)


async def roll_out(limit: int) -> bool:
    """Run ten workers where there is no room for them; whether all went well."""
    told: Counter[str] = Counter()
    settings = {"max_connections": "30", "fsync": "off"}
    with TemporaryDirectory() as folder, EmbeddedServer(settings=settings) as server:
        log = Path(folder, "log")
        admin = await asyncpg.connect(server.socket_url)
        await admin.execute(ROLES.format(limit=limit))
        await admin.execute("create database app owner app")
        place = f"127.0.0.1:{server.port}/app"
        await install(f"postgresql://app:x@{place}")
        looker = await asyncpg.connect(server.socket_url.replace("/postgres?", "/app?"))
        begun = monotonic()
        processes = [start(f"postgresql://app:x@{place}", log) for _ in range(WORKERS)]
        tasks = [
            asyncio.create_task(produce(f"postgresql://web:x@{place}", told)),
            asyncio.create_task(watch(admin, told)),
        ]
        await have_asked(log, WORKERS)
        await asyncio.sleep(10)
        codes = []
        for index, old in enumerate(processes):
            old.send_signal(signal.SIGTERM)
            codes.append(await asyncio.to_thread(old.wait))
            processes[index] = start(f"postgresql://app:x@{place}", log)
            await have_asked(log, WORKERS + index + 1)
        await asyncio.sleep(5)
        tasks[0].cancel()
        while await looker.fetchval(LIVE) and monotonic() - begun < 300:
            await asyncio.sleep(0.1)
        seconds, live = monotonic() - begun, await looker.fetchval(LIVE)
        bad = await looker.fetchval(BAD)
        for process in processes:
            process.send_signal(signal.SIGTERM)
        codes += [await asyncio.to_thread(process.wait) for process in processes]
        tasks[1].cancel()

        text = await asyncio.to_thread(log.read_text)
        died = text.count('"process died"')
        await admin.close()
        await looker.close()
    say(f"connection limit {limit}: {dict(told)}, exit codes {Counter(codes)},")
    say(f"  {died} processes died, {live} jobs left, {bad} bad, {seconds:.0f} s")
    return not (live or bad or died or any(codes))


async def herd() -> None:
    """Restart the server of fifty workers, and count who connects when."""
    settings = {
        "max_connections": "500",
        "fsync": "off",
        "log_connections": "on",
        "log_line_prefix": "%m ",
    }
    registry = Registry()

    @registry.job("nothing")
    async def nothing() -> None: ...

    with EmbeddedServer(settings=settings) as server:
        await install(server.url)
        given = Settings.load(database_url=server.url, http_port=0)
        async with AsyncExitStack() as stack:
            for _ in range(HERD):
                await stack.enter_async_context(Worker(given, registry))
            await asyncio.sleep(5)
            for what in ("terminated", "restarted"):
                size = server.log_path.stat().st_size
                if what == "restarted":
                    await asyncio.to_thread(server.restart, "fast")
                else:
                    admin = await asyncpg.connect(server.socket_url)
                    await admin.execute(TERMINATE)
                    await admin.close()
                await asyncio.sleep(8)
                log = server.log_path.read_text()[size:]
                times = sorted(
                    datetime.fromisoformat(t) for t in AUTHORIZED.findall(log)
                )
                slots = Counter(int((t - times[0]).total_seconds() * 10) for t in times)
                say(
                    f"{HERD} workers, {what}: {len(times)} connects in"
                    f" {(times[-1] - times[0]).total_seconds():.1f} s, at most"
                    f" {max(slots.values())} in 100 ms: {[slots[n] for n in range(25)]}"
                )


def tell(what: str, times: list[datetime]) -> None:
    """Say how many have connected in each 100 ms."""
    times.sort()
    slots = Counter(int((t - times[0]).total_seconds() * 10) for t in times)
    say(
        f"{HERD} workers, {what}: {len(times)} connects in {max(slots) / 10:.1f} s, at"
        f" most {max(slots.values())} in 100 ms: {[slots[n] for n in range(25)]}"
    )


def main() -> None:
    """Run it and print what came of it; exit code 1 if a job or a worker was harmed."""
    fine = [asyncio.run(roll_out(limit)) for limit in (-1, 20)]
    asyncio.run(herd())
    sys.exit(not all(fine))


if __name__ == "__main__":
    main()
