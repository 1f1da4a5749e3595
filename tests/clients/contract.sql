-- The contract of pgwake's producers and consumers, in steps. README.md says how to read
-- it, how to run it, and what each part proves.

-- step: this is a pgwake whose functions a client of schema 1 may use
select (serves_from <= 1 and version >= 1)::text from pgwake.schema_version;
-- expect: true

-- Parameters --------------------------------------------------------------------------

-- step: a queue of its own keeps this run apart from others
select 'contract-' || gen_random_uuid();
-- keep: queue

-- step: a text comes as it is
select E'it''s "so" \\ back, { braces }, a comma; Zoë, 日本, 🐘';
-- expect: it's "so" \ back, { braces }, a comma; Zoë, 日本, 🐘
-- keep: text

-- step: a parameter goes as it is
select ({text}::text = E'it''s "so" \\ back, { braces }, a comma; Zoë, 日本, 🐘')::text;
-- expect: true

-- step: NULL is not the empty string
select null::text;
-- expect: (null)
-- keep: null

-- step: a NULL goes as NULL
select ({null}::text is null)::text;
-- expect: true

-- step: the empty string is not NULL
select '';
-- expect: (empty)
-- keep: empty

-- step: an empty string goes as an empty string
select ({empty}::text = '')::text;
-- expect: true

-- Claim -------------------------------------------------------------------------------

-- step: an empty queue gives no row
select id::text from pgwake.claim_next_job({queue}, 'contract-a');
-- expect: (no row)

-- step: an empty queue has no next time
select pgwake.next_run_at({queue})::text;
-- expect: (null)

-- step: JSON of a job that goes in as text
select jsonb_build_object('name', {text}::text, 'n', 12345678901234567890)::text;
-- keep: payload

-- step: a plain insert adds a job
insert into pgwake.jobs (queue, kind, payload, metadata)
values ({queue}, 'greet', {payload}::jsonb, {null}::jsonb) returning id::text;
-- keep: job

-- step: a due job's time is past
select (pgwake.next_run_at({queue}) <= now())::text;
-- expect: true

-- step: a claim gives the job and its lease
select concat_ws(E'\n', c.id, c.lease_id, to_jsonb(c))
from pgwake.claim_next_job({queue}, 'contract-a', '1 minute') as c;
-- keep: claimed lease row

-- step: it is the job
select {claimed}::text;
-- expect: {job}

-- step: the fields of a claim are these, and none is left out
select string_agg(f.name, ' ' order by f.name) from jsonb_object_keys({row}::jsonb) as f(name);
-- expect: attempt created_at id kind lease_expires_at lease_id max_attempts metadata options payload queue

-- step: the payload is what was inserted, to the digit
select (({row}::jsonb -> 'payload') = {payload}::jsonb)::text;
-- expect: true

-- step: the rest of a job that has nothing of its own
select ({row}::jsonb - array['id', 'lease_id', 'queue', 'payload', 'created_at', 'lease_expires_at'])::text;
-- expect: {"kind": "greet", "attempt": 1, "options": null, "metadata": null, "max_attempts": null}

-- step: a job is claimed once
-- in: b
select id::text from pgwake.claim_next_job({queue}, 'contract-b');
-- expect: (no row)

-- Keep and tell -----------------------------------------------------------------------

-- step: a heartbeat extends the lease
select (pgwake.extend_leases(array[{job}::bigint], array[{lease}::uuid], '1 hour'))[1];
-- expect: extended

-- step: the lease ends an hour from then
select (lease_expires_at > now() + interval '50 minutes')::text from pgwake.jobs_live where id = {job}::bigint;
-- expect: true

-- step: a shorter one
select (pgwake.extend_leases(array[{job}::bigint], array[{lease}::uuid], '1 second'))[1];
-- expect: extended

-- step: does not shorten it
select (lease_expires_at > now() + interval '50 minutes')::text from pgwake.jobs_live where id = {job}::bigint;
-- expect: true

-- step: progress is noted
select pgwake.set_progress({job}::bigint, {lease}::uuid, {payload}::jsonb);
-- expect: noted

-- Fence -------------------------------------------------------------------------------

-- step: who has no lease of the job can't complete it
select pgwake.complete_job({job}::bigint, gen_random_uuid());
-- error: PW002

-- step: nor fail it
select pgwake.fail_job({job}::bigint, gen_random_uuid(), 'not mine');
-- error: PW002

-- step: nor put it off
select pgwake.snooze_job({job}::bigint, gen_random_uuid(), '1 minute');
-- error: PW002

-- step: nor keep it; for many at once an outcome says so
select (pgwake.extend_leases(array[{job}::bigint], array[gen_random_uuid()]))[1];
-- expect: lease_lost

-- step: a NULL for a lease is a fault of the client's
select pgwake.complete_job({job}::bigint, {null}::uuid);
-- error: PW003

-- step: so is a job that is none
select pgwake.complete_job(-1, {lease}::uuid);
-- error: PW001

-- step: for many at once that is an outcome too
select array_to_string(pgwake.complete_jobs(
  array[-1, {job}::bigint], array[{lease}::uuid, gen_random_uuid()], array[null, null]::jsonb[]), ' ');
-- expect: no_such_job lease_lost

-- step: nothing of that has touched the job
select status || ' ' || attempt from pgwake.jobs_live where id = {job}::bigint;
-- expect: running 1

-- Complete ----------------------------------------------------------------------------

-- step: who has the lease completes the job
select pgwake.complete_job({job}::bigint, {lease}::uuid, {payload}::jsonb);

-- step: said again, as after a lost answer, it succeeds again
select pgwake.complete_job({job}::bigint, {lease}::uuid, {payload}::jsonb);

-- step: the result is kept
select concat_ws(' ', j ->> 'status', j ->> 'attempt', (j -> 'result') = {payload}::jsonb) from pgwake.get_job({job}::bigint) as j;
-- expect: completed 1 t

-- step: an ended job can't be failed
select pgwake.fail_job({job}::bigint, {lease}::uuid, 'too late');
-- error: PW002

-- Fail --------------------------------------------------------------------------------

-- step: a job for two attempts
insert into pgwake.jobs (queue, kind, max_attempts) values ({queue}, 'greet', 2) returning id::text;
-- keep: job

-- step: its first claim
select lease_id::text from pgwake.claim_next_job({queue}, 'contract-a');
-- keep: lease

-- step: a failed attempt is retried
select pgwake.fail_job({job}::bigint, {lease}::uuid, {text}, retry_in => '1 hour');
-- expect: retry

-- step: not before its time
select id::text from pgwake.claim_next_job({queue}, 'contract-a');
-- expect: (no row)

-- step: which is when to look again
select (pgwake.next_run_at({queue}) between now() + interval '59 minutes' and now() + interval '1 hour')::text;
-- expect: true

-- step: the error is kept, and the attempt counts
select (attempt = 1 and errors -> 0 ->> 'message' = {text})::text from pgwake.jobs_live where id = {job}::bigint;
-- expect: true

-- step: without a delay of one's own
select concat_ws(E'\n', c.id, c.lease_id)
from (select pgwake.enqueue('greet', queue => {queue} || '-backoff')) as e, pgwake.claim_next_job({queue} || '-backoff') as c;
-- keep: job lease

-- step: it is retried
select pgwake.fail_job({job}::bigint, {lease}::uuid, 'once');
-- expect: retry

-- step: after a backoff, at first of up to a second
select (run_at <= now() + interval '1 second')::text from pgwake.jobs_live where id = {job}::bigint;
-- expect: true

-- step: another job for two attempts
insert into pgwake.jobs (queue, kind, max_attempts) values ({queue}, 'greet', 2) returning id::text;
-- keep: job

-- step: its first claim
select lease_id::text from pgwake.claim_next_job({queue}, 'contract-a');
-- keep: lease

-- step: is failed, to be tried again at once
select pgwake.fail_job({job}::bigint, {lease}::uuid, 'once', retry_in => '0 seconds');
-- expect: retry

-- step: its second claim is its second attempt
select attempt || E'\n' || lease_id from pgwake.claim_next_job({queue}, 'contract-a');
-- keep: attempt lease

-- step: the second
select {attempt}::text;
-- expect: 2

-- step: the last attempt's failure is the job's
select pgwake.fail_job({job}::bigint, {lease}::uuid, 'twice');
-- expect: failed

-- step: said again, as after a lost answer, it answers the same
select pgwake.fail_job({job}::bigint, {lease}::uuid, 'twice');
-- expect: failed

-- step: a dead letter has its errors
select concat_ws(' ', j ->> 'status', j -> 'errors' -> 0 ->> 'message', j -> 'errors' -> 1 ->> 'message') from pgwake.get_job({job}::bigint) as j;
-- expect: failed once twice

-- step: a job that can't succeed
select concat_ws(E'\n', c.id, c.lease_id)
from (select pgwake.enqueue('greet', queue => {queue})) as e, pgwake.claim_next_job({queue}, 'contract-a') as c;
-- keep: job lease

-- step: is failed at its first attempt
select pgwake.fail_job({job}::bigint, {lease}::uuid, 'no such address', retryable => false);
-- expect: failed

-- Give back ---------------------------------------------------------------------------

-- step: a job whose time has not come after all
select concat_ws(E'\n', c.id, c.lease_id)
from (select pgwake.enqueue('greet', queue => {queue})) as e, pgwake.claim_next_job({queue}, 'contract-a') as c;
-- keep: job lease

-- step: is given back without counting the attempt
select (pgwake.release_jobs(array[{job}::bigint], array[{lease}::uuid]))[1];
-- expect: released

-- step: it is as before
select concat_ws(' ', status, attempt) from pgwake.jobs_live where id = {job}::bigint;
-- expect: pending 0

-- step: another gets it, for its first attempt
-- in: b
select concat_ws(E'\n', id = {job}::bigint and attempt = 1, lease_id) from pgwake.claim_next_job({queue}, 'contract-b');
-- keep: is_first lease_of_b

-- step: it is the same
select {is_first}::text;
-- expect: t

-- step: who gave it back has no say any more
select pgwake.complete_job({job}::bigint, {lease}::uuid);
-- error: PW002

-- step: who has it now puts it off
-- in: b
select pgwake.snooze_job({job}::bigint, {lease_of_b}::uuid, '1 hour');
-- expect: released

-- step: it is due later, and the attempt does not count
select concat_ws(' ', status, attempt, run_at > now() + interval '59 minutes') from pgwake.jobs_live where id = {job}::bigint;
-- expect: pending 0 t

-- Sweep, and the zombie ---------------------------------------------------------------

-- step: a queue for it
select {queue} || '-sweep';
-- keep: sweep

-- step: a job with a lease of a second
select concat_ws(E'\n', c.id, c.lease_id)
from (select pgwake.enqueue('greet', queue => {sweep})) as e, pgwake.claim_next_job({sweep}, 'contract-a', '1 second') as c;
-- keep: job lease

-- step: whose consumer is away for longer
select pg_sleep(1.1);

-- step: nobody gets it before the upkeep
-- in: b
select id::text from pgwake.claim_next_job({sweep}, 'contract-b');
-- expect: (no row)

-- step: which takes it back
-- in: b
select (pgwake.maintain('sweep') -> 'sweep' is not null)::text;
-- expect: true

-- step: as a crash, whose attempt does not count
-- in: b
select concat_ws(' ', status, attempt, crash_count) from pgwake.jobs_live where id = {job}::bigint;
-- expect: pending 0 1

-- step: the next gets it, and hears of the crash
-- in: b
select lease_id || E'\n' || (options ->> 'crash_count') from pgwake.claim_next_job({sweep}, 'contract-b');
-- keep: lease_of_b crashes

-- step: of one
-- in: b
select {crashes}::text;
-- expect: 1

-- step: the zombie's heartbeat tells it
select (pgwake.extend_leases(array[{job}::bigint], array[{lease}::uuid]))[1];
-- expect: lease_lost

-- step: the zombie's end is refused
select pgwake.complete_job({job}::bigint, {lease}::uuid);
-- error: PW002

-- step: its failure too
select pgwake.fail_job({job}::bigint, {lease}::uuid, 'late');
-- error: PW002

-- step: giving it back too
select (pgwake.release_jobs(array[{job}::bigint], array[{lease}::uuid]))[1];
-- expect: lease_lost

-- step: who has it now completes it
-- in: b
select pgwake.complete_job({job}::bigint, {lease_of_b}::uuid);

-- step: after that the zombie is refused as before
select pgwake.complete_job({job}::bigint, {lease}::uuid);
-- error: PW002

-- Cancel ------------------------------------------------------------------------------

-- step: a pending job is cancelled at once
select pgwake.cancel_job(pgwake.enqueue('greet', queue => {queue}));
-- expect: cancelled

-- step: a running one
select concat_ws(E'\n', c.id, c.lease_id)
from (select pgwake.enqueue('greet', queue => {queue})) as e, pgwake.claim_next_job({queue}, 'contract-a') as c;
-- keep: job lease

-- step: its consumer may listen for that
listen pgwake_cancel;

-- step: is asked to stop
-- in: b
select pgwake.cancel_job({job}::bigint);
-- expect: cancel_requested

-- step: its heartbeat says so, and a notification has
select (pgwake.extend_leases(array[{job}::bigint], array[{lease}::uuid]))[1];
-- expect: cancel_requested
-- hears: pgwake_cancel {"worker" : "contract-a", "jobs" : [{job}]}

-- step: it ends as cancelled when its consumer has stopped it
select pgwake.fail_job({job}::bigint, {lease}::uuid, 'stopped');
-- expect: cancelled

-- Transactions ------------------------------------------------------------------------

-- step: a job for an exact end
select concat_ws(E'\n', c.id, c.lease_id)
from (select pgwake.enqueue('greet', queue => {queue})) as e, pgwake.claim_next_job({queue}, 'contract-a') as c;
-- keep: job lease

-- step: a transaction of the consumer's own
begin;

-- step: in which it enqueues another
select pgwake.enqueue('follow', queue => {queue})::text;
-- keep: follower

-- step: and completes its job
select pgwake.complete_job({job}::bigint, {lease}::uuid);

-- step: does nothing when it is rolled back
rollback;

-- step: the other job is not there
select pgwake.get_job({follower}::bigint);
-- error: PW001

-- step: and its own is still running
select status from pgwake.jobs_live where id = {job}::bigint;
-- expect: running

-- step: again
begin;

-- step: enqueues another
select pgwake.enqueue('follow', queue => {queue}, delay => '1 hour')::text;
-- keep: follower

-- step: completes its job
select pgwake.complete_job({job}::bigint, {lease}::uuid);

-- step: and commits
commit;

-- step: then both have happened
select concat_ws(' ', pgwake.get_job({job}::bigint) ->> 'status', pgwake.get_job({follower}::bigint) ->> 'status');
-- expect: completed pending

-- Unique keys -------------------------------------------------------------------------

-- step: a job with a key
insert into pgwake.jobs (queue, kind, unique_key, run_at) values ({queue}, 'greet', {queue} || {text}, now() + interval '1 hour') returning id::text;
-- keep: job

-- step: a second of the same key and kind is refused
insert into pgwake.jobs (queue, kind, unique_key) values ({queue}, 'greet', {queue} || {text});
-- error: 23505

-- step: or skipped
insert into pgwake.jobs (queue, kind, unique_key) values ({queue}, 'greet', {queue} || {text}) on conflict do nothing returning id::text;
-- expect: (no row)

-- step: or answered with the one that there is
select pgwake.enqueue('greet', queue => {queue}, unique_key => {queue} || {text})::text;
-- expect: {job}

-- step: or refused by name
select pgwake.enqueue('greet', queue => {queue}, unique_key => {queue} || {text}, on_conflict => 'raise');
-- error: PW005

-- step: the end of a job
select pgwake.cancel_job({job}::bigint);
-- expect: cancelled

-- step: frees its key
select (pgwake.enqueue('greet', queue => {queue}, unique_key => {queue} || {text}, delay => '1 hour') > {job}::bigint)::text;
-- expect: true

-- Bad input ---------------------------------------------------------------------------

-- step: a plain insert of what can't be is refused by the table's checks
insert into pgwake.jobs (queue, kind, priority) values ({queue}, 'greet', 1000);
-- error: 23514

-- step: so is a queue whose name is too long
insert into pgwake.jobs (queue, kind) values (repeat('q', 129), 'greet');
-- error: 23514

-- step: so is a payload that is a list
insert into pgwake.jobs (queue, kind, payload) values ({queue}, 'greet', '[1]');
-- error: 23514

-- step: what is no JSON is refused by its type
insert into pgwake.jobs (queue, kind, payload) values ({queue}, 'greet', {text}::jsonb);
-- error: 22P02

-- step: a function refuses what can't be meant
select pgwake.enqueue('greet', queue => {queue}, priority => 1000::smallint);
-- error: PW003

-- step: a claim too
select id::text from pgwake.claim_next_job({queue}, 'contract-a', '0 seconds');
-- error: PW003

-- step: a delay too
select pgwake.snooze_job({job}::bigint, {lease}::uuid, '-1 second');
-- error: PW003

-- step: nothing of it is there
select count(*)::text from pgwake.jobs_live where queue = {queue} and run_at <= now();
-- expect: 0

-- Order and time ----------------------------------------------------------------------

-- step: a job of priority 0, one of priority 5, one for later
insert into pgwake.jobs (queue, kind, priority, run_at) values
  ({queue}, 'low', 0, now()), ({queue}, 'high', 5, now()), ({queue}, 'later', 9, now() + interval '1 hour');

-- step: the urgent one first; many come in one claim, none before its time
select string_agg(c.kind, ' ' order by c.place)
from pgwake.claim_jobs({queue}, 10, 'contract-a') with ordinality
  as c(id, lease_id, queue, kind, payload, attempt, max_attempts, lease_expires_at, created_at, metadata, options, place);
-- expect: high low

-- step: all that are mine are completed in one call
select array_to_string(pgwake.complete_jobs(array_agg(id), array_agg(lease_id), array_agg(null::jsonb)), ' ')
from pgwake.jobs_live where queue = {queue} and status = 'running';
-- expect: completed completed

-- Pause -------------------------------------------------------------------------------

-- step: a paused queue
select pgwake.pause_queue({queue})::text;
-- expect: infinity

-- step: takes jobs
insert into pgwake.jobs (queue, kind) values ({queue}, 'greet');

-- step: and gives none
select id::text from pgwake.claim_next_job({queue}, 'contract-a');
-- expect: (no row)

-- step: though one is due: next_run_at knows nothing of pauses, nor of limits or locks
select (pgwake.next_run_at({queue}) <= now())::text;
-- expect: true

-- step: resumed
select pgwake.resume_queue({queue})::text;
-- expect: true

-- step: it gives them
select kind from pgwake.claim_next_job({queue}, 'contract-a');
-- expect: greet

-- Being woken -------------------------------------------------------------------------

-- step: a queue for it
select {queue} || '-woken';
-- keep: woken

-- step: a listens for jobs
listen pgwake;

-- step: and for duty
listen pgwake_duty;

-- step: b for jobs
-- in: b
listen pgwake;

-- step: and for duty
-- in: b
listen pgwake_duty;

-- step: while nobody is on duty, a new job tells nobody
-- in: p
insert into pgwake.jobs (queue, kind) values ({woken}, 'silent');

-- step: as a would have heard
select 'heard?';
-- hears: (nothing)

-- step: a goes on duty
select pgwake.park({woken})::text;
-- expect: true

-- step: and looks once more: there it is
select kind from pgwake.claim_next_job({woken}, 'contract-a');
-- expect: silent

-- step: and then nothing is left, so it may sleep
select id::text from pgwake.claim_next_job({woken}, 'contract-a');
-- expect: (no row)

-- step: no transaction under way may have missed that
select cardinality(pgwake.open_writers())::text;
-- expect: 0

-- step: b can't go on duty beside it
-- in: b
select pgwake.park({woken})::text;
-- expect: false

-- step: now a new job tells
-- in: p
insert into pgwake.jobs (queue, kind) values ({woken}, 'heard');

-- step: a, which claims it
select kind from pgwake.claim_next_job({woken}, 'contract-a');
-- expect: heard
-- hears: pgwake {woken}

-- step: b hears it too, and goes by pgwake_duty only
-- in: b
select 'heard?';
-- hears: pgwake {woken}

-- step: a is busy: it goes off duty
select pgwake.unpark({woken})::text;
-- expect: true

-- step: which b hears
-- in: b
select 'heard?';
-- hears: pgwake_duty {woken}

-- step: and takes over
-- in: b
select pgwake.park({woken})::text;
-- expect: true

-- step: a transaction that has inserted and not committed
-- in: p
begin;

-- step: may have been there before the notify lock
-- in: p
insert into pgwake.jobs (queue, kind) values ({woken}, 'late');

-- step: so it is named
-- in: b
select cardinality(pgwake.open_writers())::text;
-- expect: 1

-- step: and when it has committed
-- in: p
commit;

-- step: no more, and its job is there
-- in: b
select concat_ws(' ', cardinality(pgwake.open_writers()), (select kind from pgwake.claim_next_job({woken}, 'contract-b')));
-- expect: 0 late
-- hears: pgwake {woken}

-- step: what is given back tells as a new one does
-- in: p
select (pgwake.release_jobs(array_agg(id), array_agg(lease_id)))[1] from pgwake.jobs_live where queue = {woken} and kind = 'late';
-- expect: released

-- step: whoever is on duty
-- in: b
select pg_backend_pid()::text;
-- hears: pgwake {woken}
-- keep: pid

-- step: when its session dies
select pg_terminate_backend({pid}::int, 5000)::text;
-- expect: true

-- step: the duty lock is free
select pgwake.park({woken})::text;
-- expect: true

-- step: who stops goes off duty
select pgwake.unpark({woken})::text;
-- expect: true

-- step: all of that in one call: c, which listens
-- in: c
listen pgwake;

-- step: claims by it what is there
-- in: c
select concat_ws(' ', kind, wait_seconds, is_on_duty) from pgwake.claim_or_wait({woken}, 'contract-c');
-- expect: late f

-- step: goes on duty when nothing is
-- in: c
select concat_ws(' ', kind, wait_seconds, is_on_duty) from pgwake.claim_or_wait({woken}, 'contract-c');
-- expect: 0.005 t

-- step: and is to wait for longer
-- in: c
select (kind is null and is_on_duty and wait_seconds between 0.005 and 5)::text from pgwake.claim_or_wait({woken}, 'contract-c');
-- expect: true

-- step: a, beside it, waits to be passed the duty
select concat_ws(' ', kind, wait_seconds, is_on_duty) from pgwake.claim_or_wait({woken}, 'contract-a');
-- expect: 5 f

-- step: now a new job tells
-- in: p
insert into pgwake.jobs (queue, kind) values ({woken}, 'told');

-- step: c, which claims it, and is off duty by that
-- in: c
select concat_ws(' ', kind, wait_seconds, is_on_duty) from pgwake.claim_or_wait({woken}, 'contract-c');
-- expect: told f
-- hears: pgwake {woken}

-- step: so that a goes on duty
select concat_ws(' ', kind, wait_seconds, is_on_duty) from pgwake.claim_or_wait({woken}, 'contract-a');
-- expect: 0.005 t

-- step: and off when it stops
select pgwake.unpark({woken})::text;
-- expect: true
