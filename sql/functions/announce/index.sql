-- Who hears of jobs: status events, webhooks, workers whose job is cancelled.
\ir status_event.sql
\ir is_watched.sql
\ir get_audience.sql
\ir is_announced.sql
\ir watch.sql
\ir unwatch.sql
\ir announce.sql
\ir notify_cancellations.sql
\ir send_webhooks.sql
