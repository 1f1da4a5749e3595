"""The SQL of what `pgwake queues` shows: each queue's policy, pause and counts."""

import json
from typing import Any

from pgwake.database.statements import Connection

_LIST_QUEUES = """
select coalesce(q.name, s.queue) as name,
  coalesce(q.paused_until > pgwake.now(), false) as is_paused,
  case when q.paused_until > pgwake.now() then q.paused_until::text end as paused_until,
  q.max_running, q.rate_limit, q.rate_burst, q.key_limit,
  coalesce(
    jsonb_strip_nulls(to_jsonb(q) - array[
        'name', 'paused_until', 'max_running', 'rate_limit', 'rate_burst', 'key_limit'])
      - case when q.keep_order then '' else 'keep_order' end
      - case q.wakeups when 'asleep' then 'wakeups' else '' end
      - case q.status_events when 'watched' then 'status_events' else '' end,
    '{}') as policy,
  coalesce(s.pending_count, 0) as pending_count,
  coalesce(s.scheduled_count, 0) as scheduled_count,
  coalesce(s.waiting_count, 0) as waiting_count,
  coalesce(s.running_count, 0) as running_count,
  coalesce(s.failed_count, 0) as failed_count
from pgwake.queues as q
full join pgwake.get_queue_stats() as s on s.queue collate "C" = q.name
order by coalesce(q.name, s.queue collate "C")
"""


async def list_queues(connection: Connection) -> list[dict[str, Any]]:
    """Return every queue that has jobs or policy; its other policy as a dict."""
    return [
        {**row, "policy": json.loads(row["policy"])}
        for row in await connection.fetch(_LIST_QUEUES)
    ]
