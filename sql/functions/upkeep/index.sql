-- What has to be done again and again, and what workers report.
\ir count_crashed.sql
\ir sweep_expired_leases.sql
\ir cancel_expired.sql
\ir leave_upkeep.sql
\ir release_worker_jobs.sql
\ir fold_counts.sql
\ir apply_retention.sql
\ir analyze_jobs.sql
\ir recount_jobs.sql
\ir forget_unique_periods.sql
\ir maintain.sql
\ir take_upkeep.sql
\ir report_worker_slots.sql
\ir report_worker.sql
\ir forget_worker.sql
\ir forget_stale_reports.sql
\ir count_bounces.sql
