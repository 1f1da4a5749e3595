# A consumer on the gem pg: DATABASE_URL=... QUEUE=... LEASE=... ruby consumer.rb, until SIGTERM.
# Claims one job at a time, keeps its lease while it runs, and is on duty ("Being woken" in sql/CONSUMERS.md) between.
require "json"
require "pg"
require_relative "handlers"

QUEUE = ENV.fetch("QUEUE", "default")
LEASE = ENV.fetch("LEASE", "30") # seconds

def row(call, *values) = @db.exec_params("select * from #{call}", values).first

def run(job) # says how it ended
  mine = job.values_at("id", "lease_id")
  handle = HANDLERS.fetch(job["kind"], ->(*) { raise "unknown kind #{job["kind"]}" })
  handling = Thread.new { handle.call(JSON.parse(job["payload"]), job) }
  begin
    keep = "pgwake.extend_leases(array[$1::bigint], array[$2::uuid], $3)"
    row(keep, *mine, LEASE) until handling.join(LEASE.to_f / 3)
    row("pgwake.complete_job($1, $2, $3)", *mine, handling.value.to_json)
    "completed"
  rescue StandardError, ScriptError => e
    how = [e.retry_in, e.retryable] if e.is_a?(Failure)
    fail = "pgwake.fail_job($1, $2, $3, retry_in => $4, retryable => $5)"
    row(fail, *mine, e.message, *(how || [nil, true]))["fail_job"]
  end
rescue PG::ServerError => e
  e.result&.error_field(PG::PG_DIAG_SQLSTATE) == "PW002" ? "lost" : raise # somebody else has it
ensure
  handling.kill
end

def doze(seconds, on_duty) # until the queue is named
  wake_at = Time.now + seconds
  while !$stopping && (left = wake_at - Time.now).positive?
    @db.wait_for_notify([left, 0.2].min) { |on, _, name| return if name == QUEUE && (on_duty || on == "pgwake_duty") }
  end
end

def work
  @db = PG.connect(ENV.fetch("DATABASE_URL"))
  @db.exec("listen pgwake; listen pgwake_duty")
  puts "ready"
  until $stopping
    nil while @db.notifies # forgets what has been heard: before each claim, never after it
    job = row("pgwake.claim_or_wait($1, $2, $3)", QUEUE, "ruby-#{Process.pid}", LEASE)
    on_duty = job["is_on_duty"] == "t"
    job["id"] ? puts("#{job["id"]} #{job["kind"]} #{run(job)}") : doze(job["wait_seconds"].to_f, on_duty)
  end
  row("pgwake.unpark($1)", QUEUE) if on_duty
rescue PG::Error => e
  warn e.message
  sleep(1)
ensure
  @db&.close
end

$stdout.sync = true
Thread.report_on_exception = false
trap("TERM") { $stopping = true }
work until $stopping
