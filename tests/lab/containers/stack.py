"""deploy/compose.yaml, by docker-compose over podman's socket."""

import json
import subprocess
import time
from collections.abc import Callable
from typing import Any

from pgwake.database.embedded import free_port

from .podman import Podman
from .stage import DEPLOY, PREFIX, Database, FaultError, expect, get, say, until


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
            [
                *compose,
                "--progress",
                "quiet",
                "up",
                "--detach",
                "--no-build",
                *services,
            ],
            env=environment,
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
    lines = run("ps", "--all", "--format", "json", "worker").splitlines()
    codes = [json.loads(line)["ExitCode"] for line in lines]
    expect("exit codes", codes, [0, 0])
