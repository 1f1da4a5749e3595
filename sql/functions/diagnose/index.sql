-- What is wrong with an installation, and what to type.
\ir diagnose_installation.sql
\ir diagnose_pins.sql
\ir diagnose_server.sql
\ir diagnose_wake_locks.sql
\ir diagnose_limit_locks.sql
\ir diagnose_leases.sql
\ir diagnose_children.sql
\ir diagnose_retention.sql
\ir diagnose_queues.sql
\ir diagnose_schedules.sql
\ir diagnose_policy.sql
\ir diagnose.sql
\ir diagnose_worker.sql
