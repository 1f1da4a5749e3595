"""What is loaded by whom: a producer needs little, and a command only its own."""

import ast
import importlib
import json
import pickle
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import pgwake
from pgwake.cli.main import COMMANDS
from support.worker.processes import clean_environment

# Says what it has loaded: packages that are not Python's own, and modules of pgwake.
PROGRAM = """
import atexit, json, sys
before = set(sys.modules)

def tell():
    names = sys.modules.keys() - before
    tops = {{name.partition(".")[0] for name in names}} - sys.stdlib_module_names
    print(json.dumps([
        sorted(top for top in tops if top.isidentifier() and top[0] != "_"),
        sorted(name for name in names if name.startswith("pgwake.")),
    ]))

atexit.register(tell)
{code}
"""
ASYNCPG = {"asyncpg", "cython_runtime"}
PSYCOPG = {"psycopg", "psycopg_binary", "typing_extensions", "cython_runtime"}
PYDANTIC = {"annotated_types", "pydantic", "pydantic_core", "typing_extensions"} | {
    "typing_inspection"
}
WORKERS_ALONE = ("cli", "engine", "http", "kinds", "observe", "processes", "supervise")


def loaded(code: str, database: str, folder: Path) -> tuple[set[str], set[str]]:
    """The packages and the modules of pgwake that a program has loaded at its end."""
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM.format(code=code)],
        cwd=folder,
        env=clean_environment({"PGWAKE_DATABASE_URL": database}),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    packages, modules = json.loads(done.stdout.splitlines()[-1])
    return set(packages) - {"pgwake"}, set(modules)


WITH_URL = """
import asyncio, os
from pgwake import Queue

async def main():
    async with Queue(os.environ["PGWAKE_DATABASE_URL"]) as queue:
        await queue.enqueue("a", {"b": 1}, delay=1)

asyncio.run(main())
"""
WITH_ASYNCPG = """
import asyncio, asyncpg, os
from pgwake import AsyncQueue, NewJob

async def main():
    connection = await asyncpg.connect(os.environ["PGWAKE_DATABASE_URL"])
    await AsyncQueue(connection).enqueue_many([NewJob("a"), NewJob("b")])
    await connection.close()

asyncio.run(main())
"""
WITH_PSYCOPG = """
import os, psycopg
from pgwake import DuplicateJobError, NewJob, SyncQueue

with psycopg.connect(os.environ["PGWAKE_DATABASE_URL"]) as connection:
    SyncQueue(connection).add(NewJob("a", {"b": 1}))
    SyncQueue(connection).copy([NewJob("a")])
"""
WITH_ASYNC_PSYCOPG = """
import asyncio, os, psycopg
from pgwake import Queue

async def main():
    url = os.environ["PGWAKE_DATABASE_URL"]
    async with await psycopg.AsyncConnection.connect(url) as connection:
        await Queue(connection).enqueue("a")

asyncio.run(main())
"""
WITH_TASK = """
import os, psycopg
from pgwake import job

@job("charge", queue="charges")
async def charge(order: int, note: str = ""): ...

with psycopg.connect(os.environ["PGWAKE_DATABASE_URL"]) as connection:
    charge.using(connection).enqueue(1, note="a")
"""


def test_djangos_tests_need_no_pytest(database: str, tmp_path: Path) -> None:
    code = "sys.modules['pytest'] = None; from pgwake.testing import SyncJobs"
    loaded(code, database, tmp_path)


@pytest.mark.parametrize(
    ("code", "needed"),
    [
        pytest.param("import pgwake; dir(pgwake)", set(), id="import"),
        pytest.param(WITH_URL, ASYNCPG, id="url"),
        pytest.param(WITH_ASYNCPG, ASYNCPG, id="asyncpg"),
        pytest.param(WITH_PSYCOPG, PSYCOPG, id="psycopg"),
        pytest.param(WITH_ASYNC_PSYCOPG, PSYCOPG, id="async psycopg"),
        pytest.param(WITH_TASK, PSYCOPG | PYDANTIC, id="task"),
    ],
)
def test_a_producer_loads_its_driver_and_what_validates_its_tasks(
    database: str, tmp_path: Path, code: str, needed: set[str]
) -> None:
    packages, modules = loaded(code, database, tmp_path)

    assert packages <= needed
    assert not {m for m in modules if m.split(".")[1] in (*WORKERS_ALONE, "settings")}


COMMAND = """
import sys
from pgwake.cli.main import main
sys.argv = ["pgwake", {words}]
try:
    main()
except SystemExit as end:
    assert not end.code, end.code
"""
SERVING = {"httpcore", "httpx", "prometheus_client", "starlette", "uvicorn"}


@pytest.mark.parametrize(
    ("words", "unneeded"),
    [
        ("'--version'", {"asyncpg", "rich", "structlog", *SERVING}),
        ("'version'", {"asyncpg", "rich", "structlog", *SERVING}),
        ("'stats'", {"cronsim", "structlog", *SERVING}),
        ("'list', '--json'", {"cronsim", "structlog", *SERVING}),
        ("'run', '--help'", {"cronsim", *SERVING}),
    ],
)
def test_a_command_loads_what_it_needs_itself(
    database: str, tmp_path: Path, words: str, unneeded: set[str]
) -> None:
    packages, _ = loaded(COMMAND.format(words=words), database, tmp_path)

    assert not packages & unneeded


def test_a_worker_process_loads_no_web_server_before_it_serves(
    database: str, tmp_path: Path
) -> None:
    packages, _ = loaded("import pgwake.supervise.main", database, tmp_path)

    assert not packages & {"httpcore", "httpx", "starlette", "typer", "uvicorn"}


def test_every_command_is_where_it_is_said_to_be() -> None:
    for place, _ in COMMANDS.values():
        module, _, name = place.partition(":")
        assert callable(getattr(importlib.import_module(f"pgwake.cli.{module}"), name))


def test_type_checkers_see_the_names_that_are_loaded() -> None:
    source = ast.parse(Path(pgwake.__file__).read_text())
    (branch,) = (node for node in source.body if isinstance(node, ast.If))
    seen = {
        (node.module, alias.name)
        for node in branch.body
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }
    homes: dict[str, str] = vars(pgwake)["_HOMES"]
    found = {
        (f"pgwake.{home}", name)
        for home, names in homes.items()
        for name in names.split()
    }

    assert found == seen
    assert {name for _, name in found} | {"__version__"} == set(pgwake.__all__)


def test_every_public_name_is_there_however_it_is_asked_for() -> None:
    everything: dict[str, Any] = {}
    exec("from pgwake import *", everything)  # noqa: S102, as a module has it

    assert set(pgwake.__all__) <= everything.keys()
    assert set(pgwake.__all__) <= set(dir(pgwake))
    assert everything["Snooze"] is pgwake.Snooze
    assert pickle.loads(pickle.dumps(pgwake.Snooze)) is pgwake.Snooze  # noqa: S301
    assert importlib.reload(pgwake).Snooze is everything["Snooze"]


def test_another_name_is_missing_as_of_any_module() -> None:
    with pytest.raises(AttributeError, match="'pgwake' has no attribute 'Quue'"):
        _ = vars(pgwake)["__getattr__"]("Quue")
    with pytest.raises(ImportError, match="cannot import name 'Quue'"):
        exec("from pgwake import Quue")  # noqa: S102, mypy would not have it
