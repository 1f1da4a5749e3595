-- How a worker takes jobs.
\ir claim_cost.sql
\ir dead_bands.sql
\ir check_cursor.sql
\ir session_cursors.sql
\ir check_claim_arguments.sql
\ir next_resume_point.sql
\ir live_bands.sql
\ir lock_due_jobs.sql
\ir newest_left_out.sql
\ir claim_rows.sql
\ir claim_batch.sql
\ir claim_jobs.sql
\ir claim_next_job.sql
\ir claim_or_wait.sql
\ir next_suspect_run_at.sql
