"""What a function's statements read: plans and buffers, as PostgreSQL tells them."""

import itertools
import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Self

import asyncpg

from support import Connection
from support.sql.helpers import Row

AUTO_EXPLAIN = """
load 'auto_explain';
set auto_explain.log_min_duration = 0;
set auto_explain.log_analyze = on;
set auto_explain.log_buffers = on;
set auto_explain.log_timing = off;
set auto_explain.log_nested_statements = on;
set auto_explain.log_format = json;
set client_min_messages = log;
"""
STATISTICS = {
    "fresh": "",
    "of an empty table": "reltuples = 0, relpages = 0",
    "deleted": "reltuples = -1, relpages = 0",
    "of a full table": "reltuples = 1e9, relpages = 1000",
}
JOINS = ["", "nestloop", "hashjoin", "mergejoin"]


@dataclass(frozen=True)
class Case:
    """A call, the indexes it may ride, and how many buffers it may touch."""

    call: str
    indexes: set[str]
    bound: int


async def buffers(db: Connection, function: str, **arguments: Any) -> int:
    """Call a function of pgwake; the buffers that it touched, with all it calls.

    In a transaction that is rolled back. The first call in a session reads catalogs
    too, so it is done twice.
    """
    names = ", ".join(f"{name} => ${n}" for n, name in enumerate(arguments, 1))
    statement = f"select * from pgwake.{function}({names})"
    explain = f"explain (analyze, buffers, format json) {statement}"
    touched = 0
    for _ in range(2):
        transaction = db.transaction()
        await transaction.start()
        plan = await db.fetchval(explain, *arguments.values())
        touched = _touched(json.loads(plan)[0]["Plan"])
        await transaction.rollback()
    return touched


def _touched(node: Row) -> int:
    touched: int = node["Shared Hit Blocks"] + node["Shared Read Blocks"]
    return touched


@dataclass(frozen=True)
class Statement:
    """A statement that was run, perhaps within a function, and its plan."""

    text: str
    plan: Row

    @property
    def buffers(self) -> int:
        return _touched(self.plan)

    def scans(self) -> Iterator[tuple[str, str | None]]:
        """The tables of jobs it reads, with the index or None."""
        for node in nodes(self.plan):
            table = node.get("Relation Name", "")
            if table.startswith("jobs") and "Scan" in node["Node Type"]:
                yield table, node.get("Index Name")


def nodes(plan: Row) -> Iterator[Row]:
    yield plan
    for child in plan.get("Plans", ()):
        yield from nodes(child)


class Explained:
    """A superuser's session that tells of every statement, nested ones too."""

    def __init__(self, db: Connection) -> None:
        self.connection = db
        self._statements: list[Statement] = []

    @classmethod
    async def start(cls, db: Connection) -> Self:
        explained = cls(db)
        await db.execute(AUTO_EXPLAIN)
        db.add_log_listener(explained._hear)
        return explained

    def _hear(self, _connection: object, message: asyncpg.PostgresLogMessage) -> None:
        text = str(message.message)
        if "plan:\n" in text:
            told = json.loads(text.partition("plan:\n")[2])
            self._statements.append(Statement(told["Query Text"], told["Plan"]))

    async def run(self, statement: str) -> list[Statement]:
        """Run a statement; it and all that ran within it, the outermost last."""
        self._statements.clear()
        # By the simple protocol: the other leaves the outermost open, and untold.
        await self.connection.execute(statement)
        return list(self._statements)


async def check_case(explained: Explained, case: Case) -> None:
    """Hold a call to its indexes and its bound, whatever the planner knows."""
    db = explained.connection
    for statistics, off in itertools.product(STATISTICS, JOINS):
        transaction = db.transaction()
        await transaction.start()
        await _set_statistics(db, STATISTICS[statistics])
        if off:
            await db.execute(f"set local enable_{off} = off")
        await db.execute("discard plans")
        await db.execute("savepoint before")
        await db.fetch(f"select {case.call}")  # reads catalogs too
        await db.execute("rollback to before")
        statements = await explained.run(f"select {case.call}")
        await transaction.rollback()

        what = (statistics, off)
        used = {index for s in statements for _, index in s.scans()}
        assert used <= case.indexes, (what, [s.text for s in statements])
        touched = statements[-1].buffers
        assert touched <= case.bound, (what, [(s.buffers, s.text) for s in statements])


async def _set_statistics(db: Connection, state: str) -> None:
    if state:
        await db.execute(f"""
            delete from pg_statistic where starelid = 'pgwake.jobs_live'::regclass
              or starelid = 'pgwake.jobs_claim_idx'::regclass;
            update pg_class set {state}
            where oid = 'pgwake.jobs_live'::regclass or oid in (
              select indexrelid from pg_index
              where indrelid = 'pgwake.jobs_live'::regclass);
        """)
