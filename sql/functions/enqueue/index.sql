-- How jobs come, where a plain INSERT does not do.
\ir enqueue.sql
\ir enqueue_many.sql
