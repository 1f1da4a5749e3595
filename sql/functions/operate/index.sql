-- What a person does to jobs and queues.
\ir adopt.sql
\ir force_end_job.sql
\ir force_complete_job.sql
\ir force_fail_job.sql
\ir cancel_job.sql
\ir cancel_jobs.sql
\ir retry_job.sql
\ir merge_patch.sql
\ir list_failed.sql
\ir redrive_failed.sql
\ir retry_failed.sql
\ir delete_ended_jobs.sql
\ir purge.sql
\ir pause_queue.sql
\ir resume_queue.sql
\ir peek_jobs.sql
