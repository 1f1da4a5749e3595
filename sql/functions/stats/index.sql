-- What stands in the queues, and who works on them.
\ir is_live.sql
\ir sum_counts.sql
\ir count_scheduled.sql
\ir get_queue_stats.sql
\ir get_job.sql
\ir get_parent_results.sql
\ir list_workers.sql
\ir list_kinds.sql
\ir oldest_snapshot_at.sql
\ir get_metrics.sql
\ir count_retries.sql
