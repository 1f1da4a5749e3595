"""Jobs that a command does: exit codes, output, and nothing left behind."""

import json
import os
import signal
from datetime import timedelta
from pathlib import Path
from string import ascii_lowercase

import pytest

from support import PATIENCE, Connection, wait_for
from support.sql.helpers import call, insert, job, set_queue
from support.worker.helpers import ended, reasons
from support.worker.processes import StartProcess, WorkerProcess, gone, is_alive


@pytest.fixture(params=["uvloop", "asyncio"])
def loop(
    request: pytest.FixtureRequest,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    """Have workers run on this event loop: on asyncio's where there is no other."""
    if request.param == "asyncio":
        folder = tmp_path_factory.mktemp("no-uvloop")
        (folder / "uvloop.py").write_text("raise ImportError")
        monkeypatch.setenv("PYTHONPATH", str(folder))


async def worker(
    start_worker: StartProcess, *commands: str, **settings: object
) -> WorkerProcess:
    """A worker whose kinds a, b, ... are done by these commands."""
    flags = [
        part
        for kind, command in zip(ascii_lowercase, commands, strict=False)
        for part in ("--exec", f"{kind}={command}")
    ]
    return await start_worker(*flags, **{"imports": "", **settings})


async def pid_in(path: Path) -> int:
    """Wait for a process id in a file."""

    text = ""

    async def is_there() -> bool:
        nonlocal text
        text = path.read_text() if path.exists() else ""  # noqa: ASYNC240
        return text.endswith("\n")

    await wait_for(is_there, PATIENCE)
    return int(text)


@pytest.mark.usefixtures("loop")
async def test_a_command_gets_the_payload_and_its_output_is_the_result_up_to_a_size(
    start_worker: StartProcess, connection: Connection
) -> None:
    outputs = "cat", "echo done", "true", "printf 42", "printf '{oops'"
    words = "echo '$HOME;' \"a  b\" * | cat", "sh -c 'echo $((1+1))'"  # no shell's
    unread = "true", "sh -c 'exec <&-; sleep 0.1; echo 1'", "wc -c"
    without_measure = (
        "head -c 20000000 /dev/zero",
        "sh -c 'head -c 3000000 /dev/zero | tr \"\\\\0\" e >&2; echo end >&2; false'",
    )
    descriptors = "sh -c 'ls -l /proc/$$/fd'"
    await worker(start_worker, *outputs, *words, *unread, *without_measure, descriptors)
    payload = {
        "text": "a'; touch /tmp/x; $(id) `id` \"\r\n",
        "exact": 12345678901234567890123,
        "self": 1,
    }
    jobs = [await insert(connection, kind, payload=payload) for kind in "abcdefg"]
    rows = [await ended(connection, job_id) for job_id in jobs]

    assert {row["status"] for row in rows} == {"completed"}
    results = [row["result"] for row in rows]
    assert results[:5] == [payload, "done\n", None, 42, "{oops"]
    assert results[5:] == ["$HOME; a  b * | cat\n", 2]

    large = {"text": "x" * 900_000}
    jobs = [await insert(connection, kind, payload=large) for kind in "hij"]
    rows = [await ended(connection, job_id) for job_id in jobs]
    assert [row["status"] for row in rows] == ["completed"] * 3
    assert rows[2]["result"] == len(json.dumps(large))

    row = await ended(connection, await insert(connection, "k"))
    assert row["status"] == "completed"
    # Three bytes each: a zero can't be stored.
    assert len(json.dumps(row["result"], ensure_ascii=False).encode()) > 2**20 - 10
    row = await ended(connection, await insert(connection, "l", max_attempts=1))
    assert row["errors"][0]["message"].endswith("eeeend")
    assert len(row["errors"][0]["message"]) < 2000
    # Nothing of the worker's is open in it but its own input, output and errors.
    row = await ended(connection, await insert(connection, "m"))
    opened = {line.partition(" -> ")[2] for line in row["result"].splitlines()[1:]}
    assert len(opened) == 3, row["result"]


async def test_the_job_is_in_the_environment_and_secrets_are_if_they_are_asked_for(
    start_worker: StartProcess, connection: Connection, database: str
) -> None:
    script = "sh -c 'env | grep -c -e ^PGWAKE_[^J] -e ^PG[^W] -e ^DATABASE'"
    show = 'sh -c \'printf "\\"$PGWAKE_DATABASE_URL\\""\''
    await worker(start_worker, "env -0", script, show)
    hostile = "a\nPATH=/nowhere $(id)'"
    job_id = await insert(
        connection, "a", payload={"self": 1}, metadata={"note": hostile}, max_attempts=3
    )
    row = await ended(connection, job_id)
    found = dict(
        line.split("=", 1)
        for line in row["result"].split("\N{REPLACEMENT CHARACTER}")
        if line
    )
    about = {n: v for n, v in found.items() if n.startswith("PGWAKE_JOB_")}
    assert json.loads(about.pop("PGWAKE_JOB_METADATA")) == {"note": hostile}
    assert about == {
        "PGWAKE_JOB_ID": str(job_id),
        "PGWAKE_JOB_KIND": "a",
        "PGWAKE_JOB_QUEUE": "default",
        "PGWAKE_JOB_ATTEMPT": "1",
        "PGWAKE_JOB_MAX_ATTEMPTS": "3",
        "PGWAKE_JOB_CREATED_AT": row["created_at"].isoformat(),
    }
    assert found["PATH"] == os.environ["PATH"]

    first, second = [await insert(connection, kind, max_attempts=1) for kind in "bc"]
    row = await ended(connection, first)
    assert row["errors"][-1]["message"] == "exit code 1"  # grep has found nothing
    assert (await ended(connection, second))["result"] == ""

    await worker(
        start_worker, show, exec_environment="OTHER, PGWAKE_DATABASE_URL", queues="q"
    )
    row = await ended(connection, await insert(connection, "a", queue="q"))
    assert row["result"] == database


async def test_exit_codes_fail_the_attempt_and_those_for_bad_input_end_the_job(
    start_worker: StartProcess, connection: Connection, tmp_path: Path
) -> None:
    program = tmp_path / "program"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    await set_queue(connection, backoff_base=timedelta(0))
    bad, discarded = (1, 2, 75, 126, 255), (64, 65)
    said = "echo first >&2; echo ouch >&2"
    commands = [f"sh -c '{said}; exit {code}'" for code in (*bad, *discarded)]
    await worker(start_worker, *commands, "sh -c 'kill -SEGV $$'", str(program))
    program.unlink()
    ids = [await insert(connection, kind, max_attempts=2) for kind in "abcdefghi"]
    *rows, segfault, without_program = [
        await ended(connection, job_id) for job_id in ids
    ]

    for row, code in zip(rows, (*bad, *discarded), strict=True):
        why = ["discarded"] if code in discarded else ["failed", "failed"]
        assert (row["status"], reasons(row)) == ("failed", why)
        assert row["errors"][0]["message"] == f"exit code {code}: first\nouch"
    assert segfault["errors"][0]["message"] == "killed by SIGSEGV"
    assert without_program["errors"][0]["message"].startswith("exit code 127: ")


@pytest.mark.usefixtures("loop")
async def test_a_daemon_that_keeps_the_output_open_holds_nothing_up(
    start_worker: StartProcess, connection: Connection, tmp_path: Path
) -> None:
    daemons = {"a": "sleep 3600", "b": "setsid sleep 3600"}
    await worker(
        start_worker,
        *(
            f"sh -c '{daemon} & echo $! >>{tmp_path / kind}; echo 7'"
            for kind, daemon in daemons.items()
        ),
        queues="q:1",
    )
    for kind in daemons:
        jobs = [await insert(connection, kind, queue="q") for _ in range(2)]
        rows = [await ended(connection, job_id) for job_id in jobs]
        assert [row["result"] for row in rows] == [7, 7]

        for left in map(int, (tmp_path / kind).read_text().split()):
            if kind == "b":  # it has left the group on purpose
                assert is_alive(left)
                os.kill(left, signal.SIGKILL)
            await gone(left)


NAP = "sh -c 'trap \"echo told >{0}/told\" TERM; sleep 3600 & echo $! >{0}/pid; wait'"
DEAF = "sh -c 'trap \"\" TERM; sleep 3600 & echo $! >{0}/pid; wait; wait'"


@pytest.mark.usefixtures("loop")
async def test_a_command_that_has_to_end_is_told_then_killed_with_its_children(
    start_worker: StartProcess, connection: Connection, tmp_path: Path
) -> None:
    await connection.execute(
        "insert into pgwake.kinds (name, timeout, max_attempts)"
        " select k, '1 s', 1 from unnest('{a,b}'::text[]) as k"
    )
    folders = [tmp_path / kind for kind in "abcd"]
    commands = NAP, DEAF, DEAF, NAP
    for folder in folders:
        folder.mkdir()
    process = await worker(
        start_worker,
        *map(str.format, commands, folders),
        lease=2,
    )
    told, deaf_too, cancelled, lost = [
        await insert(connection, kind) for kind in "abcd"
    ]
    children = [await pid_in(folder / "pid") for folder in folders]
    await call(connection, "cancel_job", job_id=cancelled)
    await call(connection, "force_complete_job", job_id=lost, reason="by hand")

    for job_id in (told, deaf_too):
        assert reasons(await ended(connection, job_id)) == ["timeout"]
    assert (await ended(connection, cancelled))["status"] == "cancelled"
    for child in children:
        await gone(child)
    for folder in folders:
        assert (folder / "told").exists() == (folder.name in "ad")
    assert process.log("process died") == []


async def test_a_stop_gives_the_job_back_and_leaves_no_process(
    start_worker: StartProcess, connection: Connection, tmp_path: Path
) -> None:
    process = await worker(start_worker, NAP.format(tmp_path), grace=0)
    job_id = await insert(connection, "a")
    child = await pid_in(tmp_path / "pid")
    process.send(signal.SIGTERM)

    assert await process.exit_code() == 0
    await gone(child)
    row = await job(connection, job_id)
    assert (row["status"], row["attempt"], row["bounce_count"]) == ("pending", 0, 1)


async def test_the_command_of_a_supervisor_that_is_killed_is_killed_too(
    start_worker: StartProcess, connection: Connection, tmp_path: Path
) -> None:
    process = await worker(start_worker, DEAF.format(tmp_path), grace=0)
    await insert(connection, "a", max_attempts=1)
    child = await pid_in(tmp_path / "pid")
    process.send(signal.SIGKILL)

    await gone(child)


def orphan_killers(pid: int) -> list[int]:
    """The orphan killer of a worker: a child that runs orphan_killer.py."""
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return [
        int(child)
        for child in children
        if "orphan_killer.py" in Path(f"/proc/{child}/cmdline").read_text()
    ]


async def test_the_command_of_a_killed_worker_is_killed_by_its_last_orphan_killer(
    start_worker: StartProcess, connection: Connection, tmp_path: Path
) -> None:
    process = await worker(start_worker, DEAF.format(tmp_path), "true", grace=0)
    await insert(connection, "a", max_attempts=1)
    child = await pid_in(tmp_path / "pid")
    (tmp_path / "pid").unlink()
    os.kill(process.children[0], signal.SIGKILL)
    await gone(child)

    # The job runs again. The next orphan killer of that worker knows of it, too.
    child = await pid_in(tmp_path / "pid")
    (first,) = orphan_killers(process.children[1])
    os.kill(first, signal.SIGKILL)
    await gone(first)
    await ended(connection, await insert(connection, "b"))
    (second,) = orphan_killers(process.children[1])
    assert second != first

    os.kill(process.children[1], signal.SIGKILL)
    await gone(child)
    await gone(second)


def entries(folder: str) -> int:
    return len(list(Path(folder).iterdir()))


@pytest.mark.usefixtures("loop")
async def test_no_zombie_is_left_and_no_file_open(
    start_worker: StartProcess, connection: Connection
) -> None:
    process = await worker(start_worker, "true", "sh -c 'exit 1'")
    pid = process.children[0]
    await ended(connection, await insert(connection, "a"))
    files = entries(f"/proc/{pid}/fd")
    jobs = [await insert(connection, kind, max_attempts=1) for kind in "ab" * 20]
    for job_id in jobs:
        await ended(connection, job_id)

    children = Path(f"/proc/{pid}/task/{pid}/children").read_text()  # noqa: ASYNC240
    assert children.split() == [str(killer) for killer in orphan_killers(pid)]
    assert entries(f"/proc/{pid}/fd") == files
