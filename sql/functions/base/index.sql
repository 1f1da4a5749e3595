-- What all the others rest on. The clock and the identity are loaded by schema.sql.
\ir raise_invalid.sql
\ir lock_tables.sql
\ir called_at.sql
\ir ring_slot.sql
\ir finished_slot.sql
\ir get_adoption.sql
\ir is_adopted.sql
\ir check_adopted.sql
\ir renumber_ended_jobs.sql
\ir lift_ids.sql
