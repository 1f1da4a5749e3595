"""What a session may set for itself changes nothing of what becomes of jobs."""

from contextlib import suppress

import psycopg
from psycopg.types.string import TextLoader

from support.sql.every_call import Login, Session, live, rows_of_jobs

# From PostgreSQL 19 on there are no strings but the standard's, which it says.
STRINGS = {"standard_conforming_strings": "off", "escape_string_warning": "off"}
SINCE_19 = (psycopg.errors.FeatureNotSupported, psycopg.errors.UndefinedObject)

# Not the isolation, which limits and retention refuse by name: see test_claim_races.py.
SETTINGS = {
    **STRINGS,
    "backslash_quote": "off",
    "transform_null_equals": "on",
    "array_nulls": "on",
    "datestyle": "SQL, DMY",
    "intervalstyle": "sql_standard",
    "timezone": "Asia/Kathmandu",
    "extra_float_digits": "-15",
    "bytea_output": "escape",
    "xmloption": "document",
    "row_security": "off",
    "quote_all_identifiers": "on",
    "search_path": '"$user", public',
    "plan_cache_mode": "force_custom_plan",
    "enable_indexscan": "off",
    "enable_bitmapscan": "off",
    "jit_above_cost": "0",
    "plpgsql.extra_errors": "too_many_rows",
    "pgwake.clock_offset": "-100 years",
    "pgwake.exact_rows": "1",
    "pgwake.later_share": "0.25",
    "pgwake.is_watching": "on",
    "pgwake.installed_version": "no number",
}

FORGET = """
do $$
declare
  t regclass;
begin
  for t in
    select c.oid from pg_class as c
    where c.relnamespace = 'pgwake'::regnamespace and c.relkind in ('r', 'p')
      and not c.relispartition
      and c.relname not in ('schema_version', 'installation', 'ring_slots')
  loop
    execute format('truncate %s', t);
  end loop;
  update pgwake.ring_slots set tried_at = '-infinity';
  alter sequence pgwake.jobs_id_seq restart;
end
$$
"""


def sessions(login: Login, settings: dict[str, str]) -> list[Session]:
    """A session of each role, with settings."""
    opened = [login(f"app_{role}") for role in ("producer", "worker", "admin")]
    for session in opened:
        for kind in ("timestamptz", "interval"):
            session.adapters.register_loader(kind, TextLoader)
        for name, value in settings.items():
            with suppress(*SINCE_19 if name in STRINGS else ()):
                session.execute("select set_config(%s, %s, false)", [name, value])
    return opened


def test_no_setting_of_a_session_changes_what_becomes_of_jobs(
    session: Login, admin_url: str
) -> None:
    found = []
    with psycopg.connect(admin_url, autocommit=True) as owner:
        for settings in ({}, SETTINGS):
            owner.execute(FORGET)
            life = live(*sessions(session, settings))
            found.append((life.answers, rows_of_jobs(owner)))
    (expected, jobs), (answers, jobs_of_hostile) = found
    assert answers == expected
    assert jobs_of_hostile == jobs
    assert len(jobs) > 8
