"""python -m tests.lab.containers.image: the image and the compose file, for real.

Builds deploy/Dockerfile and runs workers of it as deploy/ says they should be run:
without privileges, on a root that can't be written, ended by their orchestrator while
jobs run. The rows tell what it cost. Then the whole of deploy/compose.yaml. Leaves
nothing behind but the folder of --store, where one is named.
"""

import shutil
import subprocess
import sys
import time
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated

import typer

from .podman import PYTHON, Podman, problem
from .stack import run_compose
from .stage import (
    CHECKOUT,
    DEPLOY,
    IMAGE,
    PREFIX,
    FaultError,
    Stage,
    expect,
    get,
    remove,
    say,
    until,
)


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
        "grep -q '[p]gwake.supervise' $p/cmdline && kill -{} ${{p#/proc/}}; done; true"
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
    zombies = states.count(") Z ")
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


def main(
    store: Annotated[
        Path | None,
        typer.Option(help="Keep the images in this folder, for the next time."),
    ] = None,
) -> None:
    """Build and run it all; exit code 1 if something is not as it should be."""
    if lacking := problem():
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
