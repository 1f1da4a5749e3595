-- Who sleeps on a queue, and how its inserts wake them.
\ir bell_key.sql
\ir is_bell_held.sql
\ir ring.sql
\ir pass_baton.sql
\ir unmute.sql
\ir mute.sql
\ir park.sql
\ir unpark.sql
\ir open_writers.sql
\ir next_run_at.sql
