-- Installs pgwake, or brings it up to date. In one transaction; safe to run again,
-- while jobs run too.
--
--   psql -v ON_ERROR_STOP=1 -d mydatabase -f sql/install.sql
--
-- Needs a role that may create a schema in the database, or is a member of the one that
-- owns schema pgwake; no superuser, no extension. Grants nothing.
--
-- What is missing is made first, then the functions. What locks a table that is in use
-- comes last, so that the lock is held until the commit and no longer: the migrations.
\set ON_ERROR_STOP on
begin isolation level read committed read write;

-- Not what a role or a database sets for others; time-outs first, before they pass.
set local idle_in_transaction_session_timeout = 0;
set local statement_timeout = 0;
set local client_min_messages = warning;
set local search_path = pg_catalog, pg_temp;
set local standard_conforming_strings = on;
set local check_function_bodies = on;
do $timeout$
begin
  if current_setting('transaction_timeout', true) is not null then  -- from PostgreSQL 17 on
    set local transaction_timeout = 0;
  end if;
end
$timeout$;

-- "if not exists" is not safe against another installer at the same instant, so they
-- take turns. Each may wait for its tables as long as pgwake.lock_patience says.
do $lock$
declare
  v_patience interval := coalesce(nullif(current_setting('pgwake.lock_patience', true), ''), '1 minute');
begin
  perform set_config('lock_timeout', greatest(ceil(2000 * extract(epoch from v_patience)), 1) || 'ms', true);
  perform pg_advisory_xact_lock(1885828971, 0);
exception when lock_not_available then
  raise exception using
    errcode = 'lock_not_available',
    message = 'another installation of pgwake goes on in this database',
    hint = 'Run it again when that has ended: nothing has been changed.';
end
$lock$;
-- No table of the queue's users is waited for until the migrations: only vacuum and its like.
set local lock_timeout = '10s';

\ir schema.sql
\ir functions/base/index.sql
\ir functions/policy/index.sql
\ir functions/announce/index.sql
\ir functions/wake/index.sql
\ir functions/admit/index.sql
\ir functions/enqueue/index.sql
\ir functions/claim/index.sql
\ir functions/finish/index.sql
\ir functions/steps/index.sql
\ir functions/operate/index.sql
\ir functions/stats/index.sql
\ir functions/upkeep/index.sql
\ir functions/schedules/index.sql
\ir functions/explain/index.sql
\ir functions/diagnose/index.sql
\ir triggers.sql
do $ids$ begin perform pgwake.lift_ids(); end $ids$;

-- Whatever else they wait for keeps the queue's users waiting: rather fail.
set local lock_timeout = '200ms';
\ir migrations/2.sql
\ir version_row.sql

commit;
