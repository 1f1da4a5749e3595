"""Run a contract through psycopg: `DATABASE_URL=... python contract.py FILE`.

The format is in ../README.md. Exit code 0: each step went as expected; 1: one did not.
"""

import os
import re
import sys
from pathlib import Path

import psycopg

Values = dict[str, str | None]


class Session:
    """A connection in autocommit, and what it has been notified of."""

    def __init__(self, url: str) -> None:
        self.heard: list[str] = []
        self.connection = psycopg.connect(url, autocommit=True)
        self.connection.add_notify_handler(
            lambda note: self.heard.append(f"{note.channel} {note.payload}")
        )

    def answer(self, sql: str, values: Values) -> tuple[str | None, str | None]:
        """Run a statement; its first value (or what stands for it), and SQLSTATE."""
        parameters = [values[name] for name in re.findall(r"\{(\w+)\}", sql)]
        try:
            cursor = self.connection.execute(re.sub(r"\{\w+\}", "%s", sql), parameters)
        except psycopg.Error as error:
            return None, error.sqlstate
        row = cursor.fetchone() if cursor.description else None
        return (row[0] if row else "(no row)"), None


def run(path: Path, url: str) -> int:
    """Run the steps of a file; how many. Raises AssertionError at one that differs."""
    sessions: dict[str, Session] = {}
    values: Values = {}
    steps = path.read_text().split("\n-- step: ")[1:]
    for step in steps:
        title, _, rest = step.partition("\n")
        wanted = dict(re.findall(r"^-- (in|expect|error|keep|hears): (.*)$", rest, re.M))
        sql = "\n".join(line for line in rest.splitlines() if not line.startswith("--"))
        name = wanted.get("in", "a")
        if name not in sessions:
            sessions[name] = Session(url)
        session = sessions[name]
        answer, error = session.answer(sql, values)
        if "keep" in wanted and error is None:
            kept = answer.split("\n") if answer is not None else [None]
            values |= zip(wanted["keep"].split(), kept, strict=True)
        heard = ", ".join(session.heard) or "(nothing)"
        if "hears" in wanted:
            session.heard.clear()
        got = {
            "expect": "(null)" if answer is None else answer or "(empty)",
            "error": error,
            "hears": heard,
        }
        for word in ("error", "expect", "hears"):
            expected = wanted.get(word)
            if expected is not None:
                expected = re.sub(r"\{(\w+)\}", lambda m: str(values[m[1]]), expected)
            elif word != "error":
                continue
            if got[word] != expected:
                message = f'step "{title}": expected {word} {expected}, got {got[word]}'
                raise AssertionError(message)
    return len(steps)


if __name__ == "__main__":
    try:
        print(run(Path(sys.argv[1]), os.environ["DATABASE_URL"]), "steps")
    except AssertionError as difference:
        print(difference)
        sys.exit(1)
