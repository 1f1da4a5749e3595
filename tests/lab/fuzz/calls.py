"""The door of SQL functions: every one that a role may call, as the catalog has it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import psycopg
from hypothesis import strategies as st
from psycopg.rows import tuple_row
from psycopg.types.string import TextLoader

from . import values, verdict
from .stage import Stage

FUNCTIONS = """
select r.rolname, p.proname, array_agg(a.name order by a.place),
  array_agg(a.type order by a.place),
  array_agg(a.place > p.pronargs - p.pronargdefaults order by a.place)
from pg_proc as p
cross join (values ('producer'), ('worker'), ('admin')) as r(rolname)
left join lateral (
  select row_number() over (order by n.place) as place, n.name,
    format_type(n.type, null) as type
  from unnest(
    p.proargnames, coalesce(p.proallargtypes, p.proargtypes::oid[]),
    coalesce(p.proargmodes, array_fill('i'::"char", array[p.pronargs]))
  ) with ordinality as n(name, type, mode, place)
  where n.mode in ('i', 'b', 'v')
) as a on true
where p.pronamespace = 'pgwake'::regnamespace and p.prokind = 'f'
  and has_function_privilege('pgwake_' || r.rolname, p.oid, 'execute')
group by r.rolname, p.proname, p.oid
order by r.rolname, p.proname
"""
# Null means all queues there, the good jobs' too, and whoever asks for it gets it.
SPARED = {"cancel_jobs": "queue", "update_jobs": "queue"}
# It raises what it is told to.
LEFT_OUT = {"raise_invalid"}
# Its contract says that a field of another type is an error of class 22.
OF_CLASS_22 = {"enqueue_many", "update_jobs"}

TYPES: Mapping[str, values.Text] = {
    "bigint": values.ID,
    "boolean": values.BOOLEAN,
    "double precision": values.FLOAT,
    "integer": values.INTEGER,
    "interval": values.INTERVAL,
    "jsonb": values.JSON,
    "smallint": values.INTEGER,
    "text": values.TEXT,
    "timestamp with time zone": values.TIME,
    "uuid": values.UUID,
}
NAMED: Mapping[str, values.Text] = {
    "queue": values.NAME,
    "kind": values.NAME,
    "worker": values.NAME,
    "name": values.NAME,
    "unique_key": values.NAME,
    "concurrency_key": values.NAME,
    "payload": values.JSON_OBJECT,
    "metadata": values.JSON_OBJECT,
    "kinds": st.dictionaries(values.NAME, values.OBJECT, max_size=3).map(values.dumped),
    "jobs": values.JOBS,
    "changes": values.CHANGES,
    "step": st.sampled_from(values.WORDS),
    "status": st.sampled_from(values.WORDS),
    "reason": st.sampled_from(values.WORDS),
    "on_conflict": st.sampled_from(values.WORDS),
    "on_parent_failure": st.sampled_from(values.WORDS),
    "misfire": st.sampled_from(values.WORDS),
    "timezone": st.sampled_from(values.WORDS),
    "cron": st.sampled_from(values.WORDS),
    "webhook": st.sampled_from(values.WORDS),
}


@dataclass(frozen=True, slots=True)
class Parameter:
    name: str
    type: str
    has_default: bool


@dataclass(frozen=True, slots=True)
class Call:
    """A call; arguments are texts to be cast, as a client sends them."""

    role: str
    function: str
    arguments: Sequence[tuple[Parameter, str | None]]

    def __str__(self) -> str:
        given = ", ".join(
            f"{parameter.name} => {_shown(value)}::{parameter.type}"
            for parameter, value in self.arguments
        )
        return f"select * from pgwake.{self.function}({given})  -- as {self.role}"

    @property
    def statement(self) -> str:
        given = ", ".join(
            f'"{parameter.name}" => cast(%s as {parameter.type})'
            for parameter, _ in self.arguments
        )
        return f"select * from pgwake.{self.function}({given})"


def _shown(value: str | None) -> str:
    if value is None:
        return "null"
    if len(value) > 400:
        return f"{value[:40]!r} ... ({len(value)} characters)"
    return repr(value)


@cache
def _value(parameter: Parameter, length: int) -> "st.SearchStrategy[str | None]":
    """A value for a parameter, mostly of its domain; an array mostly as long."""
    name, type_ = parameter.name, parameter.type
    if type_.endswith("[]"):
        item = _value(Parameter(name.removesuffix("s"), type_[:-2], True), 0)
        return _array(item, length)
    any_of_type = TYPES[type_]  # a type that is new here is to be thought about
    chosen: st.SearchStrategy[Any] = any_of_type
    if name in NAMED and type_ in ("text", "jsonb"):
        chosen = values.mostly(NAMED[name], any_of_type, 4)
    return values.mostly(chosen, st.none(), 8)


def _array(
    item: "st.SearchStrategy[str | None]", length: int
) -> "st.SearchStrategy[str | None]":
    odd = st.one_of(
        st.lists(item, max_size=5).map(_literal),
        st.none(),
        st.sampled_from(["{}", "{{1,2},{3,4}}", "[0:1]={1,2}", "{NULL}", "{1", "{{}}"]),
        st.builds(
            lambda one, count: _literal([one] * count),
            item.filter(lambda one: len(one or "") < 100),
            st.sampled_from([100, 10_001]),
        ),
    )
    usual = st.lists(item, min_size=length, max_size=length).map(_literal)
    return values.mostly(usual, odd, 6)


def _literal(items: Sequence[str | None]) -> str:
    quoted = (
        "NULL"
        if item is None
        else '"' + item.replace("\\", "\\\\").replace('"', '\\"') + '"'
        for item in items
    )
    return "{" + ",".join(quoted) + "}"


@st.composite
def _calls(
    draw: st.DrawFn, found: Sequence[tuple[str, str, Sequence[Parameter]]]
) -> Call:
    role, function, parameters = draw(st.sampled_from(found))
    length = draw(st.integers(0, 3))
    spared = SPARED.get(function)
    arguments = []
    for parameter in parameters:
        if parameter.has_default and parameter.name != spared and draw(st.booleans()):
            continue
        value = draw(_value(parameter, length))
        if parameter.name == spared and value is None:
            value = "fuzz"
        arguments.append((parameter, value))
    return Call(role, function, arguments)


class Calls:
    """Functions of pgwake called by each role that may."""

    name = "sql"

    def __init__(self, stage: Stage) -> None:
        with psycopg.connect(stage.owner_url, row_factory=tuple_row) as owner:
            found = [
                (
                    role,
                    function,
                    [
                        Parameter(*parameter)
                        for parameter in zip(names, types, defaults, strict=True)
                        if parameter[0] is not None
                    ],
                )
                for role, function, names, types, defaults in owner.execute(FUNCTIONS)
                if function not in LEFT_OUT
            ]
        assert len(found) > 100, "the catalog tells of no functions"
        self.inputs = _calls(found)
        self._sessions = {
            role: session_of(stage, role) for role in ("producer", "worker", "admin")
        }

    def put(self, call: Call) -> str:
        """Call it; what became of it."""
        session = self._sessions[call.role]
        try:
            session.execute(call.statement, [value for _, value in call.arguments])
        except UnicodeEncodeError:
            outcome = verdict.CLIENT
        except psycopg.Error as error:
            code = error.sqlstate or ""
            if call.function in OF_CLASS_22 and code.startswith("22"):
                outcome = code
            else:
                is_typed = _is_typed(session, call)
                outcome = verdict.of_database(error, is_of_text=not is_typed)
        else:
            outcome = verdict.ACCEPTED
        goes_on(session)
        return outcome

    def close(self) -> None:
        for session in self._sessions.values():
            session.close()


def _is_typed(session: "psycopg.Connection[tuple[Any, ...]]", call: Call) -> bool:
    """Whether each argument is of its type, so that what is refused is not its text.

    What PostgreSQL puts inline tells nothing of the function that it came from.
    """
    casts = ", ".join(
        f"cast(%s as {parameter.type})" for parameter, _ in call.arguments
    )
    try:
        session.execute(f"select {casts}", [value for _, value in call.arguments])
    except psycopg.Error:
        return False
    return True


def session_of(stage: Stage, role: str) -> "psycopg.Connection[tuple[Any, ...]]":
    """A session as applications have it, in autocommit; what takes long is a fault."""
    session = psycopg.connect(
        stage.role_url(role),
        autocommit=True,
        options="-c statement_timeout=10s",
    )
    # What Python can't hold is no matter here: years beyond 9999, infinity.
    for type_ in ("timestamptz", "interval", "jsonb"):
        session.adapters.register_loader(type_, TextLoader)
    return session


def goes_on(session: "psycopg.Connection[tuple[Any, ...]]") -> None:
    """See that a session still answers."""
    try:
        answer = session.execute("select 7").fetchone()
    except psycopg.Error as error:
        verdict.fault("the session does not go on", error)
    if answer != (7,):
        verdict.fault("the session answers something else", answer)
