#!/bin/sh
# Reports on an order: what its steps came to, as the job's result.
# In the environment: SHOP_URL, the database; PGWAKE_JOB_ID, the job.
set -eu
psql --no-psqlrc --quiet --tuples-only --no-align --set=ON_ERROR_STOP=1 \
  --set=job="$PGWAKE_JOB_ID" "$SHOP_URL" <<'SQL'
select jsonb_object_agg(p.parent_id, jsonb_build_object('kind', p.kind, 'result', p.result))
from pgwake.get_parent_results(:job) as p;
SQL
