"""What every command does with what can't be meant: it says so, and changes nothing."""

import shlex

import pytest

from pgwake import ConfigurationError, Registry, Settings
from pgwake.engine.worker import import_handlers
from pgwake.kinds.builtin import register
from support import Connection
from support.sql.helpers import job_in
from support.worker.processes import Answer, Pgwake

HANDLERS = "run --import support.worker.handlers"

# By exit code, what is typed, and what is said of it. The usage is wrong:
USAGE = {
    "enqueue": "KIND",
    "nothing": "nothing",
    "show one": "ID",
    "show 0": "ID",
    "show 99999999999999999999": "9223372036854775807",
    "enqueue mail --delay soon": "--delay",
    "enqueue mail --priority 101": "--priority",
    "enqueue mail --priority 99999999999": "--priority",
    "enqueue mail --max-attempts 0": "--max-attempts",
    "enqueue mail --depends-on a": "Invalid value for '--depends-on'",
    "enqueue mail --on-conflict ask": "'return', 'replace', 'raise'",
    "enqueue mail --on-parent-failure ask": "'cancel', 'run'",
    "list --status gone": "--status",
    "list --limit 0": "--limit",
    "list --before x": "--before",
    "list --before 99999999999999999999": "--before",
    "peek --limit 1001": "--limit",
    "explain": "ID",
    "explain x": "ID",
    "explain -1": "-1",
    "drain": "QUEUE",
    "drain x --timeout -1": "--timeout",
    "drain x --timeout nan": "--timeout",
    "drain x --timeout inf": "--timeout",
    "drain x --timeout 1e400": "--timeout",
    "wait 1 --timeout -1": "--timeout",
    "wait 1 --timeout nan": "--timeout",
    "wait 1 --timeout inf": "--timeout",
    "wait 1 --timeout 1e400": "--timeout",
    "pause": "QUEUE",
    "pause x --for soon": "--for",
    "pause x --until 2199-01-01T00:00Z --for 1": "one of them",
    "limit x --max-running many": "--max-running many: use a number, or none",
    "limit x --key k": "--key needs --key-limit",
    "limit x --key k --rate 1": "--key needs --key-limit",
    "retry": "name jobs by their ids",
    "retry one": "ID",
    "retry 99999999999999999999": "ID",
    "retry 1 --kind a": "with ids there are no filters",
    "retry 1 --patch {}": "with ids there are no filters",
    "retry --kind a --limit 0": "--limit",
    "cancel": "name jobs by their ids",
    "cancel 0": "ID",
    "cancel 1 --dry-run": "with ids there are no filters",
    "cancel --status failed --yes": "--status",
    "update": "name jobs by their ids",
    "update 1": "say what is to change",
    "update 1 --kind a --priority 1": "with ids there are no filters",
    "update 1 --priority 101": "--priority",
    "update 1 --max-attempts many": "use a number, or none",
    "update --status running --priority 1": "--status",
    "update --kind a --priority 1": "Add --yes",
    "run-now": "ID",
    "run-now x": "ID",
    "purge": "say which",
    "purge --status failed": "say which",
    "purge --status pending --kind a": "--status",
    "schedule next": "give a schedule's name, or --cron",
    "schedule next s --cron @daily": "give a schedule's name, or --cron",
    "schedule next s --after 2027-01-01T00:00Z": "--after goes with --cron",
}
# A value can't be used, or the database refuses it:
VALUES = {
    "enqueue mail {": "not JSON",
    "enqueue mail [1]": "must be a JSON object",
    """enqueue mail '{"a": NaN}'""": "JSON",
    """enqueue mail '{"a": 1e400}'""": "JSON",
    """enqueue mail '{"a": "\\u0000"}'""": "u0000",
    """enqueue mail '{"a": "\\ud800"}'""": "surrogate",
    "enqueue mail {} --run-at 2127-01-31T08:00": "add an offset",
    "enqueue mail {} --run-at tomorrow": "--run-at",
    "enqueue mail {} --delay nan": "--delay",
    "enqueue mail {} --delay inf": "--delay",
    "enqueue mail {} --delay 1e18": "--delay",
    "enqueue mail {} --delay -1": "delay",
    "enqueue mail {} --delay 1 --run-at 2127-01-31T08:00Z": "both given",
    "enqueue mail {} --queue ''": "queue is 1 to 128 bytes",
    "enqueue mail --depends-on 7": "depends on job 7, which does not exist",
    "enqueue mail --webhook mailto:me": "webhook is an http url",
    "pause x --for 0": "PW003",
    "pause x --for nan": "--for",
    "pause x --for 1e12": "PW003",
    "pause x --for 1e18": "--for",
    "pause x --until 2199-01-01T00:00": "add an offset",
    "pause x --until 2001-01-01T00:00Z": "PW003",
    "pause ''": "PW003",
    "pause " + 129 * "x": "PW003",
    "limit x --max-running 0": "max running is 1 to 100000",
    "limit x --burst 5": "rate burst needs rate limit",
    "limit x --key '' --key-limit 1": "key is 1 to 512 bytes",
    "limit x --max-running 99999999999": "99999999999: value out of int32 range",
    "retry --kind a --patch [] --yes": "--patch must be",
    "retry --kind a --patch { --yes": "--patch is not JSON",
    "retry --kind a --rate 0 --yes": "PW003",
    "update 1 --run-at tomorrow": "--run-at",
    "update 1 --run-at 2127-01-31T08:00": "add an offset",
    "update 1 --max-attempts 0": "max attempts is 1 to 10000",
    "update 1 --patch []": "--patch must be",
    "update 1 --to-queue ''": "PW003",
    "update 1 --priority 5": "job 1 is failed",
    "run-now 7": "there is no job 7",
    "purge --before yesterday --yes": "--before",
    "wait 7": "job 7",
    "schedule add s k --cron '61 * * * *'": "as minute",
    "schedule add s k --every 1.5": "whole seconds",
    "schedule add s k --every nan": "--every nan",
    "schedule add s k --cron @daily --timezone Nowhere": "pg_timezone_names",
    "schedule add s k": "Give one of them",
    "schedule add s k --cron @daily --metadata []": "--metadata",
    "schedule add s k --cron @daily --starts-at 2027-01-01": "add an offset",
    "schedule next s": "no schedule is named s",
    "schedule next --cron '* * * *'": "five fields",
    "schedule next --cron '* * * * *' --timezone Nowhere": "Nowhere",
}
# It goes against a check of the schema:
BOUNDS = {
    "limit q --rate nan": "rate limit is up to 1000000 a second",
    "limit q --key-limit 0": "key limit is 1 to 10000",
    "limit '' --max-running 1": "name is 1 to 128 bytes",
    "limit q --key k --key-limit 99999": "max running is 0 to 10000",
    "enqueue ''": "kind is 1 to 128 bytes",
    "enqueue a --unique-key ''": "unique key is 1 to 512 bytes",
    "enqueue a --run-at 9999-12-31T23:59Z": "run at is in years 1 to",
}


async def unchanged(connection: Connection) -> bool:
    """Whether there is nothing but a dead letter."""
    row = await connection.fetchrow(
        "select (select count(*) from pgwake.jobs where status <> 'failed'),"
        " (select count(*) from pgwake.jobs_failed) - 1,"
        " (select count(*) from pgwake.queues),"
        " (select count(*) from pgwake.schedules),"
        " (select count(*) from pgwake.concurrency_limits)"
    )
    return row is not None and not any(row)


@pytest.mark.parametrize(
    ("code", "cases"),
    [(2, USAGE), (1, VALUES), (1, BOUNDS)],
    ids=["usage", "values", "bounds"],
)
async def test_what_can_not_be_meant_is_told_and_changes_nothing(
    pgwake: Pgwake, connection: Connection, code: int, cases: dict[str, str]
) -> None:
    await job_in(connection, "failed", kind="a")
    for line, said in cases.items():
        answer = await pgwake(*shlex.split(line))
        assert (answer.code, answer.output) == (code, ""), line
        frame = "\N{BOX DRAWINGS LIGHT VERTICAL}"
        told = " ".join(answer.errors.replace(frame, "").split())
        assert said in told, (line, told)
        assert "Traceback" not in told
        assert "query argument" not in told
        if cases is BOUNDS:
            assert f"that goes against the rule that {said}" in told
            assert "(23514)" in told
        assert await unchanged(connection), line


@pytest.mark.parametrize(
    ("line", "variable", "said"),
    [
        ("stats", "DATABASE_URL=", "no database: set PGWAKE_DATABASE_URL"),
        ("stats", "DATABASE_URL=mysql://h/d", "PGWAKE_DATABASE_URL"),
        ("stats", "QUERY_TIMEOUT=0", "PGWAKE_QUERY_TIMEOUT"),
        ("run", "", "no handlers"),
        ("run", "", "--import MODULE"),
        (f"{HANDLERS} --lease 0", "", "--lease"),
        (f"{HANDLERS} --queue a:0", "", "--queue"),
        ("run --http mail", "", "--http (or PGWAKE_HTTP_HANDLERS)"),
        ("run --http =http://a", "", "say KIND=WHAT"),
        ("run --http a=http://a --http a=http://b", "", "named twice"),
        ("run --exec a=", "", "say KIND=WHAT"),
        ("""run --exec "a='" """, "", "--exec (or PGWAKE_EXEC_HANDLERS)"),
    ],
)
async def test_settings_that_can_not_work_have_exit_code_78(
    typed: Pgwake, line: str, variable: str, said: str
) -> None:
    name, _, value = variable.partition("=")
    answer: Answer = await typed(*shlex.split(line), **{f"PGWAKE_{name}": value})

    assert (answer.code, answer.output) == (78, "")
    assert answer.errors.startswith("pgwake: ")
    assert answer.errors.count("\n") == 1  # however long
    assert said in answer.errors


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"http_handlers": ["a=ftp://secret@b.c"]}, "--http a: the URL can't be used"),
        (
            {"http_handlers": ["a=http://a"], "exec_handlers": ["a=true"]},
            "kind 'a' has two handlers",
        ),
        ({"exec_handlers": ["a=no-such-program x"]}, "no program 'no-such-program'"),
        ({"imports": ["no_such_module"]}, "no_such_module"),
        ({"imports": ["json.py"]}, "json.py: name a module"),
    ],
)
def test_handlers_that_can_not_work_are_refused(
    given: dict[str, list[str]], said: str
) -> None:
    settings = Settings.load(**given)

    def prepare() -> None:
        import_handlers(settings.imports)
        register(Registry(), settings, "worker")

    with pytest.raises(ConfigurationError) as caught:
        prepare()
    assert said in str(caught.value)
    assert "secret" not in str(caught.value)
