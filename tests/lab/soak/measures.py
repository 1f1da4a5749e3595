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
class Measure:
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
    "worker_rss": Measure("worker: memory (RSS)", "worker", "MB", _MEMORY),
    "worker_blocks": Measure(
        "worker: blocks of Python's heap", "worker", "", Tolerance(0.02, 10_000)
    ),
    "worker_tasks": Measure("worker: asyncio tasks", "worker", "", Tolerance(0, 25)),
    "worker_threads": Measure("worker: threads", "worker", "", Tolerance(0, 10)),
    "worker_files": Measure("worker: open files", "worker", "", Tolerance(0, 10)),
    "supervisor_rss": Measure("supervisor: memory (RSS)", "supervisor", "MB", _MEMORY),
    "supervisor_files": Measure("supervisor: open files", "supervisor", "", _FEW),
    "session_memory": Measure(
        "a worker's session: its backend's own memory", "session", "MB", _MEMORY
    ),
    "server_memory": Measure(
        "server: own memory of all its processes", "run", "MB", _SIZE
    ),
    "server_shared": Measure(
        "server: shared memory in use", "run", "MB", _SIZE, has_ceiling=True
    ),
    "sessions": Measure("workers' sessions", "run", "", Tolerance(0.1, 2)),
    "in_transaction": Measure("of them idle in a transaction", "run", "", _FEW),
    "wake_locks": Measure("sessions holding notify and duty locks", "run", "", _FEW),
    "locks": Measure("locks held", "run", "", Tolerance(0.5, 50)),
    "notifications": Measure("notification queue", "run", "%", Tolerance(0, 0.1)),
    "live_rows": Measure("live jobs", "run", "", Tolerance(0.5, 500)),
    "live_heap": Measure("jobs_live: heap", "run", "MB", _SIZE),
    "live_indexes": Measure("jobs_live: indexes", "run", "MB", _SIZE),
    "live_dead": Measure("jobs_live: dead rows", "run", "", _ROWS),
    "counts": Measure("counts: rows", "run", "", _ROWS),
    "tables": Measure("all other tables but ended jobs'", "run", "MB", _SIZE),
    "forgetful": Measure(
        "ended jobs kept, with a retention of a minute", "run", "", _ROWS
    ),
    "history": Measure("history: bytes an ended job", "run", "B", Tolerance(0.1, 20)),
    "wal": Measure("WAL: bytes a job", "run", "B", Tolerance(0.5, 500)),
    "wal_files": Measure("WAL: its files", "run", "MB", _SIZE, has_ceiling=True),
}
