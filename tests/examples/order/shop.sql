-- An application's own tables, beside pgwake in one database.
create schema shop;

create table shop.stock (
  item    text primary key,
  pieces  int not null check (pieces >= 0)
);

create table shop.orders (
  id        bigint generated always as identity primary key,
  customer  text not null,
  status    text not null default 'open' check (status in ('open', 'paid', 'done', 'failed'))
);

create table shop.lines (
  order_id  bigint not null references shop.orders,
  item      text not null references shop.stock,
  pieces    int not null check (pieces > 0),

  primary key (order_id, item)
);

-- An order is done when its report is, and has failed when one of its steps has: in the
-- transaction of that end. It sets its own search_path, since pgwake's is empty.
create function shop.note_end()
returns trigger
language plpgsql
set search_path = ''
as $$
begin
  update shop.orders as o
  set status = case new.status when 'failed' then 'failed' else 'done' end
  where o.id = (new.payload ->> 'order')::bigint and o.status = 'paid';
  return null;
end
$$;

create trigger order_failed
  after insert on pgwake.jobs_failed
  for each row when (new.queue = 'shop')
  execute function shop.note_end();

create trigger order_done
  after insert on pgwake.jobs_finished
  for each row when (new.kind = 'report' and new.queue = 'shop' and new.status = 'completed')
  execute function shop.note_end();
