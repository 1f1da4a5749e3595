"""The door of plain SQL: INSERT and COPY into every column that a role may fill."""

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import psycopg
from hypothesis import strategies as st

from . import values, verdict
from .calls import NAMED, TYPES, goes_on, session_of
from .stage import Stage

logging.getLogger("psycopg").setLevel(logging.ERROR)  # what COPY refuses is counted

COLUMNS = """
select r.rolname, c.relname, array_agg(a.attname::text order by a.attnum),
  array_agg(
    format_type(coalesce(nullif(t.typbasetype, 0), t.oid), null) order by a.attnum)
from pg_class as c
join pg_attribute as a on a.attrelid = c.oid and a.attnum > 0 and not a.attisdropped
join pg_type as t on t.oid = a.atttypid
cross join (values ('producer'), ('admin')) as r(rolname)
where c.relnamespace = 'pgwake'::regnamespace and c.relkind in ('r', 'p')
  and has_column_privilege('pgwake_' || r.rolname, c.oid, a.attnum, 'insert')
group by r.rolname, c.relname
"""
NEEDED = {"kind", "queue", "name", "key"}  # nothing is looked at without them


@dataclass(frozen=True, slots=True)
class Rows:
    """Rows for a table, by INSERT or COPY."""

    role: str
    table: str
    columns: Sequence[str]
    rows: Sequence[Sequence[str | None]]
    form: str

    def __str__(self) -> str:
        return (
            f"{self.role} {self.form} {self.table} {self.columns}: {self.rows!r:.2000}"
        )


@cache
def _value(column: str, type_: str) -> "st.SearchStrategy[str | None]":
    chosen: st.SearchStrategy[Any] = (
        st.one_of(
            st.lists(values.ID, max_size=4).map(lambda ids: "{" + ",".join(ids) + "}"),
            st.sampled_from(["{}", "{{1,2},{3,4}}", "[0:1]={1,2}", "{NULL}", "{1"]),
            st.just("{" + "1," * 10_000 + "1}"),
        )
        if type_.endswith("[]")
        else TYPES[type_]
    )
    if column in NAMED and not type_.endswith("[]"):
        chosen = values.mostly(NAMED[column], chosen, 6)
    return values.mostly(chosen, st.none(), 40 if column in NEEDED else 10)


@st.composite
def _rows(draw: st.DrawFn, found: Sequence[tuple[str, str, Mapping[str, str]]]) -> Rows:
    role, table, types = draw(st.sampled_from(found))
    columns = [name for name in types if name in NEEDED or draw(st.integers(0, 3)) == 0]
    rows = [
        [draw(_value(name, types[name])) for name in columns]
        for _ in range(draw(st.integers(1, 3)))
    ]
    form = draw(st.sampled_from(["insert", "insert", "skip", "copy"]))
    return Rows(role, table, columns, rows, form)


class Inserts:
    """Rows of jobs as producers add them, and of policy as admins do."""

    name = "insert"

    def __init__(self, stage: Stage) -> None:
        with psycopg.connect(stage.owner_url) as owner:
            found = [
                (role, table, dict(zip(names, types, strict=True)))
                for role, table, names, types in owner.execute(COLUMNS)
            ]
        jobs = [one for one in found if one[1] == "jobs"]
        assert len(found) > len(jobs) == 2, "an admin is a producer, and sets policy"
        self.inputs = _rows([*jobs * 3, *found])
        self._sessions = {
            role: session_of(stage, role) for role in ("producer", "admin")
        }

    def put(self, given: Rows) -> str:
        """Add the rows; what became of it."""
        session = self._sessions[given.role]
        try:
            self._add(session, given)
        except UnicodeEncodeError:
            outcome = verdict.CLIENT
        except psycopg.Error as error:
            outcome = verdict.of_database(error)
        else:
            outcome = verdict.ACCEPTED
        goes_on(session)
        return outcome

    def _add(self, session: "psycopg.Connection[tuple[Any, ...]]", given: Rows) -> None:
        names = ", ".join(f'"{name}"' for name in given.columns)
        target = f"pgwake.{given.table} ({names})"
        if given.form == "copy":
            with session.cursor().copy(f"copy {target} from stdin") as copy:
                for row in given.rows:
                    copy.write_row(row)
            return
        places = "(" + ", ".join(["%s"] * len(given.columns)) + ")"
        rows = ", ".join([places] * len(given.rows))
        skip = " on conflict do nothing" if given.form == "skip" else ""
        session.execute(
            f"insert into {target} values {rows}{skip}",
            [value for row in given.rows for value in row],
        )

    def close(self) -> None:
        for session in self._sessions.values():
            session.close()
