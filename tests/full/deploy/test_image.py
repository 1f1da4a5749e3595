"""What of the image, the compose file and the unit can be known without running them.

python -m tests.lab.containers.image runs them.
"""

import configparser
import re
import subprocess
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from lab.containers.podman import POSTGRES, PROMETHEUS, PYTHON
from pgwake.errors import EXIT_CONFIG
from pgwake.settings import Settings
from pgwake.supervise.supervisor import LAST_SECONDS
from pgwake.version import __version__
from support import CHECKOUT
from support.tools import need

DEPLOY = CHECKOUT / "deploy"
DOCKERFILE = DEPLOY / "Dockerfile"
COMPOSE = DEPLOY / "compose.yaml"
UNIT = DEPLOY / "systemd" / "pgwake.service"

PINNED = re.compile(
    r"^([\w.-]+)==(\S+)[^\n]*((?:\n    --hash=sha256:\w{64}[ \\]*)*)", re.MULTILINE
)


def _pins(name: str) -> dict[str, str]:
    text = (DEPLOY / name).read_text()
    pins: dict[str, str] = {}
    for package, version, hashes in PINNED.findall(text):
        assert hashes, f"{package} has no hash"
        pins[canonicalize_name(package)] = version
    assert len(pins) == len(re.findall(r"^[^\s#]", text, re.MULTILINE)), (
        "a line is no pin"
    )
    return pins


def _compose() -> Any:
    return yaml.safe_load(COMPOSE.read_text())


def _service() -> configparser.SectionProxy:
    parser = configparser.ConfigParser(interpolation=None)
    parser.optionxform = str  # type: ignore[assignment,method-assign] # case matters
    parser.read_string(UNIT.read_text())
    return parser["Service"]


def _run(*words: str | Path) -> str:
    done = subprocess.run(
        words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False
    )
    assert done.returncode == 0, done.stdout
    return done.stdout


def test_hadolint_finds_nothing_in_the_dockerfile() -> None:
    assert not _run("hadolint", DOCKERFILE)


def test_the_compose_file_fits_the_specification() -> None:
    _run("check-jsonschema", "--builtin-schema", "vendor.compose-spec", COMPOSE)


@pytest.mark.parametrize(
    ("pinned", "others"),
    [("requirements.txt", "requirements.in"), ("requirements-build.txt", None)],
)
def test_what_the_image_installs_fits_what_pyproject_asks_for(
    pinned: str, others: str | None
) -> None:
    pyproject = tomllib.loads((CHECKOUT / "pyproject.toml").read_text())
    project = pyproject["project"]
    if others:
        extras = project["optional-dependencies"]
        text = (DEPLOY / others).read_text()
        lines = [line for line in text.splitlines() if not line.startswith("#")]
        wanted = [*project["dependencies"], *extras["fast"], *extras["otel"], *lines]
    else:
        wanted = pyproject["build-system"]["requires"]
    pins = _pins(pinned)
    for requirement in map(Requirement, wanted):
        version = pins[canonicalize_name(requirement.name)]
        assert requirement.specifier.contains(version), f"{requirement}: {version}"


def test_every_file_names_this_version() -> None:
    named = re.compile(r"\bpgwake:(\d[\w.]*)|image\.version=\"([^\"]+)\"")
    found = {
        (path.name, name or label)
        for path in DEPLOY.rglob("*")
        if path.is_file() and path.suffix != ".png"
        for name, label in named.findall(path.read_text())
    }
    assert {name for name, _ in found} >= {"Dockerfile", "compose.yaml"}
    assert {version for _, version in found} == {__version__}


def test_the_images_that_stand_in_are_those_that_are_named() -> None:
    images = {service["image"] for service in _compose()["services"].values()}
    assert {POSTGRES, PROMETHEUS} <= images
    assert f"ARG BASE={PYTHON}\n" in DOCKERFILE.read_text()


def test_nothing_leaves_the_checkout_but_what_the_image_is_built_of() -> None:
    text = (CHECKOUT / ".dockerignore").read_text()
    first, *others = [line for line in text.splitlines() if not line.startswith("#")]
    assert first == "*"
    copies = re.findall(
        r"^COPY (?!--from)(.+) \S+$", DOCKERFILE.read_text(), re.MULTILINE
    )
    sources = {source for line in copies for source in line.split()}
    assert sources == {line[1:] for line in others if line.startswith("!")}


def test_systemd_finds_nothing_in_the_unit(tmp_path: Path) -> None:
    there = re.sub(
        r"^ExecStart=\S+", "ExecStart=/bin/true", UNIT.read_text(), flags=re.MULTILINE
    )
    (tmp_path / UNIT.name).write_text(there)
    assert not _run("systemd-analyze", "verify", "--man=no", tmp_path / UNIT.name)


def test_systemd_finds_the_unit_exposed_to_less_than_two_of_ten() -> None:
    _run("systemd-analyze", "security", "--offline=yes", "--threshold=20", UNIT)


def test_a_stop_is_given_the_time_that_it_can_take() -> None:
    grace, cancel_grace, query_timeout = (
        Settings.model_fields[name].default
        for name in ("grace", "cancel_grace", "query_timeout")
    )
    longest = grace + cancel_grace + 2 * query_timeout + LAST_SECONDS
    assert longest < int(_service()["TimeoutStopSec"])
    period = _compose()["services"]["worker"]["stop_grace_period"]
    assert longest < int(period.removesuffix("s"))


def test_systemd_leaves_worker_processes_to_their_supervisor() -> None:
    service = _service()
    assert service["KillMode"] == "mixed", "a second SIGTERM ends a process at once"
    assert service["OOMPolicy"] == "continue", "one process's death is not the unit's"
    assert service["Restart"] == "always"
    assert int(service["RestartPreventExitStatus"]) == EXIT_CONFIG


def test_variables_of_the_examples_are_settings() -> None:
    text = (DEPLOY / "systemd" / "pgwake.env").read_text()
    names = set(re.findall(r"\bPGWAKE_[A-Z_]+(?==)", text))
    worker = _compose()["services"]["worker"]
    assert names
    assert worker["environment"].keys()
    for name in names | worker["environment"].keys():
        assert name.removeprefix("PGWAKE_").lower() in Settings.model_fields, name


def test_the_compose_file_is_reached_from_its_own_machine_alone() -> None:
    services = _compose()["services"].values()
    ports = [port for service in services for port in service.get("ports", [])]
    assert ports
    assert all(port.startswith("127.0.0.1:") for port in ports), ports


def test_prometheus_has_the_same_rules_and_job_in_the_compose_file() -> None:
    folder = DEPLOY / "prometheus"
    need("promtool")
    _run("promtool", "check", "config", folder / "compose.yml")
    composed, plain = (
        yaml.safe_load((folder / name).read_text())
        for name in ("compose.yml", "prometheus.yml")
    )
    for content in (composed, plain):
        (scrape,) = content.pop("scrape_configs")
        assert scrape["job_name"] == "pgwake"
    assert composed == plain
