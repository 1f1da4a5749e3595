-- Which waiting jobs may run: concurrency keys, limits, parents.
\ir flag_keys.sql
\ir status_after_change.sql
\ir admit_next_jobs.sql
\ir flag_all_keys.sql
\ir flag_new_children.sql
\ir flag_children.sql
\ir rows_read.sql
\ir key_heads.sql
\ir admit_keys.sql
\ir admit_keyed_jobs.sql
\ir admit_free_children.sql
\ir admit_children.sql
\ir admit_due_jobs.sql
\ir limit_claim.sql
\ir flag_missed_keys.sql
\ir flag_lost_children.sql
\ir recheck_children.sql
