"""A caller's own objects never run as the owner, whatever they are named after."""

from typing import Any

import psycopg
from psycopg import sql

from support import OWNER
from support.sql.every_call import ADMIN, Login, Session, live

# Whatever runs it says as whom.
CANARY = """
create function pg_temp.canary(what text) returns boolean language plpgsql as
$$ begin raise notice 'canary % as %', what, current_user; return true; end $$
"""
# That the attack works, where a function is not as ours are.
CARELESS = f"""
create function public.careless() returns bigint language plpgsql security definer as
$$ begin return (select pg_catalog.count(*) from jobs_live); end $$;
alter function public.careless() owner to {OWNER};
grant execute on function public.careless() to public
"""
WORDS_IN_BODIES = r"""
select distinct lower(w.word[1])
from pg_proc as p
cross join lateral regexp_matches(p.prosrc, '[a-z_]\w+', 'gi') as w(word)
where p.pronamespace = to_regnamespace('pgwake')
"""
NAMES_OF_TYPES = """
select t.typname::text from pg_type as t
where t.typnamespace = 'pg_catalog'::regnamespace and t.typtype = 'b' and t.typelem = 0
  and t.typname = any (%s)
"""
FUNCTIONS_OF_CATALOG = """
select p.proname::text, pg_get_function_identity_arguments(p.oid),
  pg_get_function_result(p.oid)
from pg_proc as p
where p.pronamespace = 'pg_catalog'::regnamespace and p.prokind = 'f'
  and p.proname = any (%s)
"""
OPERATORS = [
    "=",
    "<>",
    "<",
    "<=",
    ">",
    ">=",
    "+",
    "-",
    "*",
    "||",
    "->",
    "->>",
    "#>>",
    "~",
    "@>",
    "&",
]
OPERANDS = [
    ("text", "text"),
    ("bigint", "bigint"),
    ("int", "int"),
    ("bigint", "int"),
    ("smallint", "int"),
    ("timestamptz", "timestamptz"),
    ("timestamptz", "interval"),
    ("interval", "interval"),
    ("jsonb", "jsonb"),
    ("jsonb", "text"),
    ("boolean", "boolean"),
]


def attack(session: Session) -> int:
    """Name objects of this session after all that the functions' bodies name."""
    words = [word for (word,) in session.execute(WORDS_IN_BODIES)]
    types = [name for (name,) in session.execute(NAMES_OF_TYPES, [words])]
    functions = session.execute(FUNCTIONS_OF_CATALOG, [words]).fetchall()
    mine = sql.Identifier(f"of_{session.info.user}")
    made = 0

    def attempt(statement: str, *names: Any) -> None:
        nonlocal made
        composed = sql.SQL(statement).format(*names)
        try:
            session.execute(composed)
        except psycopg.Error:
            return
        made += 1

    session.execute(CANARY)
    attempt("create schema {0}; grant all on schema {0} to public", mine)
    for word in words:
        attempt(
            "create temp view {0} as select pg_temp.canary({1}) as id;"
            " grant all on {0} to public",
            sql.Identifier(word),
            sql.Literal(f"view {word}"),
        )
    for name in types:
        attempt(
            "create domain {0}.{1} as pg_catalog.{1} check (pg_temp.canary({2}))",
            mine,
            sql.Identifier(name),
            sql.Literal(f"type {name}"),
        )
        # A view of that name has made a type of it.
        attempt("drop view if exists pg_temp.{}", sql.Identifier(name))
        attempt(
            "create domain pg_temp.{0} as pg_catalog.{0} check (pg_temp.canary({1}))",
            sql.Identifier(name),
            sql.Literal(f"type {name}"),
        )
    for name, arguments, result in functions:
        attempt(
            f"create function {{}}.{{}}({arguments}) returns {result} language plpgsql"
            " as $f$ begin perform pg_temp.canary({}); return null; end $f$",
            mine,
            sql.Identifier(name),
            sql.Literal(f"function {name}"),
        )
    for name in OPERATORS:
        for left, right in OPERANDS:
            attempt(
                f"create function {{}}.o(l {left}, r {right}) returns {left}"
                " language plpgsql as $f$ begin perform pg_temp.canary({});"
                " return null; end $f$",
                mine,
                sql.Literal(f"operator {name}"),
            )
            attempt(
                f"create operator {{0}}.{name} (function = {{0}}.o, leftarg = {left},"
                f" rightarg = {right})",
                mine,
            )
    attempt("set search_path = pg_temp, {}, pg_catalog", mine)
    return made


def test_nothing_of_a_callers_runs_as_the_owner(session: Login, admin_url: str) -> None:
    said: list[str] = []
    hostile = [session(f"app_{role}") for role in ("producer", "worker", "admin")]
    with psycopg.connect(admin_url, autocommit=True) as admin:
        admin.execute(
            "do $$ begin execute format('grant create on database %I to public',"
            " current_database()); end $$"
        )
        admin.execute(CARELESS)
    for attacker in hostile:
        assert attack(attacker) > 800
        attacker.add_notice_handler(lambda note: said.append(str(note.message_primary)))
        attacker.execute("select public.careless()")
        assert said[0] == f"canary view jobs_live as {OWNER}"
        said.clear()

    life = live(*hostile)

    assert ADMIN - life.called == {"raise_invalid"}
    assert [text for text in said if text.endswith(f"as {OWNER}")] == []
