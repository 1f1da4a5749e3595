# A consumer of pgwake in R (RPostgreSQL, jsonlite): claims one job at a time.
# Its driver hears no notifications, so it polls, once a second. R does one thing at a time, so
# a handler calls keep() now and then, which extends the lease. And R can't handle SIGTERM: it
# is stopped by SIGINT (systemd: KillSignal=, containers: STOPSIGNAL); a running job is given back.
# Environment: DATABASE_URL, QUEUE (default), LEASE (seconds, 30). Somebody has to sweep
# leases that ran out: a pgwake worker, or cron.
suppressPackageStartupMessages(library(RPostgreSQL))
library(jsonlite)

queue <- Sys.getenv("QUEUE", "default")
lease <- as.numeric(Sys.getenv("LEASE", "30"))
poll <- 1
stopping <- FALSE

# A handler's error fails the job, which is retried by policy; failure() says otherwise.
failure <- function(message, retry_in = "", retryable = TRUE) {
  stop(errorCondition(message, class = "failure", retry_in = retry_in, retryable = retryable))
}
echo <- function(job, keep) {
  ends_at <- Sys.time() + max(0, job$payload$seconds)
  while ((left <- as.numeric(ends_at - Sys.time(), units = "secs")) > 0) {
    Sys.sleep(min(left, lease / 3))
    keep()
  }
  list(number = job$payload$number, by = "r")
}
handlers <- list(
  conformance.echo = echo,
  conformance.fail_once = function(job, keep) {
    if (job$attempt == 1) failure("not yet", retry_in = "0 seconds")
    echo(job, keep)
  },
  conformance.fail = function(job, keep) failure("never", retryable = FALSE)
)

# Returns the rows of an answer. The driver says NA as the text NA: null has to be said otherwise.
ask <- function(statement, ...) {
  answer <- suppressWarnings(dbSendQuery(db, statement, c(...)))
  on.exit(dbClearResult(answer))
  fetch(answer, n = -1)
}

# Runs a job and tells how it ended; returns that. It uses the forms for many jobs: these answer
# lease_lost where the others raise PW002, which this driver does not tell.
run <- function(job) {
  tell <- function(call, ...) ask(sprintf("select (pgwake.%s)[1] as outcome", call), job$id, job$lease_id, ...)$outcome
  fail <- function(message, retry_in = "", retryable = TRUE) {
    tell("fail_jobs(array[$1::bigint], array[$2::uuid], array[$3], retry_ins => array[nullif($4, '')::interval],
      retryables => array[$5::boolean])", message, retry_in, retryable)
  }
  kept_at <- Sys.time()
  keep <- function() suspendInterrupts(if (as.numeric(Sys.time() - kept_at, units = "secs") >= lease / 3) {
    answer <- tell("extend_leases(array[$1::bigint], array[$2::uuid], make_interval(secs => $3))", lease)
    if (answer != "extended") stop(structure(class = c("cut", "condition"), list(message = answer, call = NULL)))
    kept_at <<- Sys.time()
  })
  end <- tryCatch({
    handler <- handlers[[job$kind]]
    if (is.null(handler)) stop("unknown kind ", job$kind)
    job$payload <- fromJSON(job$payload)
    result <- toJSON(allowInterrupts(handler(job, keep)), auto_unbox = TRUE)
    function() tell("complete_jobs(array[$1::bigint], array[$2::uuid], array[$3::jsonb])", result)
  },
  interrupt = function(c) function() {
    stopping <<- TRUE
    tell("release_jobs(array[$1::bigint], array[$2::uuid], 'shutdown')")
  },
  cut = function(c) function() if (c$message == "cancel_requested") fail("stopped") else "lost",
  failure = function(c) function() fail(c$message, c$retry_in, c$retryable),
  error = function(c) function() fail(conditionMessage(c)))
  outcome <- end()
  if (outcome %in% c("lease_lost", "no_such_job")) "lost" else outcome
}

nap <- function(seconds) {
  tryCatch(allowInterrupts(Sys.sleep(seconds)), interrupt = function(c) stopping <<- TRUE)
}

work <- function() {
  db <<- dbConnect(PostgreSQL(), dbname = Sys.getenv("DATABASE_URL"))
  on.exit(try(dbDisconnect(db), silent = TRUE))
  cat("ready\n")
  while (!stopping) {
    job <- ask("select id::text, lease_id::text, kind, payload::text, attempt
      from pgwake.claim_next_job($1, $2, make_interval(secs => $3))", queue, paste0("r-", Sys.getpid()), lease)
    if (nrow(job) == 1) {
      cat(job$id, " ", job$kind, " ", run(as.list(job)), "\n", sep = "")
    } else {
      nap(ask("select least(nullif(greatest(extract(epoch from pgwake.next_run_at($1) - now()), 0), 0), $2)::float8 as s", queue, poll)$s)
    }
  }
}

suspendInterrupts(while (!stopping) {
  tryCatch(work(), error = function(error) {
    message(conditionMessage(error))
    nap(1)
  })
})
