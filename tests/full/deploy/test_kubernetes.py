"""deploy/kubernetes by kubectl: valid, without rights, fit for the worker."""

import re
from collections.abc import Callable, Iterator
from copy import deepcopy
from pathlib import Path
from urllib.parse import urlsplit

import jsonschema  # type: ignore[import-untyped]
import psycopg
import pytest
import yaml
from kubernetes_validate.utils import (  # type: ignore[import-untyped]
    SchemaNotFoundError,
)

from full.deploy.monitoring import PROMETHEUS
from lab.containers.manifests import (
    CRDS,
    EXAMPLE,
    KUBERNETES,
    Json,
    definitions,
    pod_templates,
    render,
    validate,
)
from pgwake.settings import DEFAULT_SLOTS, Settings
from pgwake.supervise import supervisor
from pgwake.version import __version__

SECRETS = KUBERNETES / "secrets.example.yaml"
FILES = sorted(KUBERNETES.glob("base/*.yaml")) + sorted(KUBERNETES.glob("*/*/*.yaml"))


@pytest.fixture(scope="module")
def rendered() -> list[Json]:
    """What the example comes to: the base with every component."""
    return render(EXAMPLE)


@pytest.fixture(scope="module")
def base() -> list[Json]:
    return render(KUBERNETES / "base")


@pytest.fixture(scope="module")
def crds() -> dict[tuple[str, str], Json]:
    return definitions([CRDS])


def find(objects: list[Json], kind: str, name: str) -> Json:
    [found] = [
        item
        for item in objects
        if item["kind"] == kind and item["metadata"]["name"] == name
    ]
    return found


def pods_of(objects: list[Json]) -> dict[str, tuple[Json, Json]]:
    """The spec of each kind of pod, and its one container."""
    specs = {name: pod["spec"] for name, pod in pod_templates(objects).items()}
    return {name: (spec, *spec["containers"]) for name, spec in specs.items()}


def find_settings(objects: list[Json]) -> Json:
    """The ConfigMap, whose name ends in a hash."""
    [found] = [item for item in objects if item["kind"] == "ConfigMap"]
    return found


def settings_of(objects: list[Json]) -> Settings:
    variables = find_settings(objects)["data"]
    assert all(name.startswith("PGWAKE_") for name in variables)
    fields = {
        name.removeprefix("PGWAKE_").lower(): variables[name] for name in variables
    }
    assert fields.keys() <= Settings.model_fields.keys()
    return Settings.load(**fields)


def test_each_object_is_valid_strictly(
    rendered: list[Json], base: list[Json], crds: dict[tuple[str, str], Json]
) -> None:
    for item in [*base, *rendered]:
        validate(item, crds)
    for secret in yaml.safe_load_all(SECRETS.read_text()):
        validate(secret, crds)


@pytest.mark.parametrize(
    ("kind", "name", "path"),
    [
        ("Deployment", "pgwake-worker", ("spec", "template", "spec", "containers", 0)),
        ("NetworkPolicy", "pgwake", ("spec", "egress", 0, "ports", 0)),
        ("Cluster", "pgwake-db", ("spec", "postgresql", "synchronous")),
        ("ScaledObject", "pgwake-worker", ("spec", "triggers", 0)),
    ],
)
def test_a_field_that_does_not_exist_is_refused(
    rendered: list[Json],
    crds: dict[tuple[str, str], Json],
    kind: str,
    name: str,
    path: tuple[str | int, ...],
) -> None:
    broken = deepcopy(find(rendered, kind, name))
    place = broken
    for step in path:
        place = place[step]  # type: ignore[index]
    place["readOnly"] = True

    with pytest.raises(jsonschema.ValidationError, match="readOnly"):
        validate(broken, crds)


def test_a_kind_that_nothing_is_known_of_is_refused(
    crds: dict[tuple[str, str], Json],
) -> None:
    unknown = {"apiVersion": "keda.sh/v1alpha1", "kind": "ScaledObjects"}

    with pytest.raises(SchemaNotFoundError):
        validate(unknown, crds)


def test_the_example_has_every_component() -> None:
    named = yaml.safe_load((EXAMPLE / "kustomization.yaml").read_text())["components"]

    assert {(EXAMPLE / path).resolve() for path in named} == set(
        KUBERNETES.glob("components/*")
    )


def test_every_container_is_without_rights(rendered: list[Json]) -> None:
    for name, (pod, container) in pods_of(rendered).items():
        assert pod["automountServiceAccountToken"] is False, name
        assert pod["securityContext"] == {
            "runAsNonRoot": True,
            "runAsUser": 10001,
            "runAsGroup": 10001,
            "seccompProfile": {"type": "RuntimeDefault"},
        }, name
        assert container["securityContext"] == {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        }, name
        assert container["resources"]["limits"]["memory"], name


def test_the_image_is_this_version_s_until_an_overlay_names_another(
    rendered: list[Json],
) -> None:
    images = re.findall(r"image: (\S+)", "\n".join(map(Path.read_text, FILES)))

    assert set(images) == {f"pgwake:{__version__}"}
    assert {container["image"] for _, container in pods_of(rendered).values()} == {
        "registry.example.org/jobs:1"
    }


def test_every_variable_is_a_setting_and_no_service_can_set_one(
    rendered: list[Json],
) -> None:
    settings = {"name": find_settings(rendered)["metadata"]["name"]}
    assert settings_of(rendered).imports == ("jobs",)
    for name, (pod, container) in pods_of(rendered).items():
        variables = {
            entry["name"].removeprefix("PGWAKE_").lower()
            for entry in container["env"]
            if entry["name"].startswith("PGWAKE_")
        }
        assert "database_url" in variables, name
        assert variables <= Settings.model_fields.keys(), name
        assert container["envFrom"] == [{"configMapRef": settings}], name
        assert pod["enableServiceLinks"] is False, name


def secrets_of(node: object) -> Iterator[tuple[str, str]]:
    """Every reference to a Secret's key."""
    if isinstance(node, list):
        for item in node:
            yield from secrets_of(item)
    elif isinstance(node, dict):
        if node.keys() >= {"name", "key"}:
            yield node["name"], node["key"]
        for value in node.values():
            yield from secrets_of(value)


def test_every_secret_is_in_the_example_of_secrets(
    rendered: list[Json], base: list[Json]
) -> None:
    documented = {
        (secret["metadata"]["name"], key)
        for secret in yaml.safe_load_all(SECRETS.read_text())
        for key in secret["stringData"]
    }
    needed = set(secrets_of([*base, *rendered]))
    needed.remove(("pgwake-db-app", "uri"))  # CloudNativePG makes it
    roles = find(rendered, "Cluster", "pgwake-db")["spec"]["managed"]["roles"]
    for role in roles:
        if role.get("login"):
            name = role["passwordSecret"]["name"]
            needed |= {(name, "username"), (name, "password")}

    assert needed == documented


def test_a_worker_s_pod_has_the_time_that_a_stop_can_take(base: list[Json]) -> None:
    settings = settings_of(base)
    killed_after = settings.grace + settings.cancel_grace + 2 * settings.query_timeout
    pod, _ = pods_of(base)["pgwake-worker"]

    reserve = pod["terminationGracePeriodSeconds"] - (
        killed_after + supervisor.LAST_SECONDS
    )

    assert settings.grace == Settings().grace
    assert 5 <= reserve <= 15


def test_a_pod_is_not_restarted_while_its_supervisor_may_still_mend_it(
    base: list[Json],
) -> None:
    settings = settings_of(base)
    probe = pods_of(base)["pgwake-worker"][1]["livenessProbe"]

    patience = probe["periodSeconds"] * probe["failureThreshold"]

    assert patience > settings.stall_seconds + supervisor.MAX_BACKOFF


def test_a_roll_out_brings_one_pod_at_a_time_and_takes_none_before(
    base: list[Json],
) -> None:
    spec = find(base, "Deployment", "pgwake-worker")["spec"]
    probe = pods_of(base)["pgwake-worker"][1]["readinessProbe"]

    assert spec["strategy"]["rollingUpdate"] == {"maxSurge": 1, "maxUnavailable": 0}
    assert spec["minReadySeconds"] > probe["periodSeconds"]


def test_probes_ask_what_is_served_on_the_one_port(rendered: list[Json]) -> None:
    port = {"name": "http", "containerPort": settings_of(rendered).http_port}
    assert settings_of(rendered).processes == 1
    for name in ("pgwake-worker", "pgwake-api"):
        _, container = pods_of(rendered)[name]
        assert container["ports"] == [port]
        probes = {
            field: probe["httpGet"]
            for field, probe in container.items()
            if field.endswith("Probe")
        }
        assert probes.keys() >= {"livenessProbe", "readinessProbe"}
        for field, asked in probes.items():
            path = "/readyz" if field == "readinessProbe" else "/healthz"
            assert asked == {"path": path, "port": "http"}, (name, field)


def test_selectors_find_their_pods_and_no_others(rendered: list[Json]) -> None:
    pods = {
        name: pod["metadata"]["labels"] for name, pod in pod_templates(rendered).items()
    }

    def selected(kind: str, name: str) -> set[str]:
        spec = find(rendered, kind, name)["spec"]
        selector = spec.get("podSelector") or spec["selector"]
        labels = selector.get("matchLabels", selector)
        return {pod for pod in pods if labels.items() <= pods[pod].items()}

    assert selected("Deployment", "pgwake-worker") == {"pgwake-worker"}
    assert selected("Deployment", "pgwake-api") == {"pgwake-api"}
    assert selected("PodDisruptionBudget", "pgwake-worker") == {"pgwake-worker"}
    assert selected("Service", "pgwake-api") == {"pgwake-api"}
    assert selected("NetworkPolicy", "pgwake-api") == {"pgwake-api"}
    assert selected("NetworkPolicy", "pgwake") == pods.keys()
    assert selected("PodMonitor", "pgwake") == pods.keys()


def test_ports_are_open_for_scrapes_and_the_database(rendered: list[Json]) -> None:
    policy = find(rendered, "NetworkPolicy", "pgwake")["spec"]
    monitor = find(rendered, "PodMonitor", "pgwake")["spec"]
    [service] = find(rendered, "Service", "pgwake-api")["spec"]["ports"]
    # A port without a protocol is TCP's.
    open_ports = {
        direction: [port for rule in policy[direction] for port in rule["ports"]]
        for direction in ("ingress", "egress")
    }

    assert open_ports["ingress"] == [{"port": "http"}]
    assert open_ports["egress"] == [
        {"port": 5432},
        {"port": 53, "protocol": "UDP"},
        {"port": 53},
    ]
    assert [end["port"] for end in monitor["podMetricsEndpoints"]] == ["http"]
    assert service["targetPort"] == "http"


def test_the_alert_rules_find_what_the_pod_monitor_scrapes(
    rendered: list[Json],
) -> None:
    monitor = find(rendered, "PodMonitor", "pgwake")["spec"]
    [relabeling] = monitor["podMetricsEndpoints"][0]["relabelings"]
    job = relabeling["replacement"].replace("$1", "jobs")

    patterns = re.findall(r'job=~"(.+?)"', (PROMETHEUS / "rules.yml").read_text())

    assert relabeling["targetLabel"] == "job"
    assert patterns
    assert all(re.fullmatch(pattern, job) for pattern in patterns)


def test_the_example_s_secrets_name_the_cluster_from_any_namespace(
    rendered: list[Json],
) -> None:
    cluster = find(rendered, "Cluster", "pgwake-db")["metadata"]
    secrets = list(yaml.safe_load_all(SECRETS.read_text()))

    hosts = {urlsplit(secret["stringData"]["url"]).hostname for secret in secrets}

    assert hosts == {f"{cluster['name']}-rw.{cluster['namespace']}"}


def test_with_cloudnativepg_every_pod_verifies_the_server(rendered: list[Json]) -> None:
    for name, (pod, container) in pods_of(rendered).items():
        variables = {entry["name"]: entry.get("value") for entry in container["env"]}
        assert variables["PGSSLMODE"] == "verify-full", name
        [mount] = [
            one for one in container["volumeMounts"] if one["name"] == "authority"
        ]
        assert variables["PGSSLROOTCERT"] == f"{mount['mountPath']}/ca.crt", name
        secrets = [volume.get("secret", {}) for volume in pod["volumes"]]
        assert "pgwake-db-ca" in [secret.get("secretName") for secret in secrets], name


class TestKeda:
    @pytest.fixture
    def ask(
        self, rendered: list[Json], role_url: Callable[[str], str]
    ) -> Callable[[str], float]:
        """Ask a trigger's query, as the role that it is asked by: how many pods."""
        scaled = find(rendered, "ScaledObject", "pgwake-worker")["spec"]
        triggers = {one["name"]: one["metadata"] for one in scaled["triggers"]}

        def ask(trigger: str) -> float:
            metadata = triggers[trigger]
            with psycopg.connect(role_url("app_worker")) as connection:
                [row] = connection.execute(metadata["query"]).fetchall()
            (value,) = row
            return float(value) / float(metadata["targetQueryValue"])

        return ask

    def test_an_empty_queue_asks_for_no_pods(self, ask: Callable[[str], float]) -> None:
        assert (ask("depth"), ask("age")) == (0, 0)

    def test_a_pod_for_as_many_jobs_as_it_has_slots_due_or_running(
        self, ask: Callable[[str], float], database: str
    ) -> None:
        with psycopg.connect(database, autocommit=True) as owner:
            owner.execute(
                "insert into pgwake.jobs (kind, run_at) select 'k', now() + delay"
                " from unnest('{0, 1h}'::interval[]) as delay, generate_series(1, %s)",
                [3 * DEFAULT_SLOTS],
            )
            owner.execute(
                "insert into pgwake.jobs (kind, queue) select 'k', 'paused'"
                " from generate_series(1, 100)"
            )
            owner.execute("select pgwake.pause_queue('paused')")
            owner.execute("select pgwake.claim_jobs('default', %s)", [DEFAULT_SLOTS])

        assert ask("depth") == 3

    def test_a_pod_for_each_minute_that_the_oldest_is_due(
        self, ask: Callable[[str], float], database: str
    ) -> None:
        with psycopg.connect(database, autocommit=True) as owner:
            owner.execute(
                "insert into pgwake.jobs (kind, queue, run_at) values"
                " ('k', 'default', now() - interval '5 minutes'),"
                " ('k', 'paused', now() - interval '1 day')"
            )
            owner.execute("select pgwake.pause_queue('paused')")

        assert 5 <= ask("age") < 6

    def test_an_apply_leaves_the_number_of_pods_to_keda(
        self, rendered: list[Json], base: list[Json]
    ) -> None:
        scaled = find(rendered, "ScaledObject", "pgwake-worker")["spec"]

        assert scaled["scaleTargetRef"] == {"name": "pgwake-worker"}
        # Schedules fire only where a worker runs.
        assert scaled["minReplicaCount"] >= 1
        assert "replicas" not in find(rendered, "Deployment", "pgwake-worker")["spec"]
        assert "replicas" in find(base, "Deployment", "pgwake-worker")["spec"]
