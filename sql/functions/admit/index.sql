-- Which waiting jobs may run: concurrency keys, limits, parents.
\ir free_keys.sql
\ir free_all_keys.sql
\ir note_children.sql
\ir free_children.sql
\ir look_cost.sql
\ir open_keys.sql
\ir open_children.sql
\ir admit_claim.sql
\ir look_at_keys.sql
\ir look_at_children.sql
