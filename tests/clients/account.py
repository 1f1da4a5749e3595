"""What became of the jobs that all clients worked on together.

Drawn up from the database's rows, with which the consumers' lines have to agree.
"""

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

Row = Mapping[str, Any]

ROWS = """
select id, kind, status, payload, result, attempt, unique_key, claimed_by,
  metadata ->> 'from' as producer, coalesce(errors, '[]') as errors
from pgwake.jobs where queue = $1 order by id
"""

# How the jobs of a kind end, and in how many attempts.
ENDS = {
    "conformance.echo": ("completed", 1),
    "conformance.fail_once": ("completed", 2),
    "conformance.fail": ("failed", 1),
}
COLUMNS = ("produced", "completed", "failed", "retried", "crashed")


@dataclass(frozen=True, slots=True)
class Account:
    """What came of it.

    Attributes:
        counts: By language: jobs produced, completed and failed, attempts retried, and
            crashed: jobs that a consumer had in hand when it was killed.
        faults: What should not be, a sentence each.
        seconds: From the first insert to the last end.
    """

    counts: dict[str, Counter[str]]
    faults: list[str]
    seconds: float

    def __str__(self) -> str:
        """Return a line for each language, the faults, and what is unaccounted for."""
        total = sum(self.counts.values(), Counter[str]())
        lines = ["".join(f"{name:>10}" for name in ("", *COLUMNS, "jobs/s"))]
        for name, counts in (*sorted(self.counts.items()), ("all", total)):
            numbers = "".join(f"{counts[column]:10}" for column in COLUMNS)
            rate = counts["completed"] / self.seconds
            lines.append(f"{name:10}{numbers}{rate:10.1f}")
        lines += self.faults[:20]
        problem = f"NOT EVERY JOB IS ACCOUNTED FOR: {len(self.faults)} faults"
        lines.append(problem if self.faults else "every job is accounted for")
        return "\n".join(lines)


def draw_up(
    rows: Sequence[Row],
    acknowledged: Mapping[str, set[str]],
    printed: Mapping[str, Sequence[str]],
    killed: set[str],
    seconds: float,
) -> Account:
    """Return the account.

    Args:
        rows: All jobs of the queue.
        acknowledged: The unique keys that each language's producer has committed.
        printed: The lines of each consumer, by the name that it claims under.
        killed: The names of those that were killed, Python's workers too.
        seconds: How long it took.
    """
    ends: dict[int, list[tuple[str, str]]] = defaultdict(list)
    for worker, lines in printed.items():
        for line in lines:
            match line.split():
                case [job_id, _, outcome] if outcome != "retry":
                    ends[int(job_id)].append((worker, outcome))
    counts: dict[str, Counter[str]] = defaultdict(Counter)
    keys: dict[str, list[str]] = defaultdict(list)
    faults = []
    for row in rows:
        counts[language_of(row["claimed_by"] or "nobody")][row["status"]] += 1
        for error in row["errors"]:
            if error["reason"] == "crashed":
                counts[language_of(error["worker"])]["crashed"] += 1
            elif row["status"] == "completed":
                counts[language_of(error["worker"])]["retried"] += 1
        if row["producer"] is not None:
            counts[row["producer"]]["produced"] += 1
            keys[row["producer"]].append(row["unique_key"])
        faults += [f"job {row['id']} {fault}" for fault in _faults(row, ends, killed)]
    for language, committed in acknowledged.items():
        if sorted(keys[language]) != sorted(committed):
            faults.append(f"the jobs of {language} are not those that it committed")
    for language in (*acknowledged, "python"):
        for what in ("completed", "crashed"):
            if not counts[language][what]:
                faults.append(f"{language} has {what} nothing: it shows nothing")
    if {row["id"] for row in rows} < ends.keys():
        faults.append("a consumer has ended a job that is not there")
    return Account(dict(counts), faults, seconds)


def language_of(worker: str) -> str:
    """Return the language of a consumer by its name; Python's is host:pid:..."""
    return "python" if ":" in worker else worker.partition("-")[0]


def pid_of(worker: str) -> int:
    """Return the process id of a consumer, which is in its name."""
    return int(worker.split(":")[1] if ":" in worker else worker.partition("-")[2])


def _faults(
    row: Row, ends: Mapping[int, list[tuple[str, str]]], killed: set[str]
) -> Iterator[str]:
    worker, status = row["claimed_by"], row["status"]
    if (status, row["attempt"]) != ENDS[row["kind"]]:
        yield f"of {row['kind']} is {status} after {row['attempt']} attempts"
        return
    number = row["payload"]["number"]
    wanted = {"number": number, "by": language_of(worker)}
    if status == "completed" and row["result"] != wanted:
        yield f"has the result {row['result']}, not {wanted}"
    told = ends.get(row["id"], [])
    silent = language_of(worker) == "python" or worker in killed
    if told != [(worker, status)] and not (silent and not told):
        yield f"was {status} by {worker}, but its consumers say {told}"
    crashes = [error for error in row["errors"] if error["reason"] == "crashed"]
    for error in crashes:
        if error["worker"] not in killed:
            yield f"was executed again, but {error['worker']} was not killed"
    if len(row["errors"]) - len(crashes) != (row["kind"] != "conformance.echo"):
        yield f"has the errors {row['errors']}"
