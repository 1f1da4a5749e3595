"""The dashboard: python deploy/grafana/dashboard.py writes pgwake.json anew.

It is written as code since a panel is three lines of meaning in a hundred of JSON.
Whoever only uses it imports the JSON, and needs none of this.
"""

import json
from itertools import count
from pathlib import Path
from typing import Any, TypeAlias

Json: TypeAlias = dict[str, Any]

FILE = Path(__file__).with_name("pgwake.json")
WIDTH = 24  # of Grafana's grid
DATASOURCE = {"type": "prometheus", "uid": "${datasource}"}

# Of the whole database, which each process shows; and of the processes.
QUEUES = 'job="$job", queue=~"$queue"'
DATABASE = 'job="$job"'
PROCESSES = 'job="$job", instance=~"$instance"'
JOBS = f'{PROCESSES}, queue=~"$queue"'

Target: TypeAlias = tuple[str, str]  # an expression, and the legend of its series


def by_queue(metric: str) -> str:
    """What stands in each queue, whoever of the processes shows it."""
    return f"max by (queue) ({metric}{{{QUEUES}}})"


def rate_by_queue(metric: str) -> str:
    """What a counter of the database rises by, a second."""
    return f"max by (queue) (rate({metric}{{{QUEUES}}}[$__rate_interval]))"


def rate(metric: str, *by: str) -> str:
    """What the processes count together, a second."""
    return f"sum by ({', '.join(by)}) (rate({metric}{{{JOBS}}}[$__rate_interval]))"


def quantiles(metric: str, *by: str, labels: str = JOBS) -> list[Target]:
    """The median and the 99th of a hundred, of a histogram."""
    groups = ", ".join(["le", *by])
    rates = f"sum by ({groups}) (rate({metric}_bucket{{{labels}}}[$__rate_interval]))"
    legend = "".join(f" {{{{{label}}}}}" for label in by)
    return [
        (f"histogram_quantile({quantile}, {rates})", f"{name}{legend}")
        for quantile, name in ((0.5, "p50"), (0.99, "p99"))
    ]


def panel(
    kind: str, title: str, description: str, unit: str, *targets: Target, **more: Any
) -> Json:
    """Return a panel without its place."""
    defaults = {"unit": unit, "min": 0, **more.pop("defaults", {})}
    return {
        "type": kind,
        "title": title,
        "description": description,
        "datasource": DATASOURCE,
        "fieldConfig": {"defaults": defaults, "overrides": more.pop("overrides", [])},
        "options": more.pop("options", {}),
        "targets": [
            {
                "refId": chr(ord("A") + n),
                "datasource": DATASOURCE,
                "expr": expression,
                "legendFormat": legend,
                "range": kind != "table",
                "instant": kind == "table",
                **({"format": kind} if kind in {"table", "heatmap"} else {}),
            }
            for n, (expression, legend) in enumerate(targets)
        ],
        **more,
    }


def graph(title: str, description: str, unit: str, *targets: Target) -> Json:
    """Return lines over time."""
    return panel(
        "timeseries",
        title,
        description,
        unit,
        *targets,
        options={
            "legend": {
                "calcs": [],
                "displayMode": "list",
                "placement": "bottom",
                "showLegend": True,
            },
            "tooltip": {"mode": "multi", "sort": "desc"},
        },
        defaults={"custom": {"lineWidth": 1, "fillOpacity": 10, "showPoints": "never"}},
    )


def stat(
    title: str,
    description: str,
    unit: str,
    expression: str,
    *steps: tuple[float | None, str],
    texts: dict[str, str] | None = None,
) -> Json:
    """Return one number; steps are from which value on it has which colour."""
    thresholds = [{"value": value, "color": color} for value, color in steps]
    mappings = [
        {
            "type": "value",
            "options": {value: {"text": text} for value, text in (texts or {}).items()},
        }
    ]
    return panel(
        "stat",
        title,
        description,
        unit,
        (expression, title),
        options={
            "colorMode": "value",
            "graphMode": "area",
            "reduceOptions": {"calcs": ["lastNotNull"], "fields": "", "values": False},
        },
        defaults={
            "thresholds": {
                "mode": "absolute",
                "steps": thresholds or [{"value": None, "color": "green"}],
            },
            **({"mappings": mappings} if texts else {}),
        },
    )


def overview() -> list[Json]:
    """Return what tells at a glance whether all is well."""
    return [
        stat(
            "Processes",
            "Processes that answer their scrapes, workers and servers of the API.",
            "none",
            f"count(pgwake_build_info{{{PROCESSES}}})",
            (None, "red"),
            (1, "green"),
        ),
        stat(
            "Database",
            "Whether all of them reach the database.",
            "none",
            f"min(pgwake_database_up{{{PROCESSES}}})",
            (None, "red"),
            (1, "green"),
            texts={"0": "down", "1": "up"},
        ),
        stat(
            "Due jobs",
            "Jobs that could run now, were there room for them.",
            "short",
            f"sum({by_queue('pgwake_queue_pending_jobs')})",
        ),
        stat(
            "Oldest due job",
            "How long the longest-due job has been due. At 5 min there is an alert.",
            "s",
            f"max({by_queue('pgwake_queue_oldest_pending_age_seconds')})",
            (None, "green"),
            (60, "orange"),
            (300, "red"),
        ),
        stat(
            "Completed",
            "Jobs completed a second, by whomever.",
            "ops",
            f"sum({rate_by_queue('pgwake_queue_jobs_completed_total')})",
        ),
        stat(
            "Dead letters",
            "Jobs that have used up their attempts, until retried or purged.",
            "short",
            f"sum({by_queue('pgwake_queue_failed_jobs')})",
            (None, "green"),
            (1, "orange"),
        ),
        stat(
            "Live workers",
            "Worker processes that have reported themselves within 30 s, of the queue "
            "that has most.",
            "none",
            f"max({by_queue('pgwake_queue_workers')})",
            (None, "red"),
            (1, "green"),
        ),
        stat(
            "Paused queues",
            "Queues that nobody may claim from. They don't alert.",
            "none",
            f"sum({by_queue('pgwake_queue_paused')})",
            (None, "green"),
            (1, "blue"),
        ),
    ]


def queues() -> list[Json]:
    """Return what stands in the queues and goes through them."""
    columns = {
        "Due": "pgwake_queue_pending_jobs",
        "Not yet due": "pgwake_queue_scheduled_jobs",
        "Waiting": "pgwake_queue_waiting_jobs",
        "Running": "pgwake_queue_running_jobs",
        "Dead letters": "pgwake_queue_failed_jobs",
        "Oldest due": "pgwake_queue_oldest_pending_age_seconds",
        "Live workers": "pgwake_queue_workers",
        "Paused": "pgwake_queue_paused",
    }
    names = {f"Value #{chr(ord('A') + n)}": name for n, name in enumerate(columns)}
    table = panel(
        "table",
        "The queues now",
        "A row a queue, as pgwake stats shows them.",
        "short",
        *((by_queue(metric), name) for name, metric in columns.items()),
        transformations=[
            {"id": "merge", "options": {}},
            {
                "id": "organize",
                "options": {
                    "excludeByName": {"Time": True},
                    "renameByName": {"queue": "Queue", **names},
                },
            },
        ],
        overrides=[
            {
                "matcher": {"id": "byName", "options": "Oldest due"},
                "properties": [{"id": "unit", "value": "s"}],
            },
            {
                "matcher": {"id": "byName", "options": "Paused"},
                "properties": [{"id": "unit", "value": "bool_yes_no"}],
            },
        ],
        options={"showHeader": True, "cellHeight": "sm"},
    )
    return [
        graph(
            "Due",
            "Jobs that could run now: what rises for longer than a burst is too much.",
            "short",
            (by_queue("pgwake_queue_pending_jobs"), "{{queue}}"),
        ),
        graph(
            "Oldest due job",
            "How long the longest-due job has been due; what people feel.",
            "s",
            (by_queue("pgwake_queue_oldest_pending_age_seconds"), "{{queue}}"),
        ),
        graph(
            "Throughput",
            "Jobs a second through the queues chosen, counted in the database: SQL "
            "consumers are in it.",
            "ops",
            *(
                (f"sum({rate_by_queue(f'pgwake_queue_jobs_{what}_total')})", what)
                for what in ("enqueued", "completed", "failed")
            ),
        ),
        graph(
            "Completed",
            "Jobs completed a second, by queue.",
            "ops",
            (rate_by_queue("pgwake_queue_jobs_completed_total"), "{{queue}}"),
        ),
        graph(
            "Running, not yet due, waiting",
            "Running: claimed. Not yet due: scheduled or to be retried. Waiting: for "
            "parents, or for room under a concurrency key.",
            "short",
            *(
                (f"sum({by_queue(f'pgwake_queue_{what}_jobs')})", what)
                for what in ("running", "scheduled", "waiting")
            ),
        ),
        table,
    ]


def latency() -> list[Json]:
    """Return how long jobs wait and run."""
    bucket = f"pgwake_job_queue_seconds_bucket{{{JOBS}}}"
    heatmap = panel(
        "heatmap",
        "Queue time",
        "How many jobs waited how long, from being due to being claimed.",
        "none",
        (f"sum by (le) (increase({bucket}[$__rate_interval]))", "{{le}}"),
        options={
            "calculate": False,
            "cellGap": 1,
            "color": {"mode": "scheme", "scheme": "Oranges", "steps": 64},
            "yAxis": {"unit": "s", "axisPlacement": "left"},
            "tooltip": {"mode": "single", "yHistogram": False},
        },
    )
    return [
        graph(
            "Queue time by kind",
            "From being due to being claimed; a kind without jobs then is absent.",
            "s",
            *quantiles("pgwake_job_queue_seconds", "kind"),
        ),
        graph(
            "Execution by kind",
            "The handler's run, whatever came of it.",
            "s",
            *quantiles("pgwake_job_execution_seconds", "kind"),
        ),
        heatmap,
        graph(
            "Claims and ends",
            "How long the worker's two statements take: a claim, and a batch of ends.",
            "s",
            *(
                (expression, f"{what}, {legend}")
                for what in ("claim", "flush")
                for expression, legend in quantiles(
                    f"pgwake_{what}_seconds", labels=PROCESSES
                )
            ),
        ),
    ]


def workers() -> list[Json]:
    """Return what the processes do."""
    age = "time() - max by (instance, queue) (pgwake_claim_succeeded_timestamp_seconds"
    return [
        graph(
            "Slots busy",
            "Jobs that run, and how many might at once: full slots and due jobs ask "
            "for more processes.",
            "short",
            (f"sum by (queue) (pgwake_slots_busy{{{JOBS}}})", "busy {{queue}}"),
            (f"sum by (queue) (pgwake_slots{{{JOBS}}})", "slots {{queue}}"),
        ),
        graph(
            "Loop lag",
            "How late each main loop answered: async handlers that block show here.",
            "s",
            (f"pgwake_loop_lag_seconds{{{PROCESSES}}}", "{{instance}}"),
        ),
        graph(
            "Listeners",
            "Processes that listen, and notify locks held: a queue where one sleeps "
            "has one. "
            "A process that does not listen polls.",
            "short",
            (f"sum(pgwake_listener_up{{{PROCESSES}}})", "listening"),
            (
                f"sum by (queue) (pgwake_notify_lock_held{{{JOBS}}})",
                "notify lock {{queue}}",
            ),
        ),
        graph(
            "Wake-ups by cause",
            "Looks at a queue a second. notify: an insert notified; lock: on taking "
            "the notify lock; timer: a job came due; poll: the interval was over.",
            "ops",
            (rate("pgwake_wakeups_total", "cause"), "{{cause}}"),
        ),
        graph(
            "Claims",
            "Jobs claimed a second by queue, and the statements that claimed them.",
            "ops",
            (rate("pgwake_jobs_claimed_total", "queue"), "jobs {{queue}}"),
            (
                f"sum(rate(pgwake_claim_seconds_count{{{PROCESSES}}}[$__rate_interval]))",
                "statements",
            ),
        ),
        graph(
            "Since the last claim",
            "How long ago a claim last succeeded; of use while jobs are due: queues "
            "that are idle, or have all slots busy, make none.",
            "s",
            (f"{age}{{{JOBS}}})", "{{instance}} {{queue}}"),
        ),
        graph(
            "Memory",
            "Resident memory of each process.",
            "bytes",
            (f"process_resident_memory_bytes{{{PROCESSES}}}", "{{instance}}"),
        ),
        graph(
            "Processor",
            "Cores that each process uses.",
            "percentunit",
            (
                f"rate(process_cpu_seconds_total{{{PROCESSES}}}[$__rate_interval])",
                "{{instance}}",
            ),
        ),
    ]


def database() -> list[Json]:
    """Return what the server and the upkeep show."""
    found = f"pgwake_findings{{{DATABASE}}}"
    ticks = f"pgwake_schedule_ticks_total{{{PROCESSES}}}"
    upkeep = f"pgwake_upkeep_succeeded_timestamp_seconds{{{DATABASE}}}"
    return [
        graph(
            "Notification queue",
            "How full the server's queue of notifications is; near nothing while all "
            "listeners read.",
            "percentunit",
            (f"max(pgwake_notification_queue_usage{{{DATABASE}}})", "used"),
        ),
        graph(
            "Oldest snapshot",
            "Age of the oldest transaction that keeps dead rows from being removed.",
            "s",
            (f"max(pgwake_oldest_snapshot_age_seconds{{{DATABASE}}})", "age"),
        ),
        graph(
            "Findings of the doctor",
            "What is wrong, by severity and check; pgwake doctor says what to do.",
            "none",
            (
                f"max by (severity, check) ({found}) or vector(0)",
                "{{severity}} {{check}}",
            ),
        ),
        graph(
            "Since the last upkeep",
            "How long ago each step last succeeded somewhere. sample: the figures of "
            "the queues on this page.",
            "s",
            (f"time() - max by (step) ({upkeep})", "{{step}}"),
        ),
        graph(
            "Schedules",
            "Ticks a second by what became of them, and how late the latest due is.",
            "none",
            (f"sum by (outcome) (rate({ticks}[$__rate_interval]))", "{{outcome}}, 1/s"),
            (f"max(pgwake_schedule_lag_seconds{{{DATABASE}}})", "late, in seconds"),
        ),
    ]


def failures() -> list[Json]:
    """Return what went wrong."""
    return [
        graph(
            "Failed attempts by kind",
            "Attempts a second that failed: to be retried, or for good.",
            "ops",
            (rate("pgwake_jobs_retried_total", "kind"), "retried {{kind}}"),
            (rate("pgwake_jobs_failed_total", "kind"), "dead letter {{kind}}"),
        ),
        graph(
            "Dead letters",
            "Jobs that have used up their attempts, by queue.",
            "short",
            (by_queue("pgwake_queue_failed_jobs"), "{{queue}}"),
        ),
        graph(
            "Crashes and lost leases",
            "Jobs a second taken from dead or silent workers, ends that were "
            "refused since the lease was lost, and jobs that expired.",
            "ops",
            (rate("pgwake_jobs_crashed_total", "kind"), "crashed {{kind}}"),
            (rate("pgwake_leases_lost_total", "kind"), "lease lost {{kind}}"),
            (rate("pgwake_jobs_expired_total", "kind"), "expired {{kind}}"),
        ),
        graph(
            "Given back, cancelled",
            "Jobs a second given back unburnt, by reason: unknown_kind says that no "
            "worker here handles them. And those cancelled.",
            "ops",
            (rate("pgwake_jobs_released_total", "reason"), "{{reason}}"),
            (rate("pgwake_jobs_cancelled_total"), "cancelled"),
        ),
    ]


def variable(name: str, query: str, **more: Any) -> Json:
    """Return a variable with the values of a label."""
    return {
        "name": name,
        "type": "query",
        "datasource": DATASOURCE,
        "query": {"query": query, "refId": name},
        "refresh": 2,
        "sort": 1,
        "current": {},
        **more,
    }


def variables() -> list[Json]:
    """Return what can be chosen at the top."""
    many = {
        "multi": True,
        "includeAll": True,
        "allValue": ".+",
        "current": {"text": ["All"], "value": ["$__all"]},
    }
    return [
        {
            "name": "datasource",
            "label": "Data source",
            "type": "datasource",
            "query": "prometheus",
            "current": {},
        },
        variable("job", "label_values(pgwake_build_info, job)", label="Database"),
        variable(
            "instance",
            'label_values(pgwake_build_info{job="$job"}, instance)',
            label="Process",
            **many,
        ),
        variable(
            "queue",
            'label_values(pgwake_queue_pending_jobs{job="$job"}, queue)',
            label="Queue",
            **many,
        ),
    ]


# A row's title, its panels, how many stand beside each other, how high they are.
ROWS = (
    ("Overview", overview(), 8, 4),
    ("Queues", queues(), 2, 8),
    ("Latency", latency(), 2, 8),
    ("Workers", workers(), 2, 8),
    ("Database", database(), 2, 8),
    ("Failures", failures(), 2, 8),
)


def panels() -> list[Json]:
    """Return all panels in their places."""
    placed: list[Json] = []
    ids, y = count(1), 0
    for title, row, across, height in ROWS:
        placed.append(
            {
                "id": next(ids),
                "type": "row",
                "title": title,
                "collapsed": False,
                "gridPos": {"x": 0, "y": y, "w": WIDTH, "h": 1},
                "panels": [],
            }
        )
        y += 1
        width = WIDTH // across
        for n, one in enumerate(row):
            x = n % across * width
            place = {"x": x, "y": y + n // across * height, "w": width, "h": height}
            placed.append({"id": next(ids), **one, "gridPos": place})
        y += -(-len(row) // across) * height
    return placed


def dashboard() -> str:
    """Return the dashboard's JSON."""
    content = {
        "uid": "pgwake",
        "title": "pgwake",
        "description": "Queues, workers and database of pgwake.",
        "tags": ["pgwake", "postgresql"],
        "schemaVersion": 42,
        "version": 1,
        "editable": True,
        "graphTooltip": 1,
        "refresh": "30s",
        "time": {"from": "now-1h", "to": "now"},
        "timezone": "browser",
        "templating": {"list": variables()},
        "annotations": {"list": []},
        "links": [],
        "panels": panels(),
    }
    return json.dumps(content, indent=2) + "\n"


if __name__ == "__main__":
    FILE.write_text(dashboard())
