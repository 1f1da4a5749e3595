"""The dashboard: as its code makes it, readable, and made of queries that parse."""

import itertools
import runpy
from typing import Any

import promql_parser
import yaml

from full.deploy.monitoring import GRAFANA, Json, dashboard, panels, queries

VARIABLES = {
    "job": "pgwake",
    "instance": ".+",
    "queue": ".+",
    "__rate_interval": "1m",
}


def test_the_dashboard_is_what_its_code_makes() -> None:
    made = runpy.run_path(str(GRAFANA / "dashboard.py"))["dashboard"]()

    assert (GRAFANA / "pgwake.json").read_text() == made, (
        "run: python deploy/grafana/dashboard.py"
    )


def test_each_panel_says_what_it_shows_and_in_which_unit() -> None:
    assert len(panels()) > 30
    for panel in panels():
        assert panel["description"].endswith("."), panel["title"]
        assert panel["fieldConfig"]["defaults"]["unit"], panel["title"]
        # None of Angular's, which Grafana has thrown out.
        assert panel["type"] in {"timeseries", "stat", "table", "heatmap"}
        assert panel["targets"], panel["title"]


def test_no_panel_covers_another_and_each_has_a_name_of_its_own() -> None:
    placed = [panel["gridPos"] for panel in dashboard()["panels"]]
    for one, other in itertools.combinations(placed, 2):
        apart = (
            one["x"] + one["w"] <= other["x"]
            or other["x"] + other["w"] <= one["x"]
            or one["y"] + one["h"] <= other["y"]
            or other["y"] + other["h"] <= one["y"]
        )
        assert apart, (one, other)
    ids = [panel["id"] for panel in dashboard()["panels"]]
    assert len(set(ids)) == len(ids)


def test_every_query_parses_and_leaves_no_variable() -> None:
    for where, query in queries(**VARIABLES):
        assert "$" not in query, where
        promql_parser.parse(query)


def test_every_query_follows_the_choices_made_at_the_top() -> None:
    names = {variable["name"] for variable in dashboard()["templating"]["list"]}

    assert names == {"datasource", "job", "instance", "queue"}
    for where, query in queries():
        assert 'job="$job"' in query, where


def _datasources(content: Any) -> list[Json]:
    """Each data source that stands anywhere."""
    if isinstance(content, list):
        return [found for one in content for found in _datasources(one)]
    if not isinstance(content, dict):
        return []
    here = [content["datasource"]] if "datasource" in content else []
    return here + [found for one in content.values() for found in _datasources(one)]


def test_no_data_source_is_fixed() -> None:
    used = _datasources(dashboard())

    assert used
    assert all(one["uid"] == "${datasource}" for one in used)


def test_grafana_is_told_where_the_dashboard_and_prometheus_are() -> None:
    folder = GRAFANA / "provisioning"
    source = yaml.safe_load((folder / "datasources" / "pgwake.yaml").read_text())
    provider = yaml.safe_load((folder / "dashboards" / "pgwake.yaml").read_text())

    assert [one["type"] for one in source["datasources"]] == ["prometheus"]
    assert [one["type"] for one in provider["providers"]] == ["file"]
