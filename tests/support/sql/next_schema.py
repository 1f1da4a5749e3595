"""A next version of the schema, as a release may bring it: for tests of upgrades.

Made from the tree: a column of every leaf and one of a policy table, another check and
another index on the hot leaf, functions that do otherwise, and one that takes more than
the one that it stands beside.
"""

import re
import shutil
from pathlib import Path

import pytest

from pgwake.database import install as installing
from pgwake.database.install import sql_directory
from pgwake.version import SCHEMA_VERSION

NEXT_VERSION = SCHEMA_VERSION + 1

_OTHERWISE = ("claim_rows", "complete_jobs", "extend_leases", "enqueue")
_MIGRATION = f"""
do $migration$
begin
  if current_setting('pgwake.installed_version')::int
     not between 1 and {SCHEMA_VERSION} then
    return;
  end if;
  perform pgwake.lock_tables('pgwake.jobs', 'pgwake.queues');

  alter table pgwake.jobs add column note text,
    add constraint jobs_note_is_short check (octet_length(note) <= 100);
  alter table pgwake.queues add column note text;
  drop index pgwake.jobs_unique_key_idx;
  create unique index jobs_unique_key_idx on pgwake.jobs_live (kind, unique_key)
    include (note) where unique_key is not null;
end
$migration$;
"""
_NEW_FUNCTION = """
create or replace function pgwake.complete_jobs_with(
  job_ids bigint[], lease_ids uuid[], results jsonb[] default null, note text default ''
)
returns text[]
language sql
set search_path = pg_catalog, pg_temp
as $$
  select pgwake.complete_jobs(job_ids, lease_ids, results)
$$;
comment on function pgwake.complete_jobs_with is 'Completes.';
revoke all on function pgwake.complete_jobs_with from public;
"""


@pytest.fixture
def next_schema(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of a next version's files, which install() takes."""
    directory = make_next_schema(tmp_path)
    monkeypatch.setattr(installing, "sql_directory", lambda: directory)
    return directory


def make_next_schema(directory: Path) -> Path:
    """Write its files into a folder; install.sql among them."""
    sql = directory / "sql"
    shutil.copytree(sql_directory(), sql)
    migrations = sql / "migrations"
    migrations.mkdir(exist_ok=True)  # git keeps no empty folder
    (migrations / f"{NEXT_VERSION}.sql").write_text(_MIGRATION)
    (sql / "functions/finish/complete_jobs_with.sql").write_text(_NEW_FUNCTION)
    for name in _OTHERWISE:
        _change(
            next(sql.glob(f"functions/*/{name}.sql")),
            ("\nbegin\n", "\nbegin\n  perform 'next';\n"),
        )
    _change(
        sql / "version.sql",
        (
            f"this_version constant int := {SCHEMA_VERSION}",
            f"this_version constant int := {NEXT_VERSION}",
        ),
    )
    after = "\n\\ir version_row.sql\n"
    _change(
        sql / "install.sql", (after, f"\n\\ir migrations/{NEXT_VERSION}.sql{after}")
    )
    _change(
        sql / "functions/finish/index.sql",
        (
            "\\ir complete_job.sql\n",
            "\\ir complete_job.sql\n\\ir complete_jobs_with.sql\n",
        ),
    )
    _change(
        sql / "schema.sql",
        (
            "\n  constraint jobs_lease_matches_status check (",
            """
  note text,
  constraint jobs_note_is_short check (octet_length(note) <= 100),
  constraint jobs_lease_matches_status check (""",
        ),
        (
            "\n  constraint queues_pkey primary key (name),",
            "\n  note text,\n  constraint queues_pkey primary key (name),",
        ),
        (
            "pgwake.jobs_live (kind, unique_key)\n    where",
            "pgwake.jobs_live (kind, unique_key) include (note)\n    where",
        ),
    )
    return sql


def _change(path: Path, *changes: tuple[str, str]) -> None:
    text = path.read_text()
    for old, new in changes:
        assert len(re.findall(re.escape(old), text)) == 1, f"{old!r} in {path}"
        text = text.replace(old, new)
    path.write_text(text)
