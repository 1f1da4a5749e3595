"""What is measured: the report's lines, and how much each may rise.

How much is a judgement, made before and between the first long runs: above what a
median wanders by from one third of a run to another, below what an hour's leak adds.
"""

from dataclasses import dataclass
from typing import Literal

from .verdict import Tolerance

Of = Literal["run", "worker", "supervisor", "session"]
Unit = Literal["MB", "", "%", "B"]

MB = 2**20
_MEMORY = Tolerance(0.05, 2 * MB)
_SIZE = Tolerance(0.2, 4 * MB)
_ROWS = Tolerance(0.5, 5_000)
_FEW = Tolerance(0, 1)


@dataclass(frozen=True, slots=True)
class Line:
    """One line of the report.

    Attributes:
        name: What it says.
        of: Whose: of the run as a whole, or of each process of a sort.
        unit: What its numbers are; MB are shown of bytes.
        tolerance: By how much it may rise.
        has_ceiling: It may rise up to what the server's configuration allows, which is
            measured with it, under this name and "_ceiling".
    """

    name: str
    of: Of
    unit: Unit
    tolerance: Tolerance
    has_ceiling: bool = False


LINES = {
    "worker_rss": Line("worker: memory (RSS)", "worker", "MB", _MEMORY),
    "worker_blocks": Line(
        "worker: blocks of Python's heap", "worker", "", Tolerance(0.02, 10_000)
    ),
    "worker_tasks": Line("worker: asyncio tasks", "worker", "", Tolerance(0, 25)),
    "worker_threads": Line("worker: threads", "worker", "", Tolerance(0, 10)),
    "worker_files": Line("worker: open files", "worker", "", Tolerance(0, 10)),
    "supervisor_rss": Line("supervisor: memory (RSS)", "supervisor", "MB", _MEMORY),
    "supervisor_files": Line("supervisor: open files", "supervisor", "", _FEW),
    "session_memory": Line(
        "a worker's session: its backend's own memory", "session", "MB", _MEMORY
    ),
    "server_memory": Line(
        "server: own memory of all its processes", "run", "MB", _SIZE
    ),
    "server_shared": Line(
        "server: shared memory in use", "run", "MB", _SIZE, has_ceiling=True
    ),
    "sessions": Line("workers' sessions", "run", "", Tolerance(0.1, 2)),
    "in_transaction": Line("of them idle in a transaction", "run", "", _FEW),
    "wake_locks": Line("sessions holding notify and duty locks", "run", "", _FEW),
    "locks": Line("locks held", "run", "", Tolerance(0.5, 50)),
    "notifications": Line("notification queue", "run", "%", Tolerance(0, 0.1)),
    "live_rows": Line("live jobs", "run", "", Tolerance(0.5, 500)),
    "live_heap": Line("jobs_live: heap", "run", "MB", _SIZE),
    "live_indexes": Line("jobs_live: indexes", "run", "MB", _SIZE),
    "live_dead": Line("jobs_live: dead rows", "run", "", _ROWS),
    "counts": Line("counts: rows", "run", "", _ROWS),
    "tables": Line("all other tables but ended jobs'", "run", "MB", _SIZE),
    "forgetful": Line(
        "ended jobs kept, with a retention of a minute", "run", "", _ROWS
    ),
    "history": Line("history: bytes an ended job", "run", "B", Tolerance(0.1, 20)),
    "wal": Line("WAL: bytes a job", "run", "B", Tolerance(0.5, 500)),
    "wal_files": Line("WAL: its files", "run", "MB", _SIZE, has_ceiling=True),
}
