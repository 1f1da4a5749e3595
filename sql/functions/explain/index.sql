-- Why a job does not run, in words.
\ir say_time.sql
\ir say_name.sql
\ir say_lock_holders.sql
\ir say_jobs.sql
\ir explain_key.sql
\ir explain_parents.sql
\ir explain_awaited.sql
\ir explain_limits.sql
\ir explain_kind.sql
\ir explain_workers.sql
\ir explain_position.sql
\ir explain_wait.sql
\ir explain_run.sql
\ir explain_end.sql
\ir explain_policy.sql
\ir explain_attempts.sql
\ir explain_job.sql
