"""Run a contract through psycopg: `DATABASE_URL=... python contract.py FILE`.

The format is in ../README.md. Exit code 0: each step went as expected; 1: one did not.
"""

import os
import re
import sys
from pathlib import Path

import psycopg

DIRECTIVE = re.compile(r"^-- (in|expect|error|keep|hears): (.*)$", re.MULTILINE)
NAME = re.compile(r"\{(\w+)\}")


class Session:
    """A connection in autocommit, and what it has been notified of."""

    def __init__(self) -> None:
        self.heard: list[str] = []
        url = os.environ["DATABASE_URL"]
        self.connection = psycopg.connect(url, autocommit=True)
        self.connection.add_notify_handler(
            lambda note: self.heard.append(f"{note.channel} {note.payload}")
        )


class Contract:
    """The sessions and the values of a run."""

    def __init__(self) -> None:
        self.sessions: dict[str, Session] = {}
        self.values: dict[str, str | None] = {}

    def run(self, step: str) -> str | None:
        """Run a step; how it differs from what was expected, or None."""
        title, _, rest = step.partition("\n")
        wanted = dict(DIRECTIVE.findall(rest))
        sql = "\n".join(line for line in rest.splitlines() if not line.startswith("--"))
        name = wanted.get("in", "a")
        if name not in self.sessions:
            self.sessions[name] = Session()
        session = self.sessions[name]

        got: dict[str, str | None] = {"error": None}
        try:
            parameters = [self.values[name] for name in NAME.findall(sql)]
            cursor = session.connection.execute(NAME.sub("%s", sql), parameters)
            row = cursor.fetchone() if cursor.description else None
            answer = row[0] if row else "(no row)"
            got["expect"] = "(null)" if answer is None else answer or "(empty)"
            if "keep" in wanted:
                kept = [None] if answer is None else answer.split("\n")
                self.values |= zip(wanted["keep"].split(), kept, strict=True)
        except psycopg.Error as error:
            got["error"] = error.sqlstate
        if "hears" in wanted:
            got["hears"] = ", ".join(session.heard) or "(nothing)"
            session.heard.clear()

        for word in ("error", "expect", "hears"):
            expected = wanted.get(word)
            if expected is not None:
                expected = NAME.sub(lambda name: str(self.values[name[1]]), expected)
            if got.get(word) != expected and (word == "error" or expected is not None):
                return (
                    f'step "{title}": expected {word} {expected}, got {got.get(word)}'
                )
        return None


def main() -> int:
    """Run the steps of the file; the exit code."""
    contract = Contract()
    steps = Path(sys.argv[1]).read_text().split("\n-- step: ")[1:]
    for step in steps:
        if difference := contract.run(step):
            print(difference)
            return 1
    print(len(steps), "steps")
    return 0


if __name__ == "__main__":
    sys.exit(main())
