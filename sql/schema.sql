-- pgwake: a job queue inside PostgreSQL.
--
-- Flow     insert into pgwake.jobs -> trigger -> NOTIFY pgwake -> claim_* -> run -> complete_* or fail_*
--
-- Rooms    pgwake.jobs            what users insert into and select from; list-partitioned by status
--            jobs_live            waiting, pending, running: small and hot
--            jobs_failed          failed: the dead letters
--            jobs_finished        completed, cancelled: a ring of 32 leaves, one a day (or installation.width days),
--                                 emptied by truncate once its newest row is past its retention
--          pgwake.queues          policy, one optional row a queue; without a row the defaults hold
--          pgwake.kinds           policy, one optional row a kind: declared by workers, overridden by operators
--          pgwake.concurrency_limits  of single concurrency keys
--          pgwake.dependencies    which live jobs others wait for
--          pgwake.rechecks        when to check again whether a job that waits can be admitted
--          pgwake.steps           what live jobs have recorded; an ended job's are in its own row
--          pgwake.waits           which live jobs wait for an event, or for another job
--          pgwake.events          what has happened, for jobs that wait for it
--          pgwake.missed_renewals  of leases whose job's row was locked at that moment
--          pgwake.rate_buckets    what is left of each queue's rate
--          pgwake.key_buckets     what is used of concurrency keys' rates
--          pgwake.kind_buckets    what is left of each kind's rate
--          pgwake.unique_periods  unique keys that stay taken when their job has ended
--          pgwake.kind_waiters    which queues wait for room of which kinds
--          pgwake.schedules       recurring jobs, by cron or by an interval
--          pgwake.workers         who works, for people to look at
--          pgwake.upkeep_turns    which worker does the upkeep
--          pgwake.counts          what happened when, and what rows came and went by it, appended by every statement
--            count_sums           the same, folded by maintain('fold'); the view count_rows is both together
--            count_leaves         rows in each leaf of the ring, for when it is truncated
--            count_folds          how far the last fold came
--          pgwake.installation    settings of the installation itself
--          pgwake.schema_version  what is installed
--
-- States   (insert) -> pending -> running -> completed
--          running -> pending     fail_job with attempts left, snooze_job, release_jobs, a crash
--          running -> failed      attempts used up, told not to retry, or crashed too often
--          waiting, pending, running -> cancelled     asked for, or not started by expires_at
--          failed, cancelled -> pending     retry_job
--          (insert) -> waiting    it has a concurrency_key, or parents (depends_on); waiting -> pending: its parents have
--                                 ended, the key has room, and the job is due
--          running -> waiting     as running -> pending, of a job with a key that is not due at once; await_event, await_job
--          running -> pending     sleep_job, due at the end of the sleep
--          failed, cancelled -> waiting     retry_job, of a job with a key or parents
--
-- Invariants (the named checks below say the same; what a column can hold is said by its domain)
--          a job has a lease if and only if it is running; an ended job keeps its lease_id, so that the same end
--          repeated after a lost answer is answered as the first time
--          finished_at is set if and only if the job has ended; finished_slot if and only if it lies in the ring
--          kind and unique_key are unique together among live jobs
--          a waiting job waits for parents or an answer (has_parents_left), or for the room of its key; no other does
--          only functions change a status, and each change of a running job is fenced by its lease_id
--
-- Crashes  A job whose process died or whose lease ran out has crashed. Crashes 1 and 2 give the attempt back. A job
--          that crashed once is claimed by at most one a claim; from crash 2 on it is a suspect and ordinary claims
--          leave it out (claim_rows(suspects => true) and claim_next_job take it); from crash 3 on the attempt counts,
--          and at max_crashes the job is failed.
--
-- Order    of locks: rows of jobs_live by id, then rows of the leaf a job moves to. Rows of unique_periods come
--          after those of jobs, by kind and key. Sweep, renewal and give-back skip locked rows: whoever holds one is
--          ending it, or writes under its lease (see pgwake.missed_renewals). Claims skip locked rows, of children and their parents too, and so
--          do ends when they admit what waits. So no two statements can deadlock.
--          Advisory locks use the two-key form with 1885828971 ('pgwk') first: 0 install, 1 sweep, 2 fold, 3 retention,
--          4 analyze, 5 recount, 6 keys, 7 children, 8 ids; 1885828973 ('pgwm'): 0 is held by who watches status events;
--          1885828974 ('pgwn') with hashtext(queue/key): who admits jobs of a concurrency key, at most one a job and 100 a
--          claim; 1885828965 ('pgwe') with 0 to 255, of an event's name: shared who emits it, at his commit, and alone who is
--          about to wait for it; 1885828975 ('pgwo') with hashtext(queue): who claims from a queue with limits. Session-level are 1885828976
--          ('pgwp') with hashtext(queue): a tool (pgwake bench) whose own queue it is; and a queue's notify lock and duty
--          lock, with keys of 64 bits: notify_lock_key(queue), and the next.
--
-- Errors   PW001 no such job         PW002 lease lost          PW003 invalid argument
--          PW004 schema mismatch     PW005 duplicate unique key     PW006 the database is a copy, not adopted
--          PW007 queue is full

-- All is made by the schema's owner, whichever of its members, or superuser, runs this.
do $schema$
declare
  v_owner name;
begin
  select r.rolname into v_owner
  from pg_namespace as n join pg_roles as r on r.oid = n.nspowner
  where n.nspname = 'pgwake';
  if not found then
    if getdatabaseencoding() <> 'UTF8' then
      raise exception using
        errcode = 'feature_not_supported',
        message = format('database %I has the encoding %s, and pgwake needs UTF8', current_database(),
                         getdatabaseencoding()),
        hint = format('Make another: create database %I encoding ''UTF8'' template template0', current_database() || '_utf8');
    end if;
    if not has_database_privilege(current_database(), 'create') then
      raise exception using
        errcode = 'insufficient_privilege',
        message = format('role %I may not create a schema in database %I', current_user, current_database()),
        hint = format('Run it as another role, or let this one: grant create on database %I to %I',
                      current_database(), current_user);
    end if;
    create schema pgwake;
  elsif v_owner <> current_user then
    if not pg_has_role(v_owner, 'member') then
      raise exception using
        errcode = 'insufficient_privilege',
        message = format('schema pgwake belongs to role %I, and role %I is no member of it', v_owner, current_user),
        hint = format('Run it as %1$I, or let this role: grant %1$I to %2$I', v_owner, current_user);
    end if;
    perform set_config('role', v_owner, true);
  end if;
end
$schema$;
comment on schema pgwake is 'A job queue: insert into pgwake.jobs, see comments on its functions.';

create table if not exists pgwake.schema_version (
  singleton     boolean     not null default true,
  version       int         not null,
  installed_at  timestamptz not null default now(),
  updated_at    timestamptz not null default now(),
  serves_from   int         not null,  -- the oldest version whose workers can use this one

  constraint schema_version_pkey primary key (singleton),
  constraint schema_version_has_one_row check (singleton)
);

\ir version.sql
\ir functions/base/database_identity.sql

create table if not exists pgwake.installation (
  singleton    boolean not null default true,
  width        int     not null default 1,  -- days a leaf of the ring is filled for
  identity     text collate "C",            -- of the database that it is for; null: any
  environment  text collate "C",            -- such as production, that workers may insist on

  constraint installation_pkey primary key (singleton),
  constraint installation_has_one_row check (singleton),
  constraint installation_width_is_1_to_366_days check (width between 1 and 366),
  constraint installation_environment_is_1_to_128_bytes check (octet_length(environment) between 1 and 128)
);
insert into pgwake.installation (identity) values (pgwake.database_identity()) on conflict do nothing;

create table if not exists pgwake.queues (
  name                 text collate "C" not null,
  paused_until         timestamptz,                    -- 'infinity' until resumed
  lease                interval,                       -- default 5 minutes
  max_attempts         int,                            -- default 20
  max_crashes          int,                            -- default 5
  backoff_base         interval,                       -- default 1 second
  backoff_cap          interval,                       -- default 1 hour
  backoff_jitter       double precision,               -- default 1: of the delay, how much is drawn
  timeout              interval,                       -- of an attempt; default none
  priority             smallint,                       -- for enqueue(); default 0
  max_running          int,                            -- jobs that run at once; default no limit
  rate_limit           double precision,               -- claims a second; default no limit
  rate_burst           int,                            -- claims at once; default a second's worth, at least 1
  key_limit            int,                            -- jobs of a concurrency_key at once; default 1
  keep_order           boolean not null default false, -- a job to be retried keeps its key from the next
  retention_completed  interval,                       -- default 7 days, of cancelled ones too
  retention_failed     interval,                       -- default 90 days
  webhook              text,                           -- a URL that hears how its jobs ended
  wakeups              text not null default 'asleep', -- NOTIFY while somebody has the queue's notify lock, or always
  status_events        text not null default 'watched',
  drop_payloads        boolean not null default false, -- of jobs that complete
  key_rate             double precision,               -- starts a second of a concurrency_key; default no limit
  key_burst            int,                            -- of its starts at once; default a second's worth, at least 1
  max_pending          int,                            -- pending and waiting jobs, when one is inserted; default no limit

  constraint queues_pkey primary key (name),
  constraint queues_name_is_1_to_128_bytes check (octet_length(name) between 1 and 128),
  constraint queues_paused_until_is_infinity_or_before_year_10000
    check (paused_until = 'infinity' or paused_until < '9999-12-31 00:00+00'),
  constraint queues_lease_is_1_second_to_1_day
    check (lease between interval '1 second' and interval '1 day'),
  constraint queues_max_attempts_is_1_to_10000 check (max_attempts between 1 and 10000),
  constraint queues_max_crashes_is_1_to_100 check (max_crashes between 1 and 100),
  constraint queues_backoff_base_is_at_most_1_day
    check (backoff_base between interval '0' and interval '1 day'),
  constraint queues_backoff_cap_is_at_most_1_year
    check (backoff_cap between interval '0' and interval '1 year'),
  constraint queues_backoff_jitter_is_0_to_1 check (backoff_jitter between 0 and 1),
  constraint queues_timeout_is_up_to_1_day
    check (timeout > interval '0' and timeout <= interval '1 day'),
  constraint queues_priority_is_minus_100_to_100 check (priority between -100 and 100),
  constraint queues_max_running_is_1_to_100000 check (max_running between 1 and 100000),
  constraint queues_rate_limit_is_up_to_1000000_a_second
    check (rate_limit >= 0.00001 and rate_limit <= 1000000),
  constraint queues_rate_burst_is_1_to_1000000 check (rate_burst between 1 and 1000000),
  constraint queues_rate_burst_needs_rate_limit check (rate_burst is null or rate_limit is not null),
  constraint queues_key_limit_is_1_to_10000 check (key_limit between 1 and 10000),
  constraint queues_key_rate_is_up_to_1000000_a_second check (key_rate >= 0.00001 and key_rate <= 1000000),
  constraint queues_key_burst_is_1_to_1000000 check (key_burst between 1 and 1000000),
  constraint queues_retention_completed_is_at_most_10_years
    check (retention_completed between interval '0' and interval '10 years'),
  constraint queues_retention_failed_is_at_most_10_years
    check (retention_failed between interval '0' and interval '10 years'),
  constraint queues_webhook_is_an_http_url check (webhook ~ '^https?://[^\s/]' and octet_length(webhook) <= 2048),
  constraint queues_wakeups_is_known check (wakeups in ('asleep', 'always')),
  constraint queues_status_events_is_known check (status_events in ('watched', 'always', 'never')),
  constraint queues_max_pending_is_1_to_10000000 check (max_pending between 1 and 10000000),
  -- they come in the transactions of who ends jobs
  constraint queues_webhooks_have_no_max_pending check (max_pending is null or name <> 'pgwake.webhooks')
);

-- One optional row a kind. declared_*: what workers declare by their decorators, the newest version's; only they write
-- it. The others, which come first: what operators set; no worker writes it.
create table if not exists pgwake.kinds (
  name                     text collate "C" not null,
  max_attempts             int,
  backoff_base             interval,
  backoff_cap              interval,
  backoff_jitter           double precision,
  timeout                  interval,
  lease                    interval,
  priority                 smallint,
  check_payload            boolean not null default false,  -- against declared_schema, at INSERT
  declared_max_attempts    int,
  declared_backoff_base    interval,
  declared_backoff_cap     interval,
  declared_backoff_jitter  double precision,
  declared_timeout         interval,
  declared_lease           interval,
  declared_priority        smallint,
  declared_schema          jsonb,                           -- of the payload: a JSON Schema
  declared_version         int[],                           -- of the workers' application: 2026.11.2
  declared_by              text collate "C",
  declared_at              timestamptz,
  bounce_count             bigint not null default 0,       -- jobs given back by workers that don't know the kind
  bounced_at               timestamptz,
  max_running              int,                             -- jobs that run at once, in all queues; default no limit
  rate_limit               double precision,                -- starts a second, of all queues; default no limit
  rate_burst               int,                             -- starts at once; default a second's worth, at least 1
  expired_count            bigint not null default 0,       -- jobs not started by their expires_at; counted anew
  expired_at               timestamptz,                     -- after an hour without

  constraint kinds_pkey primary key (name),
  constraint kinds_name_is_1_to_128_bytes check (octet_length(name) between 1 and 128),
  constraint kinds_max_attempts_is_1_to_10000
    check ((max_attempts between 1 and 10000) is not false and (declared_max_attempts between 1 and 10000) is not false),
  constraint kinds_backoff_base_is_at_most_1_day check (
    (backoff_base between interval '0' and interval '1 day') is not false
    and (declared_backoff_base between interval '0' and interval '1 day') is not false),
  constraint kinds_backoff_cap_is_at_most_1_year check (
    (backoff_cap between interval '0' and interval '1 year') is not false
    and (declared_backoff_cap between interval '0' and interval '1 year') is not false),
  constraint kinds_backoff_jitter_is_0_to_1
    check ((backoff_jitter between 0 and 1) is not false and (declared_backoff_jitter between 0 and 1) is not false),
  constraint kinds_timeout_is_up_to_1_day check (
    (timeout > interval '0' and timeout <= interval '1 day') is not false
    and (declared_timeout > interval '0' and declared_timeout <= interval '1 day') is not false),
  constraint kinds_lease_is_1_second_to_1_day check (
    (lease between interval '1 second' and interval '1 day') is not false
    and (declared_lease between interval '1 second' and interval '1 day') is not false),
  constraint kinds_priority_is_minus_100_to_100
    check ((priority between -100 and 100) is not false and (declared_priority between -100 and 100) is not false),
  constraint kinds_declared_schema_is_an_object check (jsonb_typeof(declared_schema) = 'object'),
  constraint kinds_max_running_is_0_to_100000 check (max_running between 0 and 100000),
  constraint kinds_rate_limit_is_up_to_1000000_a_second check (rate_limit >= 0.00001 and rate_limit <= 1000000),
  constraint kinds_rate_burst_is_1_to_1000000 check (rate_burst between 1 and 1000000),
  constraint kinds_rate_burst_needs_rate_limit check (rate_burst is null or rate_limit is not null)
);

-- Limits of single concurrency keys, where they differ from their queue's key_limit and key_rate.
create table if not exists pgwake.concurrency_limits (
  queue        text collate "C" not null,
  key          text collate "C" not null,
  max_running  int,               -- 0: none of its jobs is started; null: as its queue says
  rate_limit   double precision,  -- starts a second; null: as its queue says

  constraint concurrency_limits_pkey primary key (queue, key),
  constraint concurrency_limits_queue_is_1_to_128_bytes check (octet_length(queue) between 1 and 128),
  constraint concurrency_limits_key_is_1_to_512_bytes check (octet_length(key) between 1 and 512),
  constraint concurrency_limits_max_running_is_0_to_10000 check (max_running between 0 and 10000),
  constraint concurrency_limits_rate_limit_is_up_to_1000000_a_second
    check (rate_limit >= 0.00001 and rate_limit <= 1000000),
  constraint concurrency_limits_has_a_limit check (num_nonnulls(max_running, rate_limit) > 0)
);

-- When to check again whether a job that waits can be admitted: for a concurrency key that may have room (one row for
-- each statement that brings such jobs, ends or puts off one that held the key, or raises its limit), or for a child, a
-- job that waits for its parents (one row when it comes, and one for each statement that ends some of them). Whoever
-- checks deletes it.
create table if not exists pgwake.rechecks (
  queue          text collate "C" not null,
  at             timestamptz not null,
  key            text collate "C",
  child_id       bigint,
  parent_id      bigint,            -- of a child: which parent; null: it has just come, and all are to be seen
  has_failed     boolean,           -- how that parent has ended; null: it has yet to be seen

  constraint rechecks_have_a_key_or_a_child check (num_nonnulls(key, child_id) = 1)
) with (
  autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 2000,
  autovacuum_vacuum_insert_threshold = -1, autovacuum_vacuum_cost_delay = 0
);

-- Which job waits for which: a row for each parent that was live when admit_children saw it. Whoever ends a job that
-- has_children deletes its rows, and sees to the children; see flag_children.
create table if not exists pgwake.dependencies (
  parent_id  bigint not null,
  child_id   bigint not null,

  constraint dependencies_pkey primary key (parent_id, child_id)
) with (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 5000, autovacuum_vacuum_cost_delay = 0);

-- Renewals that found the job's row locked, by somebody who ends the job or writes under its lease: a sweep that finds
-- the row free, and its lease over, does what they would have done.
create table if not exists pgwake.missed_renewals (
  job_id      bigint not null,
  lease_id    uuid not null,
  expires_at  timestamptz not null,

  constraint missed_renewals_pkey primary key (job_id)
) with (fillfactor = 50, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000);

-- The token bucket of each queue with a rate_limit.
create table if not exists pgwake.rate_buckets (
  queue      text collate "C" not null,
  tokens     double precision not null,
  filled_at  timestamptz not null,

  constraint rate_buckets_pkey primary key (queue)
) with (fillfactor = 50, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000);

-- The same of each kind with a rate_limit.
create table if not exists pgwake.kind_buckets (
  kind       text collate "C" not null,
  tokens     double precision not null,
  filled_at  timestamptz not null,

  constraint kind_buckets_pkey primary key (kind)
) with (fillfactor = 50, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000);

-- Which queues had jobs of a kind at its max_running, in the last minute or two: they are woken when one ends.
create table if not exists pgwake.kind_waiters (
  kind   text collate "C" not null,
  queue  text collate "C" not null,
  at     timestamptz not null,

  constraint kind_waiters_pkey primary key (kind, queue, at)
);

-- The token bucket of each concurrency key with a rate that is not full; see use_key_tokens.
create table if not exists pgwake.key_buckets (
  queue    text collate "C" not null,
  key      text collate "C" not null,
  full_at  timestamptz not null,

  constraint key_buckets_pkey primary key (queue, key)
) with (fillfactor = 50, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000);

-- Unique keys that stay taken until a time, whether their job has ended or not; see take_unique_periods.
create table if not exists pgwake.unique_periods (
  kind        text collate "C" not null,
  unique_key  text collate "C" not null,
  until       timestamptz not null,
  job_id      bigint not null,

  constraint unique_periods_pkey primary key (kind, unique_key)
) with (autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 5000, autovacuum_vacuum_cost_delay = 0);

-- Which live job waits for what: an event, or the end of another job. Until the answer is recorded as a step, so that
-- the first deadline holds however often the job asks.
create table if not exists pgwake.waits (
  job_id     bigint not null,
  name       text collate "C" not null,  -- of the step
  event      text collate "C",
  other_id   bigint,
  since      timestamptz not null,
  deadline   timestamptz,

  constraint waits_pkey primary key (job_id),
  constraint waits_name_is_1_to_512_bytes check (octet_length(name) between 1 and 512),
  constraint waits_event_is_1_to_512_bytes check (octet_length(event) between 1 and 512),
  constraint waits_are_for_an_event_or_a_job check (num_nonnulls(event, other_id) = 1)
) with (autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 5000, autovacuum_vacuum_cost_delay = 0);

-- Who works, for people to look at. Nothing rests on it: a worker's jobs rest on their own leases.
create table if not exists pgwake.workers (
  name        text collate "C" not null,  -- as in claimed_by
  host        text,
  pid         int,
  queues      text[] not null,
  kinds       text[] not null,
  version     text,
  started_at  timestamptz not null,
  seen_at     timestamptz not null,
  slots       int,                        -- jobs that it runs at once

  constraint workers_pkey primary key (name),
  constraint workers_name_is_1_to_512_bytes check (octet_length(name) between 1 and 512)
);

-- Which worker does the upkeep: one row, of the last turn; see take_upkeep.
create table if not exists pgwake.upkeep_turns (
  id         bigint not null,
  worker     text collate "C",      -- null: it has ended
  at         timestamptz not null,
  may_sweep  boolean not null,  -- its session has been up for long enough
  done       jsonb not null,    -- when each step was last done, by whichever worker, in seconds since 1970

  constraint upkeep_turns_pkey primary key (id)
) with (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000);

-- One row a statement that inserts, claims, ends or gives back, so that get_queue_stats counts no jobs. What a
-- statement has nothing to say about is null, which takes no room. The sums of *_rows are the rows that there are.
--
-- A fold adds up what it sees and deletes it. What it has not seen has a transaction id that was not yet given out, or
-- was that of an open transaction: readers look for these alone, by the index, and never wade through rows that were
-- deleted but are pinned by an old snapshot.
create table if not exists pgwake.counts (
  xid             xid8 not null default pg_current_xact_id(),
  queue           text collate "C" not null,
  at              timestamptz not null,
  enqueued        int,
  completed       int,
  failed          int,
  cancelled       int,
  queue_ms        double precision,   -- of the completed ones: due until started
  execution_ms    double precision,   -- of the completed ones: started until finished
  live_rows       int,                -- waiting, pending and running
  waiting_rows    int,
  running_rows    int,
  failed_rows     int,
  completed_rows  int,
  cancelled_rows  int,
  finished_slot   smallint,           -- of the last two
  retried         int                 -- attempts that failed, and are not the last
) with (
  autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 5000,
  autovacuum_vacuum_insert_threshold = -1, autovacuum_vacuum_cost_delay = 0
);

create table if not exists pgwake.count_folds (
  id         bigint not null,
  next_xid   xid8   not null,  -- not given out when it was made
  open_xids  xid8[] not null,  -- below next_xid, but not yet ended

  constraint count_folds_pkey primary key (id)
);

-- Written anew by each fold: one row a queue at '-infinity', and one for each half minute of the last six.
create table if not exists pgwake.count_sums (
  fold            bigint not null,
  queue           text collate "C" not null,
  at              timestamptz not null,
  enqueued        bigint not null,
  completed       bigint not null,
  failed          bigint not null,
  cancelled       bigint not null,
  queue_ms        double precision not null,
  execution_ms    double precision not null,
  live_rows       bigint not null,
  waiting_rows    bigint not null,
  running_rows    bigint not null,
  failed_rows     bigint not null,
  completed_rows  bigint not null,
  cancelled_rows  bigint not null,
  retried         bigint not null default 0,

  constraint count_sums_pkey primary key (fold, queue, at)
) with (
  autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 5000,
  autovacuum_vacuum_insert_threshold = -1, autovacuum_vacuum_cost_delay = 0
);

create table if not exists pgwake.count_leaves (
  finished_slot   smallint not null,
  queue           text collate "C" not null,
  completed_rows  bigint not null,
  cancelled_rows  bigint not null,

  constraint count_leaves_pkey primary key (finished_slot, queue)
) with (fillfactor = 50);

-- Inside a block: "create or replace view" would lock out readers on every run of the installer.
do $counts$
begin
  if to_regclass('pgwake.count_rows') is not null then
    return;
  end if;

  create index counts_xid_idx on pgwake.counts (xid);

  -- Every row that is to be summed: the last fold's, and what it has not seen. A next_xid beyond what this server has
  -- given out is from before a dump: then all rows are looked for. Rides count_folds_pkey backwards, count_sums_pkey
  -- and counts_xid_idx.
  create view pgwake.count_rows as
  with fold as (
    select f.id,
      case when f.next_xid <= pg_snapshot_xmax(pg_current_snapshot()) then f.next_xid end as next_xid,
      f.open_xids
    from pgwake.count_folds as f
    order by f.id desc
    limit 1
  )
  select s.queue, s.at, s.enqueued, s.completed, s.failed, s.cancelled, s.queue_ms, s.execution_ms,
    s.live_rows, s.waiting_rows, s.running_rows, s.failed_rows, s.completed_rows, s.cancelled_rows,
    null::smallint as finished_slot, null::tid as counts_tid, s.retried
  from pgwake.count_sums as s
  where s.fold = (select fold.id from fold)
  union all
  select c.queue, c.at, c.enqueued, c.completed, c.failed, c.cancelled, c.queue_ms, c.execution_ms,
    c.live_rows, c.waiting_rows, c.running_rows, c.failed_rows, c.completed_rows, c.cancelled_rows,
    c.finished_slot, c.ctid, c.retried
  from pgwake.counts as c
  where c.xid >= coalesce((select fold.next_xid from fold), '0')
  union all
  select c.queue, c.at, c.enqueued, c.completed, c.failed, c.cancelled, c.queue_ms, c.execution_ms,
    c.live_rows, c.waiting_rows, c.running_rows, c.failed_rows, c.completed_rows, c.cancelled_rows,
    c.finished_slot, c.ctid, c.retried
  from pgwake.counts as c
  where c.xid = any ((select fold.open_xids from fold)::xid8[]) and c.xid < (select fold.next_xid from fold);
end
$counts$;

create table if not exists pgwake.ring_slots (
  slot      smallint    not null,
  tried_at  timestamptz not null default '-infinity',  -- the last try to truncate it

  constraint ring_slots_pkey primary key (slot),
  constraint ring_slots_slot_is_0_to_31 check (slot between 0 and 31)
);
insert into pgwake.ring_slots (slot) select generate_series(0, 31) on conflict do nothing;

-- Read in one place, shifted by one setting in tests: set pgwake.clock_offset = '1 hour'.
\ir functions/base/clock_offset.sql
\ir functions/base/now.sql

create sequence if not exists pgwake.jobs_id_seq as bigint;

-- What a column can hold, by a domain each: a value is checked when it is set. As checks of the table, all would be read
-- and planned by each statement that claims or ends, 3 microseconds each. Not queue and kind: an array_agg of a domain
-- is unknown to some drivers.
do $domains$
begin
  if to_regtype('pgwake.job_result') is not null then
    return;
  end if;

  create domain pgwake.job_priority as smallint
    constraint jobs_priority_is_minus_100_to_100 check (value between -100 and 100);
  -- what every client can read: one date beyond, and a worker in Python would choke on each answer to its claims
  create domain pgwake.job_run_at as timestamptz
    constraint jobs_run_at_is_in_years_1_to_9999
      check (value >= '0001-01-02 00:00+00' and value < '9999-12-31 00:00+00');
  create domain pgwake.job_created_at as timestamptz
    constraint jobs_created_at_is_in_years_1_to_9999
      check (value >= '0001-01-02 00:00+00' and value < '9999-12-31 00:00+00');
  create domain pgwake.job_attempt as int
    constraint jobs_attempt_is_not_negative check (value >= 0);
  create domain pgwake.job_max_attempts as int
    constraint jobs_max_attempts_is_1_to_10000 check (value between 1 and 10000);
  create domain pgwake.job_crash_count as int
    constraint jobs_crash_count_is_not_negative check (value >= 0);
  create domain pgwake.job_bounce_count as int
    constraint jobs_bounce_count_is_not_negative check (value >= 0);
  -- Sizes are those of the text, which is what a claim sends: 1e131071 is short in jsonb and long for a consumer.
  create domain pgwake.job_claimed_by as text collate "C"
    constraint jobs_claimed_by_is_1_to_512_bytes check (octet_length(value) between 1 and 512);
  create domain pgwake.job_unique_key as text collate "C"
    constraint jobs_unique_key_is_1_to_512_bytes check (octet_length(value) between 1 and 512);
  create domain pgwake.job_concurrency_key as text collate "C"
    constraint jobs_concurrency_key_is_1_to_512_bytes check (octet_length(value) between 1 and 512);
  create domain pgwake.job_payload as jsonb
    constraint jobs_payload_is_an_object check (jsonb_typeof(value) = 'object')
    constraint jobs_payload_is_at_most_1_mib check (octet_length(value::text) <= 1048576);
  create domain pgwake.job_metadata as jsonb
    constraint jobs_metadata_is_an_object check (jsonb_typeof(value) = 'object')
    constraint jobs_metadata_is_at_most_64_kib check (octet_length(value::text) <= 65536);
  create domain pgwake.job_result as jsonb
    constraint jobs_result_is_at_most_1_mib check (octet_length(value::text) <= 1048576);
  create domain pgwake.job_progress as jsonb
    constraint jobs_progress_is_at_most_4_kib check (octet_length(value::text) <= 4096);
  create domain pgwake.job_depends_on as bigint[]
    constraint jobs_depends_on_has_1_to_10000_ids
      check (cardinality(value) between 1 and 10000 and array_ndims(value) = 1);
  create domain pgwake.job_on_parent_failure as text collate "C"
    constraint jobs_on_parent_failure_is_known check (value in ('cancel', 'run'));
  create domain pgwake.job_webhook as text collate "C"
    constraint jobs_webhook_is_an_http_url check (value ~ '^https?://[^\s/]' and octet_length(value) <= 2048);
end
$domains$;

-- What a claim changes stands together and what is long comes last, so that the WAL of a claim, which has an update's
-- bytes from the first that differs to the last, does not repeat the payload.
create table if not exists pgwake.jobs (
  id                   bigint           not null default nextval('pgwake.jobs_id_seq'),
  queue                text collate "C" not null default 'default',
  kind                 text collate "C" not null,
  status               text collate "C" not null default 'pending',
  priority             pgwake.job_priority  not null default 0,   -- higher first
  run_at               pgwake.job_run_at    not null default pgwake.now(),
  attempt              pgwake.job_attempt   not null default 0,   -- counted at the claim
  max_attempts         pgwake.job_max_attempts,                -- null: by policy
  lease_id             uuid,
  lease_expires_at     timestamptz,
  claimed_by           pgwake.job_claimed_by,
  started_at           timestamptz,
  finished_at          timestamptz,
  created_at           pgwake.job_created_at not null default pgwake.now(),
  crash_count          pgwake.job_crash_count not null default 0,
  bounce_count         pgwake.job_bounce_count not null default 0,   -- given back without having failed
  finished_slot        smallint,
  has_children         boolean,                               -- a job waits for its end; see pgwake.dependencies
  has_parents_left     boolean,                               -- it waits for the ends of others
  cancel_requested_at  timestamptz,
  unique_key           pgwake.job_unique_key,
  concurrency_key      pgwake.job_concurrency_key,
  fingerprint          text collate "C",                      -- of the last error of a dead letter
  on_parent_failure    pgwake.job_on_parent_failure,          -- default cancel
  webhook              pgwake.job_webhook,                    -- a URL that hears how it ended
  depends_on           pgwake.job_depends_on,                 -- its parents' ids
  payload              pgwake.job_payload not null default '{}',
  metadata             pgwake.job_metadata,
  progress             pgwake.job_progress,
  result               pgwake.job_result,
  errors               jsonb,                                 -- the last 20: attempt, at, worker, reason, message
  is_payload_dropped   boolean,                               -- payload is '{}' now: see queues.drop_payloads
  has_steps            boolean,                               -- of a live job: see pgwake.steps, pgwake.waits
  steps                jsonb,                                 -- of an ended one: see get_steps
  expires_at           timestamptz,                           -- cancelled if it is not started by then; null: never
  unique_until         timestamptz,                           -- see pgwake.unique_periods; null: while it is live

  constraint jobs_lease_matches_status check (
    case
      when status = 'running' then num_nulls(lease_id, lease_expires_at, claimed_by, started_at) = 0
        and has_parents_left is null
      when status = 'pending' then
        num_nonnulls(lease_id, lease_expires_at, claimed_by, started_at, cancel_requested_at, has_parents_left) = 0
      when status = 'waiting' then
        num_nonnulls(lease_id, lease_expires_at, claimed_by, started_at, cancel_requested_at) = 0
        and num_nonnulls(has_parents_left, concurrency_key) > 0
      else lease_expires_at is null
    end
  ),
  constraint jobs_end_matches_status check (
    case
      when status = 'completed' then num_nulls(finished_at, finished_slot) = 0 and fingerprint is null
      when status = 'cancelled' then
        num_nulls(finished_at, finished_slot) = 0 and num_nonnulls(result, fingerprint) = 0
      when status = 'failed' then finished_at is not null and num_nonnulls(finished_slot, result) = 0
      else num_nonnulls(finished_at, finished_slot, result, fingerprint) = 0
    end
  )
) partition by list (status);

-- Names can't change after this leaf, so they are checked here alone.
create table if not exists pgwake.jobs_live
  partition of pgwake.jobs (
    constraint jobs_live_pkey primary key (id),
    constraint jobs_queue_is_1_to_128_bytes check (octet_length(queue) between 1 and 128),
    constraint jobs_kind_is_1_to_128_bytes check (octet_length(kind) between 1 and 128)
  )
  for values in ('waiting', 'pending', 'running')
  with (
    autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 2000,
    autovacuum_analyze_scale_factor = 0.05, autovacuum_vacuum_cost_delay = 0,
    fillfactor = 40  -- a claim's new version of a row, which is longer, fits into its page
  );

create table if not exists pgwake.jobs_failed
  partition of pgwake.jobs (constraint jobs_failed_pkey primary key (id))
  for values in ('failed');

create table if not exists pgwake.jobs_finished
  partition of pgwake.jobs
  for values in ('completed', 'cancelled')
  partition by list (finished_slot);

do $leaves$
begin
  if to_regclass('pgwake.jobs_finished_31') is not null then
    return;
  end if;
  for slot in 0..31 loop
    execute format(
      'create table pgwake.jobs_finished_%1$s partition of pgwake.jobs_finished '
      '(constraint jobs_finished_%1$s_pkey primary key (id)) for values in (%1$s)', slot);
    execute format(
      'create index jobs_finished_%1$s_finished_at_idx on pgwake.jobs_finished_%1$s '
      'using brin (finished_at) with (pages_per_range = 16)', slot);
  end loop;

  -- What can be compressed came from jobs_live compressed, and is moved as it is: here nobody tries the rest again.
  alter table pgwake.jobs_failed alter payload set storage external, alter metadata set storage external;
  alter table pgwake.jobs_finished alter payload set storage external, alter metadata set storage external;
end
$leaves$;

-- What a live job has recorded, by name. When it ends they become one value of its row (see take_steps): so they go with
-- it, wherever it goes. Not one from the start: each step would write all before it again.
create table if not exists pgwake.steps (
  job_id       bigint not null,
  place        int not null,           -- 1, 2, ... as they were recorded
  name         text collate "C" not null,
  kind         text not null,          -- step, sleep, or event: the answer to a wait
  result       pgwake.job_result,      -- of an event its payload
  until        timestamptz,            -- of a sleep; of an event that did not come in time
  total_bytes  int not null,           -- of the results so far
  attempt      int not null,
  at           timestamptz not null,

  constraint steps_pkey primary key (job_id, name),
  constraint steps_name_is_1_to_512_bytes check (octet_length(name) between 1 and 512),
  constraint steps_are_at_most_1000_a_job check (place between 1 and 1000),
  constraint steps_kind_is_known check (kind in ('step', 'sleep', 'event')),
  constraint steps_results_are_at_most_16_mib_a_job check (total_bytes <= 16777216)
) with (autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 5000, autovacuum_vacuum_cost_delay = 0);

-- Facts, not messages: the first of a name counts, is never changed, and anybody may wait for it until it expires.
create table if not exists pgwake.events (
  name        text collate "C" not null,
  payload     pgwake.job_result not null default 'null',
  at          timestamptz not null default pgwake.now(),
  expires_at  timestamptz not null default pgwake.now() + interval '30 days',
  is_unseen   boolean,  -- it came under a snapshot that may miss who waits: maintain('children') is to look
  is_heard    boolean,  -- a job has recorded it; else diagnose tells of it when it expires

  constraint events_pkey primary key (name),
  constraint events_name_is_1_to_512_bytes check (octet_length(name) between 1 and 512)
);

-- Recurring jobs: see schedule() and fire_schedule().
create table if not exists pgwake.schedules (
  name             text collate "C" not null,
  cron             text,                               -- five fields, or @hourly and its like
  every            interval,                           -- one of the two
  timezone         text not null default 'UTC',        -- in which cron's times are
  kind             text collate "C" not null,
  payload          pgwake.job_payload not null default '{}',
  queue            text collate "C" not null default 'default',
  priority         pgwake.job_priority not null default 0,
  max_attempts     pgwake.job_max_attempts,
  metadata         pgwake.job_metadata,
  concurrency_key  pgwake.job_concurrency_key,
  may_overlap      boolean not null default true,      -- false: a tick is left out while the last job is live
  misfire          text not null default 'once',       -- of ticks that were missed: skip, once, all
  misfire_limit    int not null default 100,           -- of all: the newest so many
  starts_at        pgwake.job_run_at,                  -- no tick before it; the first one of every
  is_paused        boolean not null default false,
  next_at          pgwake.job_run_at,                  -- the next tick; null: a worker is to say
  last_at          pgwake.job_run_at,                  -- the last tick that was fired, or left out
  last_job_id      bigint,
  fired_count      bigint not null default 0,          -- ticks that became jobs
  left_out_count   bigint not null default 0,          -- ticks that came while the last job was live
  problem          text,                               -- why a tick can't be computed, or became no job
  problem_at       timestamptz,                        -- when that was last tried
  created_at       pgwake.job_created_at not null default pgwake.now(),
  updated_at       pgwake.job_created_at not null default pgwake.now(),  -- defined or resumed: ticks before it are not fired

  constraint schedules_pkey primary key (name),
  constraint schedules_name_is_1_to_128_bytes check (octet_length(name) between 1 and 128),
  constraint schedules_kind_is_1_to_128_bytes check (octet_length(kind) between 1 and 128),
  constraint schedules_queue_is_1_to_128_bytes check (octet_length(queue) between 1 and 128),
  constraint schedules_have_cron_or_every check (num_nonnulls(cron, every) = 1),
  constraint schedules_cron_is_1_to_256_bytes check (octet_length(cron) between 1 and 256),
  constraint schedules_every_is_1_second_to_366_days
    check (every between interval '1 second' and interval '366 days'),
  constraint schedules_every_is_in_whole_seconds check (every = date_trunc('second', every)),
  constraint schedules_timezone_is_1_to_128_bytes check (octet_length(timezone) between 1 and 128),
  constraint schedules_misfire_is_known check (misfire in ('skip', 'once', 'all')),
  constraint schedules_misfire_limit_is_1_to_10000 check (misfire_limit between 1 and 10000),
  constraint schedules_next_is_after_last check (next_at > last_at),
  constraint schedules_problem_has_its_time check ((problem is null) = (problem_at is null))
);

-- Inside a block, since "create index if not exists" would lock out writers even where the index exists.
do $indexes$
begin
  if to_regclass('pgwake.jobs_lease_idx') is not null then
    return;
  end if;

  -- A queue's priority bands, in the order of a claim: -100 to 100 (priority, highest first) for jobs that never
  -- crashed, 201 more for those that crashed once, 402 more for suspects. Each is in order of run_at, id.
  create index jobs_claim_idx on pgwake.jobs_live
    (queue, (least(crash_count, 2) * 201 - priority), run_at, id)
    where status = 'pending';

  create unique index jobs_unique_key_idx on pgwake.jobs_live (kind, unique_key)
    where unique_key is not null;

  create index jobs_failed_finished_at_idx on pgwake.jobs_failed (finished_at, id);

  create index jobs_failed_fingerprint_idx on pgwake.jobs_failed (fingerprint, finished_at, id)
    include (queue, kind);

  -- Of each concurrency key, the jobs that take its room up, and those that wait in the order they are admitted.
  -- Not "is null": without statistics the planner takes that for rare, and then wades (seen on PostgreSQL 15).
  -- For the same reason queries say "between 'pending' and 'running'", not "in": a list may be made a filter.
  create index jobs_key_idx on pgwake.jobs_live (queue, concurrency_key, status, priority desc, run_at, id)
    where concurrency_key is not null and has_parents_left is not true;

  -- Backwards: the youngest parent ends last, mostly, so one look tells whether any is left.
  create index dependencies_child_idx on pgwake.dependencies (child_id, parent_id);

  create index rechecks_due_idx on pgwake.rechecks (queue, at);

  -- Apart from each other, so that nobody wades through the many of the one to find the other: rechecks that tell
  -- something of a child, and those that only tell that a parent has completed.
  create index rechecks_child_idx on pgwake.rechecks (child_id, (has_failed is not false))
    where child_id is not null;

  -- What claims have to know of kinds, and what inserts do.
  create index kinds_claim_idx on pgwake.kinds (name)
    where timeout is not null or lease is not null or declared_lease is not null or max_running is not null
      or rate_limit is not null;

  create index kinds_limits_idx on pgwake.kinds (name)
    where max_running is not null or rate_limit is not null;

  create index kinds_insert_idx on pgwake.kinds (name)
    where check_payload or priority is not null or declared_priority is not null;

  create index concurrency_limits_rate_idx on pgwake.concurrency_limits (queue)
    where rate_limit is not null;

  create index queues_insert_idx on pgwake.queues (name)
    where priority is not null or wakeups <> 'asleep' or status_events <> 'watched' or max_pending is not null;

  create index queues_ends_idx on pgwake.queues (name)
    where max_running is not null or webhook is not null or status_events <> 'watched' or drop_payloads;

  create index queues_status_events_idx on pgwake.queues (status_events collate "C", name)
    where status_events <> 'watched';

  -- Tables without a primary key, which a publication of all tables would otherwise have refuse every delete.
  alter table pgwake.rechecks replica identity full;
  alter table pgwake.counts replica identity full;

  -- Jobs that have not been started and may expire.
  create index jobs_expires_idx on pgwake.jobs_live (expires_at) where expires_at is not null and attempt = 0;

  create index jobs_children_idx on pgwake.jobs_live (id) where has_parents_left;

  -- Each queue's running jobs, by worker: to sweep, to give back, to count.
  create index jobs_lease_idx on pgwake.jobs_live (queue, claimed_by, lease_expires_at)
    where status = 'running';
end
$indexes$;

do $steps$
begin
  if to_regclass('pgwake.waits_event_idx') is not null then
    return;
  end if;
  create index waits_event_idx on pgwake.waits (event, job_id) where event is not null;
  create index waits_other_idx on pgwake.waits (other_id, job_id) where other_id is not null;
  create index events_expires_at_idx on pgwake.events (expires_at);
  create index unique_periods_until_idx on pgwake.unique_periods (until);
  create index events_unseen_idx on pgwake.events (name) where is_unseen;
end
$steps$;

-- The row that every claim answers with. It never changes; what comes later goes into options.
do $types$
begin
  if to_regtype('pgwake.claimed_job') is not null then
    return;
  end if;

  -- Who hears of status events: all queues' but the exceptions, or the exceptions' alone.
  create type pgwake.audience as (
    is_watched  boolean,
    exceptions  text[]
  );

  create type pgwake.claimed_job as (
    id                bigint,
    lease_id          uuid,
    queue             text,
    kind              text,
    payload           jsonb,
    attempt           int,
    max_attempts      int,
    lease_expires_at  timestamptz,
    created_at        timestamptz,
    metadata          jsonb,
    options           jsonb
  );
end
$types$;

-- A job that has ended, for tell_ends.
do $ended$
begin
  if to_regtype('pgwake.ended_job') is null then
    create type pgwake.ended_job as (
      id               bigint,
      queue            text,
      kind             text,
      old_status       text,
      new_status       text,
      concurrency_key  text,
      has_children     boolean,
      webhook          text
    );
  end if;
end
$ended$;

do $finding$
begin
  if to_regtype('pgwake.finding') is null then
    create type pgwake.finding as (
      check_name  text,
      severity    text,  -- error, warning or notice
      subject     text,
      problem     text,
      fix         text,
      value       double precision
    );
  end if;
end
$finding$;

comment on table pgwake.jobs is 'Every job, for as long as it is kept. Producers insert (kind, payload, ...).';
comment on table pgwake.queues is 'Policy, one optional row a queue; read when it is needed, so a change holds at once.';
comment on table pgwake.kinds is 'Policy, one optional row a kind: what workers declare, and what operators set before it.';
comment on table pgwake.concurrency_limits is 'How many jobs of one concurrency key run at once, and start a second.';
comment on table pgwake.rechecks is 'When to check again whether a job that waits can be admitted.';
comment on table pgwake.dependencies is 'Which live jobs others wait for.';
comment on table pgwake.steps is 'What live jobs have recorded; see get_steps().';
comment on table pgwake.waits is 'Which live jobs wait for an event, or for another job.';
comment on table pgwake.events is 'What has happened, for jobs that wait for it; see emit_event().';
comment on table pgwake.schedules is 'Recurring jobs; see schedule().';
comment on table pgwake.missed_renewals is 'Renewals of leases whose job was locked at that moment; see sweep_expired_leases().';
comment on table pgwake.rate_buckets is 'The token bucket of each queue with a rate limit.';
comment on table pgwake.kind_buckets is 'The token bucket of each kind with a rate limit.';
comment on table pgwake.unique_periods is 'Unique keys that stay taken until a time, whether their job has ended or not.';
comment on table pgwake.kind_waiters is 'Which queues wait for room of which kinds.';
comment on table pgwake.key_buckets is 'When the bucket of each concurrency key with a rate is full again.';
comment on table pgwake.workers is 'Who works, for people to look at; nothing rests on it.';
comment on table pgwake.upkeep_turns is 'Which worker does the upkeep, and when each step was last done; one row.';
comment on table pgwake.counts is 'What happened, a row a statement: behind get_queue_stats; see maintain(''fold'').';
comment on table pgwake.count_folds is 'How far the last fold of counts came; one row.';
comment on table pgwake.count_sums is 'Sums of what was folded, by queue and half minute.';
comment on view pgwake.count_rows is 'Every row that get_queue_stats sums: of the last fold, and since.';
comment on table pgwake.count_leaves is 'Sums of what was folded, by leaf of the ring.';
comment on table pgwake.installation is 'Settings of the installation; one row.';
comment on table pgwake.schema_version is 'Version of the schema; one row.';
comment on table pgwake.ring_slots is 'When a leaf of jobs_finished was last tried to be truncated.';
comment on type pgwake.audience is 'Who hears of status events, as get_audience finds.';
comment on type pgwake.claimed_job is
  'A job that was claimed. options: run_at when it differs from created_at, crash_count when not 0, admits, timeout in seconds '
  'by policy, steps; else null.';
comment on type pgwake.ended_job is 'A job that has ended, for tell_ends.';
comment on type pgwake.finding is 'A row of diagnose().';
