-- How jobs come, where a plain INSERT does not do.
\ir allow_replace.sql
\ir check_max_pending.sql
\ir enqueue.sql
\ir given_jobs.sql
\ir raise_unique_period.sql
\ir take_unique_periods.sql
\ir add_unique_jobs.sql
\ir enqueue_many.sql
