# A producer of pgwake in Ruby (gem pg): plain inserts in transactions of the caller's own.
# ruby producer.rb N [PREFIX]; environment: DATABASE_URL, QUEUE (default).
require "json"
require "pg"

COUNT = Integer(ARGV.fetch(0))
PREFIX = ARGV.fetch(1, "ruby-")
QUEUE = ENV.fetch("QUEUE", "default")

# Adds a job, unless a live one has its unique key; returns how many were added.
def insert(db, number, priority = 0)
  db.exec_params(<<~SQL, [QUEUE, { number: }.to_json, { from: "ruby" }.to_json, "#{PREFIX}#{number}", priority]).cmd_tuples
    insert into pgwake.jobs (queue, kind, payload, metadata, unique_key, priority)
    values ($1, 'conformance.echo', $2, $3, $4, $5)
    on conflict do nothing
  SQL
end

$stdout.sync = true
db = PG.connect(ENV.fetch("DATABASE_URL"))
inserted = COUNT.times.each_slice(10).sum do |numbers|
  db.transaction { numbers.sum { |number| insert(db, number) } }
end

# An exception rolls back, and with the caller's work its jobs have never been there.
begin
  db.transaction do
    10.times { |more| insert(db, COUNT + more) }
    raise "the order is not paid"
  end
rescue RuntimeError => e
  warn e.message
end

# A job that can't be meant is refused; its transaction is rolled back, the session is as before.
begin
  insert(db, COUNT, 1000)
rescue PG::Error => e
  puts "refused #{e.result.error_field(PG::PG_DIAG_SQLSTATE)}"
end
puts "inserted #{inserted}"
