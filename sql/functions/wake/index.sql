-- Who sleeps on a queue, and how its inserts wake them.
\ir notify_lock_key.sql
\ir is_notify_lock_held.sql
\ir wake.sql
\ir pass_duty.sql
\ir unmute.sql
\ir mute.sql
\ir park.sql
\ir unpark.sql
\ir open_writers.sql
\ir next_run_at.sql
\ir next_run_ats.sql
