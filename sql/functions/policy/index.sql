-- What holds for a job's attempts, and what payload its kind takes.
\ir retry_delay.sql
\ir get_policy.sql
\ir type_problem.sql
\ir payload_problem.sql
\ir check_payload.sql
\ir set_policy_priorities.sql
\ir declare_kinds.sql
