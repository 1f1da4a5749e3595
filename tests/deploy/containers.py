"""python -m tests.deploy.containers: the image and the compose file, for real.

Builds deploy/Dockerfile and runs workers of it as deploy/ says they should be run:
without privileges, on a root that can't be written, ended by their orchestrator while
jobs run. The rows tell what it cost. Then the whole of deploy/compose.yaml. Leaves
nothing behind but the folder of --store, where one is named.
"""

import json
import shutil
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated, Any

import typer

from pgwake.binaries import find_binaries
from pgwake.embedded import free_port

from . import podman as containers
from .podman import POSTGRES, PYTHON, Podman

CHECKOUT = Path(__file__).resolve().parents[2]
DEPLOY = CHECKOUT / "deploy"
IMAGE = "pgwake:0.1.0"
PREFIX = "pgwaketest"
PASSWORD = "only-for-a-laptop"  # noqa: S105, as in compose.yaml
# The least that a container can be given.
CONFINED = (
    *("--read-only", "--read-only-tmpfs=false", "--cap-drop", "all"),
    *("--security-opt", "no-new-privileges", "--memory", "256m", "--pids-limit", "128"),
)
# docker and podman alike take so long before they kill; deploy/ says why.
STOP_SECONDS = 70

OUTCOMES = """
select kind, status, attempt, crash_count, bounce_count, count(*)
from pgwake.jobs group by 1, 2, 3, 4, 5 order by 1, 2, 3, 4, 5
"""


class FaultError(Exception):
    """Something is not as it should be."""


def say(text: str) -> None:
    """Tell what is done, or what came of it."""
    print(text, flush=True)  # noqa: T201


def expect(what: str, found: object, wanted: object) -> None:
    """Compare, and tell.

    Raises:
        FaultError: They differ.
    """
    if found != wanted:
        raise FaultError(f"{what}: {found!r}, not {wanted!r}")
    say(f"  {what}: {found}")


def until(what: str, condition: Callable[[], bool], seconds: float = 60) -> float:
    """Wait for it; the seconds it took.

    Raises:
        FaultError: It takes longer than this.
    """
    began = time.monotonic()
    while not condition():
        if time.monotonic() - began > seconds:
            raise FaultError(f"{what}: not within {seconds:g} s")
        time.sleep(0.1)
    return time.monotonic() - began


def get(port: int, path: str) -> str:
    """Return what an HTTP server on this machine answers."""
    with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=10) as answer:
        text: str = answer.read().decode()
    return text


class Database:
    """A database in a container, asked by psql from outside."""

    def __init__(self, port: int) -> None:
        self._psql = find_binaries() / "psql"
        self._url = f"postgresql://pgwake:{PASSWORD}@127.0.0.1:{port}/pgwake"

    def answers(self) -> bool:
        """Whether it can be asked."""
        return self._run("select 1").returncode == 0

    def rows(self, statement: str) -> list[str]:
        """Run a statement; its rows, their columns apart by |."""
        done = self._run(statement)
        if done.returncode:
            raise FaultError(done.stderr)
        return done.stdout.splitlines()

    def insert(self, kind: str, count: int, payload: str = "{}") -> None:
        """Insert jobs, as any producer does."""
        self.rows(
            f"insert into pgwake.jobs (kind, payload) select '{kind}', '{payload}' "
            f"from generate_series(1, {count})"
        )

    def count(self, status: str) -> int:
        """How many jobs have it."""
        query = f"select count(*) from pgwake.jobs where status = '{status}'"
        return int(self.rows(query)[0])

    def outcomes(self) -> list[str]:
        """What the jobs came to, since they were last forgotten."""
        return self.rows(OUTCOMES)

    def forget(self) -> None:
        """Begin anew."""
        self.rows("delete from pgwake.jobs")

    def _run(self, statement: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [self._psql, "-XAtq", "-c", statement, self._url],
            capture_output=True,
            text=True,
            check=False,
        )


class Stage:
    """A network with a database in it, where workers can be run."""

    def __init__(self, podman: Podman, database: Database) -> None:
        self.podman = podman
        self.database = database

    @classmethod
    @contextmanager
    def built(cls, podman: Podman) -> Iterator["Stage"]:
        """Build it, with the schema that the image installs."""
        port = free_port()
        settings = {"USER": "pgwake", "DB": "pgwake", "PASSWORD": PASSWORD}
        podman("network", "create", PREFIX)
        try:
            podman(
                *("run", "--detach", "--name", f"{PREFIX}-postgres"),
                *("--network", PREFIX, "--publish", f"127.0.0.1:{port}:5432"),
                *(f"--env=POSTGRES_{name}={value}" for name, value in settings.items()),
                POSTGRES,
            )
            database = Database(port)
            until("PostgreSQL answers", database.answers)
            stage = cls(podman, database)
            yield stage
        finally:
            remove(podman)

    def once(self, *words: str) -> str:
        """Run a command of pgwake's to its end; what it printed."""
        return self.podman(
            "run", "--rm", "--no-healthcheck", *CONFINED, *self._database(), *words
        )

    def start(
        self, *options: str, image: str = IMAGE, words: Sequence[str] = ()
    ) -> str:
        """Start a worker; its container's name."""
        name = f"{PREFIX}-{time.monotonic_ns()}"
        self.podman(
            *("run", "--detach", "--name", name, *CONFINED, *self._database()),
            *("--publish", "127.0.0.1::9808", *options, image, *words),
        )
        until(f"{name} is ready", lambda: self._is_ready(name))
        return name

    def port(self, name: str) -> int:
        """Where a worker's HTTP is reached from outside."""
        return int(self.podman("port", name, "9808/tcp").rpartition(":")[2])

    def stop(self, name: str) -> float:
        """Stop it as an orchestrator does; the seconds it took."""
        began = time.monotonic()
        self.podman("stop", "--time", str(STOP_SECONDS), name)
        seconds = time.monotonic() - began
        expect("exit code", self.exit_code(name), 0)
        self.podman("rm", name)
        return seconds

    def exit_code(self, name: str) -> int:
        """How it ended."""
        return int(self.podman("inspect", "--format", "{{.State.ExitCode}}", name))

    def is_healthy(self, name: str) -> bool:
        """Ask its health check; podman does so itself only where systemd runs."""
        return self.podman.succeeds("healthcheck", "run", name)

    @staticmethod
    def _database() -> tuple[str, ...]:
        url = f"postgresql://pgwake:{PASSWORD}@{PREFIX}-postgres:5432/pgwake"
        return ("--network", PREFIX, "--env", f"PGWAKE_DATABASE_URL={url}")

    def _is_ready(self, name: str) -> bool:
        state = self.podman("inspect", "--format", "{{.State.Status}}", name)
        if state != "running":
            raise FaultError(f"{name} is {state}: {self.podman('logs', name)}")
        try:
            get(self.port(name), "/readyz")
        except OSError:
            return False
        return True


def build(podman: Podman) -> None:
    """Build the image; what it weighs."""
    say(f"building {IMAGE}")
    began = time.monotonic()
    podman.build(IMAGE, CHECKOUT, DEPLOY / "Dockerfile")
    say(f"  {time.monotonic() - began:.0f} s")
    sizes = [
        int(podman("image", "inspect", "--format", "{{.Size}}", tag)) / 1e6
        for tag in (IMAGE, PYTHON)
    ]
    say(f"  {sizes[0]:.0f} MB, of these {sizes[1]:.0f} MB the base's")
    shell = ("run", "--rm", "--no-healthcheck", "--entrypoint", "sh", IMAGE, "-c")
    say(podman(*shell, "du -sm /opt/pgwake/lib/*/site-packages/* | sort -rn | head -5"))
    expect("it runs as", podman(*shell, "id -u"), "10001")
    # Compose asks by Docker's API, where a short name is one of Docker's registry.
    podman("tag", IMAGE, f"docker.io/library/{IMAGE}")


def run_stock(stage: Stage) -> None:
    """Run the image as it is."""
    say("init, and a worker of the stock image: read-only, no capabilities, 256 MB")
    say(f"  {stage.once(IMAGE, 'init')}")
    naps = ("run", "--exec", "nap=/bin/sleep 3", "--exec", "long=/bin/sleep 600")
    worker = stage.start(words=naps)
    stage.database.insert("nap", 10)
    until("all done", lambda: stage.database.count("completed") == 10)
    expect("outcomes", stage.database.outcomes(), ["nap|completed|1|0|0|10"])
    done = [
        line
        for line in get(stage.port(worker), "/metrics").splitlines()
        if line.startswith("pgwake_jobs_completed_total{")
    ]
    expect("scraped", [line.rpartition(" ")[2] for line in done], ["10.0"])
    expect("stats", "default" in stage.once(IMAGE, "stats"), True)
    memory = stage.podman("stats", "--no-stream", "--format", "{{.MemUsage}}", worker)
    say(f"  memory: {memory}")

    say("health: a worker process that stands still, and goes on")
    expect("healthy", stage.is_healthy(worker), True)
    child = (
        "for p in /proc/[0-9]*; do "
        "grep -q '[p]gwake.process' $p/cmdline && kill -{} ${{p#/proc/}}; done; true"
    )
    for name, healthy in (("STOP", False), ("CONT", True)):
        stage.podman("exec", worker, "sh", "-c", child.format(name))
        expect(f"healthy after SIG{name}", stage.is_healthy(worker), healthy)

    say("podman stop while 10 jobs run, and 20 wait")
    stage.database.forget()
    stage.database.insert("nap", 30)
    until("10 run", lambda: stage.database.count("running") == 10)
    say(f"  stopped after {stage.stop(worker):.1f} s")
    expect(
        "outcomes",
        stage.database.outcomes(),
        ["nap|completed|1|0|0|10", "nap|pending|0|0|0|20"],
    )

    say("podman stop of a worker with PGWAKE_GRACE=1, while jobs of 600 s run")
    stage.database.forget()
    worker = stage.start("--env", "PGWAKE_GRACE=1", words=naps)
    stage.database.insert("long", 10)
    until("10 run", lambda: stage.database.count("running") == 10)
    say(f"  stopped after {stage.stop(worker):.1f} s")
    expect("outcomes", stage.database.outcomes(), ["long|pending|0|0|1|10"])

    say("kill -9 of the container while 10 jobs run; another worker comes")
    stage.database.forget()
    lease = ("--env", "PGWAKE_LEASE=5")
    worker = stage.start(*lease, words=naps)
    stage.database.insert("nap", 10)
    until("10 run", lambda: stage.database.count("running") == 10)
    stage.podman("kill", "--signal", "KILL", worker)
    worker = stage.start(*lease, words=naps)
    seconds = until("all done", lambda: stage.database.count("completed") == 10)
    say(f"  done {seconds:.1f} s after the next one was ready, by lease and sweep")
    expect("outcomes", stage.database.outcomes(), ["nap|completed|1|1|0|10"])
    stage.stop(worker)

    say("commands that leave processes behind")
    stage.database.forget()
    leave = "/bin/sh -c 'setsid sleep 0.3 & exit 0'"
    worker = stage.start(words=("run", "--exec", f"leave={leave}"))
    stage.database.insert("leave", 20)
    until("all done", lambda: stage.database.count("completed") == 20)
    time.sleep(1)
    states = stage.podman("exec", worker, "sh", "-c", "cat /proc/[0-9]*/stat")
    zombies = sum(line.split()[2] == "Z" for line in states.splitlines())
    expect("zombies", zombies, 0)
    stage.stop(worker)


def run_own_handlers(stage: Stage, folder: Path) -> None:
    """Run handlers of one's own, in an image made from it and mounted."""
    (folder / "Dockerfile").write_text(
        f"FROM {IMAGE}\nCOPY jobs.py /app/\nENV PGWAKE_IMPORTS=jobs\n"
    )
    shutil.copy(DEPLOY / "example" / "jobs.py", folder)
    stage.podman.build(f"{PREFIX}-own", folder, folder / "Dockerfile")
    mount = ("--volume", f"{DEPLOY}/example:/app:ro", "--env", "PGWAKE_IMPORTS=jobs")
    for how, image, options in (
        ("in an image FROM it", f"{PREFIX}-own", ()),
        ("mounted at /app", IMAGE, mount),
    ):
        say(f"handlers {how}")
        stage.database.forget()
        worker = stage.start(*options, image=image)
        stage.database.insert("greet", 1, '{"name": "world"}')
        stage.database.insert("stumble", 1)
        until("all done", lambda: stage.database.count("completed") == 2)
        results = stage.database.rows("select result from pgwake.jobs order by kind")
        expect("results", results, ['"hello, world"', '"done at attempt 2"'])
        stage.stop(worker)


def run_compose(podman: Podman) -> None:
    """Run all that can be run of the compose file: Grafana can't be had here."""
    say("docker-compose up, of all but Grafana")
    ports = {
        name: free_port()
        for name in ("POSTGRES_PORT", "PROMETHEUS_PORT", "GRAFANA_PORT")
    }
    program = podman.unpack_compose()
    compose = [str(program), "-f", str(DEPLOY / "compose.yaml"), "-p", PREFIX]
    with podman.served() as served:
        environment = {**served, **{name: str(port) for name, port in ports.items()}}

        def run(*words: str) -> str:
            done = subprocess.run(
                [*compose, *words],
                env=environment,
                capture_output=True,
                text=True,
                check=False,
            )
            if done.returncode:
                raise FaultError(
                    f"docker-compose {words[0]}: {done.stdout} {done.stderr}"
                )
            return done.stdout

        run("config", "--quiet")
        services = ("postgres", "init", "worker", "prometheus")
        up = subprocess.Popen(
            [*compose, "up", "--detach", "--no-build", *services], env=environment
        )
        try:
            began = time.monotonic()
            while up.poll() is None:
                # In place of the timers that podman lets systemd keep.
                podman.succeeds("healthcheck", "run", f"{PREFIX}-postgres-1")
                time.sleep(0.5)
            expect("docker-compose up exits with", up.returncode, 0)
            say(f"  {time.monotonic() - began:.0f} s")
            use_stack(run, ports)
        finally:
            up.kill()
            say("docker-compose down")
            run("down", "--volumes", "--timeout", "0")


def use_stack(run: Callable[..., str], ports: dict[str, int]) -> None:
    """Insert, scrape and stop."""
    database = Database(ports["POSTGRES_PORT"])
    say("jobs inserted with psql")
    database.insert("greet", 50, '{"name": "world"}')
    database.insert("stumble", 10)
    until("all done", lambda: database.count("completed") == 60)
    expect(
        "outcomes",
        database.outcomes(),
        ["greet|completed|1|0|0|50", "stumble|completed|2|0|0|10"],
    )

    def ask(path: str) -> Any:
        return json.loads(get(ports["PROMETHEUS_PORT"], f"/api/v1/{path}"))["data"]

    def targets() -> list[str]:
        return [target["health"] for target in ask("targets")["activeTargets"]]

    say("Prometheus, which finds the workers by DNS")
    until("both are scraped", lambda: targets() == ["up", "up"])
    expect("targets", targets(), ["up", "up"])
    total = "query?query=sum(pgwake_jobs_completed_total)"
    until(
        "60 are counted",
        lambda: [one["value"][1] for one in ask(total)["result"]] == ["60"],
    )
    say(f"  {total}: 60")

    say("docker-compose stop worker, while 20 jobs run, and 20 wait")
    database.forget()
    database.insert("greet", 40, '{"name": "world", "seconds": 3}')
    until("20 run", lambda: database.count("running") == 20)
    began = time.monotonic()
    run("stop", "worker")
    say(f"  stopped after {time.monotonic() - began:.1f} s")
    expect(
        "outcomes",
        database.outcomes(),
        ["greet|completed|1|0|0|20", "greet|pending|0|0|0|20"],
    )
    states = json.loads(f"[{','.join(run('ps', '-a', '--format', 'json').split())}]")
    codes = [one["ExitCode"] for one in states if one["Service"] == "worker"]
    expect("exit codes", codes, [0, 0])


def remove(podman: Podman) -> None:
    """Remove what was made, and only that."""
    names = podman("ps", "--all", "--format", "{{.Names}}").split()
    for name in names:
        if name.startswith(PREFIX):
            podman("rm", "--force", "--time", "0", name)
    if podman.succeeds("network", "exists", PREFIX):
        podman("network", "rm", "--force", PREFIX)
    podman.remove_tables()


def main(
    store: Annotated[
        Path | None,
        typer.Option(help="Keep the images in this folder, for the next time."),
    ] = None,
) -> None:
    """Build and run it all; exit code 1 if something is not as it should be."""
    if lacking := containers.problem():
        print(lacking, file=sys.stderr)  # noqa: T201
        sys.exit(2)
    began = time.monotonic()
    with TemporaryDirectory(prefix="pgwake-", ignore_cleanup_errors=True) as temporary:
        folder = Path(temporary)
        podman = Podman(store.absolute() if store else folder / "store")
        try:
            say("images that stand in for those of a registry")
            podman.make_stand_ins()
            build(podman)
            with Stage.built(podman) as stage:
                run_stock(stage)
                (folder / "own").mkdir()
                run_own_handlers(stage, folder / "own")
            run_compose(podman)
        except (FaultError, subprocess.CalledProcessError) as failure:
            say(f"FAILED: {failure}")
            sys.exit(1)
        finally:
            remove(podman)
            if store is None:
                podman.remove_store()
    say(f"all is well, after {time.monotonic() - began:.0f} s")


if __name__ == "__main__":
    typer.run(main)
