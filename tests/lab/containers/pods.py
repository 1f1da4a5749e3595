"""python -m tests.lab.containers.pods: the pods of deploy/kubernetes, by podman.

They are those that kubectl renders, with their Secrets and their ConfigMap. podman 4
knows no Jobs, and leaves probes to systemd and to a curl in the image: so the template
of the Job is run as a Pod, and the probes are asked from here, as the kubelet would.

What must hold: the init Job installs, and again; the worker's pod starts before the
database does, and is ready once that is there; while it is away the pod is not ready,
and not restarted; told to stop, it lets a job end that fits the grace, and gives back
unburnt one that does not, within its grace period.
"""

import base64
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated

import httpx
import psycopg
import typer
import yaml

from .image import build
from .manifests import KUBERNETES, Json, pod_templates, render
from .podman import POSTGRES, Podman, problem
from .stage import FaultError, expect, say, until

NETWORK, DATABASE = "pgwakepods", "pgwakepods-postgres"
INIT, WORKER, API = "pgwake-init", "pgwake-worker", "pgwake-api"
# Who logs in to the database, and what by: the role that it is in, and the Secret.
OWNER = "pgwake"
LOGINS = {"jobs_worker": "pgwake_worker", "jobs_admin": "pgwake_admin"}
SECRETS = {
    "pgwake-owner": OWNER,
    "pgwake-worker": "jobs_worker",
    "pgwake-admin": "jobs_admin",
}
TOKEN = "only-for-these-tests"  # noqa: S105, for a server that lives a minute
HANDLERS = {"short": "/bin/sleep 10", "long": "/bin/sleep 600"}
OUTAGE_SECONDS = 40  # readiness takes 15 s to know


def overlay(folder: Path) -> list[Json]:
    """Render an overlay of the base, with handlers that the stock image can run."""
    settings = {
        "name": "pgwake-settings",
        "behavior": "merge",
        "literals": [
            f"PGWAKE_EXEC_HANDLERS={json.dumps(HANDLERS)}",
            "PGWAKE_ENVIRONMENT=pods",
        ],
    }
    kustomization = {
        "resources": [os.path.relpath(KUBERNETES / "base", folder.resolve())],
        "components": [
            os.path.relpath(KUBERNETES / "components/api", folder.resolve())
        ],
        "configMapGenerator": [settings],
    }
    (folder / "kustomization.yaml").write_text(yaml.safe_dump(kustomization))
    return render(folder)


class Cluster:
    """As much of a Kubernetes cluster as this needs.

    Args:
        podman: Runs the pods.
        folder: For what it is given in files.
    """

    def __init__(self, podman: Podman, folder: Path) -> None:
        self.podman = podman
        self._folder = folder
        self._objects = overlay(folder)

    @contextmanager
    def connected(self) -> Iterator[psycopg.Connection]:
        """Connect to the database as its owner, in autocommit."""
        url = f"postgresql://{OWNER}:{OWNER}@{self._address(DATABASE)}/pgwake"
        with psycopg.connect(url, autocommit=True, connect_timeout=5) as connection:
            yield connection

    def answers(self) -> bool:
        """Whether the database does."""
        try:
            with self.connected():
                return True
        except psycopg.OperationalError:
            return False

    def make_secrets(self) -> None:
        """Make those that the pods have the database's URL from."""
        for name, role in SECRETS.items():
            url = f"postgresql://{role}:{role}@{DATABASE}:5432/pgwake"
            values = {"url": url, "token": TOKEN}
            coded = {
                k: base64.b64encode(v.encode()).decode() for k, v in values.items()
            }
            file = self._folder / f"{name}.json"
            file.write_text(json.dumps(coded))
            self.podman("secret", "create", name, file)

    def spec(self, name: str) -> Json:
        """Return the spec of the pods of that Job or Deployment."""
        spec: Json = pod_templates(self._objects)[name]["spec"]
        return spec

    def play(self, name: str) -> None:
        """Run such a pod."""
        spec = self.spec(name)
        containers = [
            {field: value for field, value in one.items() if "Probe" not in field}
            for one in spec["containers"]
        ]
        settings = [item for item in self._objects if item["kind"] == "ConfigMap"]
        pod = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": name},
            "spec": {**spec, "containers": containers},
        }
        file = self._folder / f"{name}.yaml"
        file.write_text(yaml.safe_dump_all([*settings, pod]))
        self.podman("play", "kube", "--network", NETWORK, file)

    def ask(self, name: str, probe: str) -> int | None:
        """Ask one of a pod's probes; the status, None if there is no answer."""
        [container] = self.spec(name)["containers"]
        asked = container[f"{probe}Probe"]
        path, port = asked["httpGet"]["path"], asked["httpGet"]["port"]
        try:
            answer = self.get(name, path, port=port, timeout=asked["timeoutSeconds"])
        except httpx.HTTPError:
            return None
        return answer.status_code

    def get(self, name: str, path: str, port: str, timeout: float) -> httpx.Response:
        """Ask a pod by a port's name."""
        [container] = self.spec(name)["containers"]
        ports = {one["name"]: one["containerPort"] for one in container["ports"]}
        infra = self.podman("pod", "inspect", "-f", "{{.InfraContainerID}}", name)
        url = f"http://{self._address(infra)}:{ports[port]}{path}"
        return httpx.get(
            url, timeout=timeout, headers={"Authorization": f"Bearer {TOKEN}"}
        )

    def _address(self, container: str) -> str:
        address = f'{{{{(index .NetworkSettings.Networks "{NETWORK}").IPAddress}}}}'
        return self.podman("inspect", "--format", address, container)


@contextmanager
def started(podman: Podman, folder: Path) -> Iterator[Cluster]:
    """Start the database; at the end remove all that was made."""
    podman("network", "create", NETWORK)
    try:
        settings = {"USER": OWNER, "DB": "pgwake", "PASSWORD": OWNER}
        podman(
            *("run", "--detach", "--name", DATABASE, "--network", NETWORK),
            *(f"--env=POSTGRES_{name}={value}" for name, value in settings.items()),
            POSTGRES,
        )
        cluster = Cluster(podman, folder)
        until("PostgreSQL answers", cluster.answers)
        yield cluster
    finally:
        for pod in (INIT, WORKER, API):
            podman("pod", "rm", "--force", "--ignore", pod)
        podman("rm", "--force", "--ignore", "--volumes", "--time", "0", DATABASE)
        for secret in SECRETS:
            podman.succeeds("secret", "rm", secret)
        podman.succeeds("volume", "rm", "tmp")  # the emptyDir
        podman("network", "rm", NETWORK)
        podman.remove_tables()


def run_init(cluster: Cluster) -> None:
    """Run it as two deploys do, then make the roles that log in."""
    say("the init Job's pod, twice")
    for _ in range(2):
        cluster.play(INIT)
        expect("exit code", cluster.podman("wait", f"{INIT}-pgwake"), "0")
        say(f"  {cluster.podman('logs', f'{INIT}-pgwake')}")
        cluster.podman("pod", "rm", INIT)
    with cluster.connected() as connection:
        for login, role in LOGINS.items():
            connection.execute(
                f"create role {login} login password '{login}' in role {role}"
            )


def run_worker(cluster: Cluster) -> None:
    """Start the worker's pod and look at it, before and while the database is away."""
    podman, inside = cluster.podman, f"{WORKER}-pgwake"
    say("the worker's pod, before the database is there")
    podman("stop", DATABASE)
    cluster.play(WORKER)
    seconds = until("startupProbe", lambda: cluster.ask(WORKER, "startup") == 200)
    say(f"  started after {seconds:.1f} s")
    expect("readinessProbe", cluster.ask(WORKER, "readiness"), 503)
    podman("start", DATABASE)
    seconds = until("readinessProbe", lambda: cluster.ask(WORKER, "readiness") == 200)
    say(f"  ready {seconds:.1f} s after the database's start")
    expect("it runs as", podman("exec", inside, "id", "-u"), "10001")
    rights = podman("exec", inside, "grep", "CapBnd", "/proc/1/status").split()[1]
    expect("capabilities", int(rights, 16), 0)
    for path, can in (("/app/x", False), ("/tmp/x", True)):  # noqa: S108, in the pod
        expect(
            f"{path} can be written",
            podman.succeeds("exec", inside, "touch", path),
            can,
        )
    memory = podman("stats", "--no-stream", "--format", "{{.MemUsage}}", inside)
    say(f"  memory: {memory}")
    with cluster.connected() as connection:
        row = connection.execute(
            "select count(*) from pg_stat_activity where usename = %s",
            [SECRETS[WORKER]],
        ).fetchone()
        say(f"  connections: {row and row[0]}")

    say(f"the database is away for {OUTAGE_SECONDS} s")
    podman("stop", DATABASE)
    began = time.monotonic()
    seconds = until("not ready", lambda: cluster.ask(WORKER, "readiness") == 503)
    say(f"  not ready after {seconds:.1f} s")
    statuses = set()
    while time.monotonic() - began < OUTAGE_SECONDS:
        statuses.add(cluster.ask(WORKER, "liveness"))
        time.sleep(1)
    expect("livenessProbe", statuses, {200})
    podman("start", DATABASE)
    seconds = until("ready again", lambda: cluster.ask(WORKER, "readiness") == 200)
    say(f"  ready {seconds:.1f} s after its start")


def run_api(cluster: Cluster) -> None:
    """Start the pod of the status page and the API, and stop it."""
    say("the API's pod")
    cluster.play(API)
    seconds = until("readinessProbe", lambda: cluster.ask(API, "readiness") == 200)
    say(f"  ready after {seconds:.1f} s")
    answer = cluster.get(API, "/api/queue/stats", "http", 5)
    expect("its statistics", answer.status_code, 200)
    stop(cluster, API)


def stop(cluster: Cluster, name: str) -> None:
    """Stop a pod within its grace period."""
    inside = f"{name}-pgwake"
    grace = cluster.spec(name)["terminationGracePeriodSeconds"]
    began = time.monotonic()
    # Not `podman pod stop`, which takes the network away at once: a kubelet ends the
    # containers first.
    cluster.podman("stop", "--time", str(grace), inside)
    say(f"  stopped after {time.monotonic() - began:.1f} s of {grace} s")
    code = cluster.podman("inspect", "--format", "{{.State.ExitCode}}", inside)
    expect("exit code", code, "0")


def stop_worker(cluster: Cluster) -> None:
    """Stop the pod as the kubelet does, while jobs run: one fits the grace, one not."""
    say("the pod is stopped while a job of 10 s and one of 600 s run")
    with cluster.connected() as connection:

        def rows(columns: str) -> list[tuple[object, ...]]:
            query = f"select {columns} from pgwake.jobs order by id"
            return connection.execute(query.encode()).fetchall()

        connection.execute("insert into pgwake.jobs (kind) values ('short'), ('long')")
        until("both run", lambda: rows("status") == [("running",)] * 2)
        stop(cluster, WORKER)
        expect(
            "outcomes",
            rows("kind, status, attempt, crash_count"),
            [("short", "completed", 1, 0), ("long", "pending", 0, 0)],
        )


def main(
    store: Annotated[
        Path | None,
        typer.Option(help="Keep the images in this folder, for the next time."),
    ] = None,
) -> None:
    """Run it all; exit code 1 if something is not as it should be."""
    if lacking := problem():
        print(lacking, file=sys.stderr)  # noqa: T201
        sys.exit(2)
    with TemporaryDirectory(prefix="pgwake-", ignore_cleanup_errors=True) as temporary:
        folder = Path(temporary)
        podman = Podman(store.absolute() if store else folder / "store")
        try:
            podman.make_stand_ins()
            build(podman)
            with started(podman, folder) as cluster:
                cluster.make_secrets()
                run_init(cluster)
                run_api(cluster)
                run_worker(cluster)
                stop_worker(cluster)
        except (FaultError, subprocess.CalledProcessError) as failure:
            say(f"FAILED: {failure}")
            sys.exit(1)
        finally:
            if store is None:
                podman.remove_store()
    say("all is well")


if __name__ == "__main__":
    typer.run(main)
