"""pgwake enqueue: what producers without a driver use."""

import json
from datetime import UTC, datetime, timedelta

from support import Connection
from support.sql.helpers import job
from support.worker.processes import Answer, Pgwake


async def test_a_job_is_enqueued_and_its_id_printed(
    pgwake: Pgwake, connection: Connection
) -> None:
    answer = await pgwake("enqueue", "mail", '{"to": "a"}')

    assert answer == Answer(0, "1\n", "")
    row = await job(connection, 1)
    assert (row["kind"], row["payload"], row["queue"]) == (
        "mail",
        {"to": "a"},
        "default",
    )


async def test_a_job_takes_what_the_options_say(
    pgwake: Pgwake, connection: Connection
) -> None:
    answer = await pgwake(
        *("enqueue", "mail", "--queue", "my queue", "--priority", "-5"),
        *("--run-at", "2127-01-31T08:00+01:00"),
        *("--expires-at", "2127-02-01T00:00Z", "--max-attempts", "3"),
        *("--unique-until", "2127-02-01T00:00Z"),
        *("--unique-key", "k", "--concurrency-key", "c", "--json"),
        *("--metadata", '{"by": "me"}'),
    )

    assert json.loads(answer.output) == {"id": 1}
    row = await job(connection, 1)
    assert (row["queue"], row["priority"], row["payload"]) == ("my queue", -5, {})
    assert row["run_at"] == datetime(2127, 1, 31, 7, tzinfo=UTC)
    assert row["unique_until"] == row["expires_at"] == datetime(2127, 2, 1, tzinfo=UTC)
    assert (row["max_attempts"], row["unique_key"]) == (3, "k")
    assert (row["concurrency_key"], row["status"]) == ("c", "waiting")
    assert row["metadata"] == {"by": "me"}


async def test_what_is_no_object_is_no_metadata(pgwake: Pgwake) -> None:
    answer = await pgwake("enqueue", "mail", "--metadata", "[7]")
    assert answer.code == 1
    assert "--metadata must be a JSON object" in answer.errors


async def test_a_job_may_depend_on_others(
    pgwake: Pgwake, connection: Connection
) -> None:
    for kind in "ab":
        await pgwake("enqueue", kind)
    answer = await pgwake(
        *("enqueue", "report", "--depends-on", "1", "--depends-on", "2"),
        *("--on-parent-failure", "run", "--webhook", "https://example.org/hook"),
    )

    assert answer == Answer(0, "3\n", "")
    row = await job(connection, 3)
    assert (row["status"], row["depends_on"]) == ("waiting", [1, 2])
    assert row["on_parent_failure"] == "run"
    assert row["webhook"] == "https://example.org/hook"


async def test_a_delay_counts_from_now(pgwake: Pgwake, connection: Connection) -> None:
    await pgwake("enqueue", "mail", "--delay", "90.5")
    row = await job(connection, 1)

    assert row["run_at"] - row["created_at"] == timedelta(seconds=90.5)


async def test_a_payload_may_come_from_standard_input(
    pgwake_program: Pgwake, connection: Connection
) -> None:
    text = json.dumps({"text": 'é "quoted" \N{PILE OF POO}' * 20_000})
    answer = await pgwake_program("enqueue", "mail", "-", stdin=text)

    assert answer.code == 0
    assert (await job(connection, 1))["payload"] == json.loads(text)


async def test_a_unique_key_answers_with_the_live_job(
    pgwake: Pgwake, connection: Connection
) -> None:
    first = await pgwake("enqueue", "mail", "--unique-key", "k")
    second = await pgwake("enqueue", "mail", "--unique-key", "k")
    assert second.output == first.output == "1\n"

    refused = await pgwake(
        *("enqueue", "mail", "--unique-key", "k", "--on-conflict", "raise")
    )
    assert refused.code == 1
    assert "PW005" in refused.errors
    assert await connection.fetchval("select count(*) from pgwake.jobs") == 1


async def test_an_event_is_emitted_once(pgwake: Pgwake) -> None:
    first = await pgwake("emit", "order:1:approved", '{"by": "é"}')
    again = await pgwake("emit", "order:1:approved", "--json")
    wrong = await pgwake("emit", "order:1:approved", "{")
    deep = await pgwake("emit", "order:1:approved", "[" * 50_000)
    long = await pgwake("emit", "x" * 513)

    assert first == Answer(0, "emitted\n", "")
    assert json.loads(again.output) == {"name": "order:1:approved", "is_first": False}
    for refused in (wrong, deep):
        assert refused.code == 2
        assert "not JSON" in refused.errors
    assert (long.code, long.output) == (1, "")
    assert long.errors == (
        "pgwake: the name of a step or event has 513 bytes (PW003)\n"
        "Use text of 1 to 512 bytes.\n"
    )
