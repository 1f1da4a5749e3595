# A consumer of pgwake in Ruby (gem pg): claims one job at a time, extends its lease while
# the handler runs, sleeps on duty by LISTEN ("Being woken" in sql/README.md).
# Environment: DATABASE_URL, QUEUE (default), LEASE (seconds, 30). SIGTERM gives a running
# job back. Somebody has to sweep leases that ran out: a pgwake worker, or cron.
require "json"
require "pg"

QUEUE = ENV.fetch("QUEUE", "default")
LEASE = Integer(ENV.fetch("LEASE", "30"))
POLL = 5 # seconds until the next look at most, should a notification be lost

Again = Class.new(StandardError) # the job fails, and is due again at once
Never = Class.new(StandardError) # the job fails for good
Stop = Class.new(StandardError) # SIGTERM

ECHO = lambda do |job|
  sleep(job["payload"]["seconds"] || 0)
  { number: job["payload"]["number"], by: "ruby" }
end
HANDLERS = {
  "conformance.echo" => ECHO,
  "conformance.fail_once" => ->(job) { job["attempt"] == "1" ? raise(Again, "not yet") : ECHO.call(job) },
  "conformance.fail" => ->(_) { raise Never, "never" }
}.freeze

def ask(db, call, *arguments) = db.exec_params("select #{call}", arguments).getvalue(0, 0)
def now = Process.clock_gettime(Process::CLOCK_MONOTONIC)

# Where SIGTERM may break in; elsewhere it waits.
def interruptible
  $open = true
  raise Stop if $stop

  yield
ensure
  $open = false
end

# Runs the handler; returns the call that ends its job.
def handle(job)
  handler = HANDLERS.fetch(job["kind"]) { raise "unknown kind #{job["kind"]}" }
  result = handler.call(job.merge("payload" => JSON.parse(job["payload"])))
  ["pgwake.complete_job($1, $2, $3)", result.to_json]
rescue Exception => e # whatever it is, it fails the job
  ["pgwake.fail_job($1, $2, $3, retry_in => $4, retryable => $5)",
   e.message, ("0 seconds" if e.is_a?(Again)), !e.is_a?(Never)]
end

# Runs a job and keeps its lease; returns how it ended.
def run(db, job)
  key = job.values_at("id", "lease_id")
  handler = Thread.new { handle(job) }
  until interruptible { handler.join(LEASE / 3.0) }
    case ask(db, "(pgwake.extend_leases(array[$1::bigint], array[$2::uuid], make_interval(secs => $3)))[1]", *key, LEASE)
    when "cancel_requested" then return ask(db, "pgwake.fail_job($1, $2, 'stopped')", *key)
    when "lease_lost", "no_such_job" then return "lost"
    end
  end
  call, *arguments = handler.value
  answer = ask(db, call, *key, *arguments)
  answer.empty? ? "completed" : answer
rescue Stop
  ask(db, "pgwake.release_jobs(array[$1::bigint], array[$2::uuid], 'shutdown')", *key)
  "released"
rescue PG::Error => e
  e.result&.error_field(PG::PG_DIAG_SQLSTATE) == "PW002" ? "lost" : raise
ensure
  handler.kill
end

# Sleeps until a notification for this consumer, or so many seconds.
def doze(db, seconds, on_duty)
  wake_at = now + seconds
  until (left = wake_at - now) <= 0
    interruptible do
      db.wait_for_notify(left) { |channel, _, queue| wake_at = 0 if queue == QUEUE && (on_duty || channel == "pgwake_baton") }
    end
  end
rescue Stop
  nil
end

def work(db)
  db.exec("listen pgwake; listen pgwake_baton")
  puts "ready"
  on_duty = false
  pause = 0.005
  until $stop
    nil while db.notifies # forgotten before the claim, never after it
    job = db.exec_params("select id, lease_id, kind, payload, attempt from pgwake.claim_next_job($1, $2, make_interval(secs => $3))",
                         [QUEUE, "ruby-#{Process.pid}", LEASE]).first
    if job
      ask(db, "pgwake.unpark($1)", QUEUE) if on_duty
      on_duty = false
      puts "#{job["id"]} #{job["kind"]} #{run(db, job)}"
    elsif on_duty
      # Soon at first: who inserted before it was on duty, and commits now, does not notify.
      doze(db, Float(ask(db, "least(nullif(greatest(extract(epoch from pgwake.next_run_at($1) - now()), 0), 0), $2)", QUEUE, pause)), true)
      pause = [2 * pause, POLL].min
    elsif ask(db, "pgwake.park($1)", QUEUE) == "t"
      on_duty = true # and looks once more
      pause = 0.005
    else
      doze(db, POLL, false)
    end
  end
  ask(db, "pgwake.unpark($1)", QUEUE) if on_duty
end

$stdout.sync = true
trap("TERM") do
  $stop = true
  raise Stop if $open
end
until $stop
  begin
    PG.connect(ENV.fetch("DATABASE_URL")) { |db| work(db) }
  rescue PG::Error => e
    warn e.message
    sleep(1) unless $stop
  end
end
