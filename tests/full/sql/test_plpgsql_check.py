"""plpgsql_check reads every body; collected where the server has it: --pg debian."""

from support import Connect, Connection

CHECK = """
select p.proname, c.message
from pg_proc as p
join pg_language as l on l.oid = p.prolang and l.lanname = 'plpgsql'
cross join lateral plpgsql_check_function_tb(
  p.oid,
  case p.proname
    when 'before_insert_jobs' then 'pgwake.jobs'::regclass
    when 'after_change_limits' then 'pgwake.concurrency_limits'::regclass
    when 'after_insert_jobs' then 'pgwake.jobs'::regclass
    when 'after_change_jobs' then 'pgwake.jobs'::regclass
    when 'after_truncate_jobs' then 'pgwake.jobs_live'::regclass
    when 'after_change_queues' then 'pgwake.queues'::regclass
    when 'before_insert_events' then 'pgwake.events'::regclass
    when 'after_insert_events' then 'pgwake.events'::regclass
    else 0
  end,
  newtable => case p.proname
    when 'after_insert_jobs' then 'inserted'::name
    when 'after_change_jobs' then 'changed'::name
  end,
  oldtable => case p.proname when 'after_change_jobs' then 'replaced'::name end,
  performance_warnings => false,
  security_warnings => true
) as c
where p.pronamespace = 'pgwake'::regnamespace
  -- said of constants too, such as '{}' for an array
  and c.message <> 'target type is different type than source type'
"""
MEANT = {
    ("enqueue", "control reached end of function without RETURN")  # its loop does not
}


async def faults(admin: Connection) -> set[tuple[str, str]]:
    await admin.execute("create extension plpgsql_check")
    return {tuple(row) for row in await admin.fetch(CHECK)} - MEANT


async def test_no_body_has_a_fault(connect: Connect, admin_url: str) -> None:
    assert await faults(await connect(admin_url)) == set()


async def test_a_fault_would_be_found(connect: Connect, admin_url: str) -> None:
    admin = await connect(admin_url)
    await admin.execute("""
        create function pgwake.faulty() returns text language plpgsql
        set search_path = '' as $$
        begin return (select j.no_such_column from pgwake.jobs as j); end $$;
    """)

    assert {name for name, _ in await faults(admin)} == {"faulty"}
