-- Where the next claim starts in a priority band, from where this one did
-- (resume_point, null: at the head) and where it came to (here), both [run_at, id];
-- null: at the head. Internal, for the cursor of claim_rows: called only in bands with
-- a resume point, or where a look has cost more than slow (see claim_cost).
--
-- A resume point may have [run_at, id] to start behind next: set once a look from it
-- has become half slow, and taken up by one that was slow, so that what is committed
-- meanwhile with a run_at before the newest claimed is not passed over at once.
create or replace function pgwake.next_resume_point(
  resume_point jsonb, here jsonb, is_from_head boolean, cost bigint, slow int
)
returns jsonb
language sql immutable
set search_path = pg_catalog, pg_temp
as $$
  select case
    when resume_point is null then case when cost > slow then here else '["-infinity", 0]' end
    when is_from_head then case when cost > slow then resume_point end
    when cost > 4 * slow then here
    when cost > slow then coalesce(resume_point -> 2, here)
    when cost > slow / 2 and jsonb_array_length(resume_point) = 2 then resume_point || jsonb_build_array(here)
    else resume_point
  end
$$;

comment on function pgwake.next_resume_point is
  'Internal: where the next claim starts in a priority band.';
revoke all on function pgwake.next_resume_point from public;
