"""The rules for Prometheus: promtool runs them, and each alert is what it should be."""

import re
import subprocess
from pathlib import Path

import yaml

from full.deploy.monitoring import PROMETHEUS, Json, alerts, records_of, rules
from support import CHECKOUT
from support.readme import anchors
from support.tools import need

INTERVAL = 15


def promtool(*arguments: str | Path) -> str:
    need("promtool")
    done = subprocess.run(
        ["promtool", *map(str, arguments)],
        check=False,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    assert done.returncode == 0, done.stdout
    return done.stdout


def test_the_configuration_and_the_rules_are_valid() -> None:
    said = promtool("check", "config", "--lint-fatal", PROMETHEUS / "prometheus.yml")

    assert f"{len(rules())} rules found" in said


def test_each_alert_fires_at_its_condition_and_not_at_its_edge() -> None:
    promtool("test", "rules", PROMETHEUS / "rules_test.yml")


def test_each_alert_is_tested() -> None:
    tested = set(
        re.findall(r'alertname="(\w+)"', (PROMETHEUS / "rules_test.yml").read_text())
    )

    assert tested == {alert["alert"] for alert in alerts()}


def test_each_alert_says_how_bad_it_is_what_it_means_and_where_to_read_on() -> None:
    entries = anchors((CHECKOUT / "deploy" / "RUNBOOK.md").read_text())
    for alert in alerts():
        name, said = alert["alert"], alert["annotations"]
        assert alert["labels"]["severity"] in {"warning", "critical"}, name
        assert said["summary"].strip(), name
        assert said["description"].strip(), name
        page, _, anchor = said["runbook_url"].partition("#")
        assert page == "deploy/RUNBOOK.md"
        assert anchor == name.lower()
        assert anchor in entries, f"the runbook has no entry for {name}"


def test_rules_read_only_what_other_rules_record() -> None:
    recorded = {rule["record"] for rule in rules() if "record" in rule}
    read = set().union(*(records_of(rule["expr"]) for rule in rules()))

    assert read <= recorded


def series(name: str, instance: str, values: str, labels: str = "") -> Json:
    labels = f'job="pgwake", instance="{instance}"{labels}'
    return {"series": f"{name}{{{labels}}}", "values": values}


def test_an_alert_holds_with_fifty_processes_and_after_half_of_them_have_died(
    tmp_path: Path,
) -> None:
    # Each shows the same queue, as it was when it last looked: up to 10 s ago.
    shown = []
    for n in range(50):
        lives = "x80" if n % 2 else "x40 stale"
        name = f"{n:02d}"
        queue = ', queue="default"'
        shown += [
            series("up", name, f"1{lives}"),
            series("pgwake_queue_pending_jobs", name, f"{1000 - n}{lives}", queue),
            series(
                "pgwake_queue_oldest_pending_age_seconds",
                name,
                f"{400 + n % 10}{lives}",
                queue,
            ),
            series("pgwake_queue_workers", name, f"50{lives}", queue),
            series("pgwake_queue_jobs_failed_total", name, f"7+1{lives}", queue),
        ]
    firing = 'ALERTS{alertname="PgwakeJobsTooOld", alertstate="firing"}'

    def count_of(query: str, at: str, **counts: int) -> Json:
        return {
            "expr": query,
            "eval_time": at,
            "exp_samples": [
                {"labels": f'{{alertname="{name}"}}', "value": count}
                for name, count in counts.items()
            ],
        }

    looks = [
        count_of(
            'count by (alertname) (ALERTS{alertstate="firing"})',
            at,
            PgwakeJobsTooOld=1,
            PgwakeDeadLetters=1,
        )
        for at in ("5m", "15m")
    ]
    # From a minute on it is there at each evaluation.
    looks.append(
        {
            "expr": f"sum(count_over_time({firing}[15m]))",
            "eval_time": "16m",
            "exp_samples": [{"labels": "{}", "value": 15 * 60 / INTERVAL + 1}],
        }
    )
    # Not fifty times 15 a quarter of an hour: what a process shows is of the database.
    looks.append(
        {
            "expr": "job_queue:pgwake_queue_jobs_failed:rate5m * 60",
            "eval_time": "9m",
            "exp_samples": [
                {"labels": '{job="pgwake", queue="default"}', "value": 60 / INTERVAL}
            ],
        }
    )
    test = {
        "interval": f"{INTERVAL}s",
        "input_series": shown,
        "promql_expr_test": looks,
    }
    file = tmp_path / "fifty.yml"
    file.write_text(
        yaml.safe_dump(
            {
                "rule_files": [str(PROMETHEUS / "rules.yml")],
                "evaluation_interval": f"{INTERVAL}s",
                "group_eval_order": _groups(),
                "tests": [test],
            }
        )
    )

    promtool("test", "rules", file)


def _groups() -> list[str]:
    content = yaml.safe_load((PROMETHEUS / "rules.yml").read_text())
    return [group["name"] for group in content["groups"]]
