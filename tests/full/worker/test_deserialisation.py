"""What stands in a row is data: only JSON is decoded, and no object made of it."""

import ast
import base64
import json
import marshal
import os
import pickle
from pathlib import Path
from typing import Any

from pgwake import Job, Queue, Registry
from support import CHECKOUT, Connection
from support.sql.helpers import call, insert
from support.worker import process_handlers
from support.worker.helpers import embedded, ended
from support.worker.processes import Pgwake

PACKAGE = CHECKOUT / "worker" / "pgwake"
# What goes between a worker and its own processes, by a socket that only they have.
BETWEEN_PROCESSES = {"child.py", "pool.py"}
FORBIDDEN_MODULES = {
    *("marshal", "shelve", "dbm", "yaml", "dill", "cloudpickle", "jsonpickle"),
    *("joblib", "copyreg", "xmlrpc"),
}
FORBIDDEN_CALLS = {"eval", "exec", "compile", "__import__"}


class Evil:
    """Pickled, it is whatever runs a command."""

    def __init__(self, command: str) -> None:
        self.command = command

    def __reduce__(self) -> Any:
        return os.system, (self.command,)


def evils() -> list[Any]:
    """Data that decoders other than JSON's would run a command for."""
    command = "touch mark"
    pickles = [pickle.dumps(Evil(command), protocol) for protocol in range(6)]
    code = compile(f"__import__('os').system({command!r})", "evil", "exec")
    return [
        *(base64.b64encode(one).decode() for one in pickles),
        *(one.decode("latin-1").replace("\0", "") for one in pickles),
        base64.b64encode(marshal.dumps(code)).decode(),
        f"!!python/object/apply:os.system ['{command}']",
        f"__import__('os').system({command!r})",
        "{{ cycler.__init__.__globals__.os.system('" + command + "') }}",
        {"py/reduce": [{"py/function": "os.system"}, {"py/tuple": [command]}]},
        {"__reduce__": ["os.system", [command]], "__class__": "os.system"},
        {"$type": "System.Diagnostics.Process", "__pydantic_private__": command},
    ]


async def test_no_object_is_made_of_what_a_row_holds(
    connection: Connection, database: str, pgwake: Pgwake, tmp_path: Path
) -> None:
    payload = {"given": evils()}
    registry = Registry()

    @registry.job("echo")
    async def echo(job: Job, given: list[Any]) -> Any:
        job.report_progress({"given": given})
        assert job.payload == payload
        assert json.loads(job.metadata or "") == payload
        return given

    @registry.job("thread")
    def thread(given: list[Any]) -> Any:
        return given

    @registry.job("child")
    async def child(job: Job) -> Any:
        return [parent.result for parent in await job.parent_results()]

    registry.job("apart", process=True)(process_handlers.apart)
    for kind in ("echo", "thread"):
        await insert(
            connection, kind, payload=payload, metadata=payload, max_attempts=1
        )
    await insert(connection, "apart", payload=payload, max_attempts=1)
    parent = await insert(connection, "thread", payload=payload)
    joined = await connection.fetchval(
        "select pgwake.enqueue('child', depends_on => array[$1::bigint])", parent
    )
    # As names too, and as what a failed attempt, a result and a progress hold.
    for text in (one for one in payload["given"] if isinstance(one, str)):
        await insert(connection, text[:100], unique_key=text[:100])
    failed = await insert(connection, "by hand", queue="by hand", max_attempts=1)
    taken = await connection.fetchrow("select * from pgwake.claim_next_job('by hand')")
    assert taken is not None
    await call(
        connection,
        "fail_job",
        job_id=failed,
        lease_id=taken["lease_id"],
        error=json.dumps(payload),
        traceback=payload["given"][0],
        reason="failed",
    )
    async with embedded(database, registry, poll_interval=1):
        kinds = ["echo", "thread", "apart", "child"]
        ids = await connection.fetch(
            "select id from pgwake.jobs_live where kind = any ($1)", kinds
        )
        rows = {}
        for (job_id,) in ids:
            row = await ended(connection, job_id)
            rows[row["kind"]] = row
            assert row["status"] == "completed", row

    assert rows["echo"]["result"] == rows["thread"]["result"] == payload["given"]
    assert rows["echo"]["progress"] == payload
    assert rows["apart"]["result"]["payload"] == payload
    assert rows["child"]["result"] == [payload["given"]]
    async with Queue(database) as queue:
        assert (await queue.get_job(joined))["result"] == [payload["given"]]
    for command in (("show", str(joined)), ("show", str(failed)), ("failed",)):
        assert (await pgwake(*command)).code == 0
    assert not (tmp_path / "mark").exists()


def _imports(tree: ast.AST) -> set[str]:
    found = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found |= {name.name.partition(".")[0] for name in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found.add(node.module.partition(".")[0])
    return found


def _calls(tree: ast.AST) -> set[str]:
    return {
        node.func.id
        for node in ast.walk(tree)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)
    }


def test_the_package_decodes_nothing_that_makes_objects() -> None:
    for path in PACKAGE.rglob("*.py"):
        tree = ast.parse(path.read_text())
        assert not _imports(tree) & FORBIDDEN_MODULES, path
        assert not _calls(tree) & FORBIDDEN_CALLS, path
        if "pickle" in _imports(tree):
            assert path.name in BETWEEN_PROCESSES
