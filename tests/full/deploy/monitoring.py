"""What deploy/ has for Prometheus and Grafana, as data."""

import json
import re
from typing import Any, TypeAlias

import yaml

from support import CHECKOUT

Json: TypeAlias = dict[str, Any]

PROMETHEUS = CHECKOUT / "deploy" / "prometheus"
GRAFANA = CHECKOUT / "deploy" / "grafana"

_METRIC = re.compile(r"(?<![\w:])((?:pgwake|process)_\w+)")
_RECORD = re.compile(r"\b(job_\w+:\w+:\w+)")


def rules() -> list[Json]:
    """All rules, of all groups."""
    groups = yaml.safe_load((PROMETHEUS / "rules.yml").read_text())["groups"]
    return [rule for group in groups for rule in group["rules"]]


def alerts() -> list[Json]:
    """The rules that alert."""
    return [rule for rule in rules() if "alert" in rule]


def dashboard() -> Json:
    """The dashboard, as whoever imports it gets it."""
    content: Json = json.loads((GRAFANA / "pgwake.json").read_text())
    return content


def panels() -> list[Json]:
    """The panels that ask for something."""
    return [panel for panel in dashboard()["panels"] if panel["type"] != "row"]


def queries(**variables: str) -> list[tuple[str, str]]:
    """Each panel's queries, with their variables filled in: where, and what."""
    found = []
    for panel in panels():
        for target in panel["targets"]:
            query = target["expr"]
            for name, value in variables.items():
                query = query.replace(f"${name}", value)
            found.append((f"{panel['title']}, {target['legendFormat']}", query))
    return found


def metrics_of(expression: str) -> set[str]:
    """The metrics that an expression reads, by their families' names."""
    return {
        re.sub(r"_(bucket|count|sum)$", "", name)
        for name in _METRIC.findall(expression)
    }


def records_of(expression: str) -> set[str]:
    """The recorded series that an expression reads."""
    return set(_RECORD.findall(expression))
