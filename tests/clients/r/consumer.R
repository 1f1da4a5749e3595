# A consumer on RPostgreSQL: DATABASE_URL=... QUEUE=... LEASE=... Rscript consumer.R, until SIGINT, as R has no SIGTERM.
# Claims one job at a time, and polls between: the driver has no notifications. R does one thing at a time: it does
# not extend the lease, so set LEASE longer than the longest job takes, and SIGINT has a running job given back.
suppressPackageStartupMessages(library(RPostgreSQL))
library(jsonlite)
file <- sub("--file=", "", grep("--file=", commandArgs(), value = TRUE))
source(file.path(dirname(file), "handlers.R"))

queue <- Sys.getenv("QUEUE", "default")
lease <- Sys.getenv("LEASE", "30") # seconds
stopping <- FALSE
nap <- function(seconds) tryCatch(allowInterrupts(Sys.sleep(seconds)), interrupt = function(c) stopping <<- TRUE)

# Returns the rows of an answer. The driver can't send NULL: where one is meant, "" is sent.
ask <- function(statement, ...) {
  answer <- suppressWarnings(dbSendQuery(db, statement, c(...)))
  on.exit(dbClearResult(answer))
  fetch(answer, n = -1)
}

# Runs a job; returns how it ended. It uses the functions for many jobs, which answer an outcome where the others raise
# PW002: the driver doesn't tell which error it is.
run <- function(job) {
  tell <- function(call, ...) {
    call <- sub("MINE", "array[$1::bigint], array[$2::uuid]", call, fixed = TRUE)
    ask(sprintf("select (pgwake.%s)[1] as outcome", call), job$id, job$lease_id, ...)$outcome
  }
  outcome <- tryCatch({
    if (is.null(handlers[[job$kind]])) stop("unknown kind ", job$kind)
    result <- toJSON(allowInterrupts(handlers[[job$kind]](fromJSON(job$payload), job)), auto_unbox = TRUE)
    tell("complete_jobs(MINE, array[$3::jsonb])", result)
  }, interrupt = function(interrupt) {
    stopping <<- TRUE
    tell("release_jobs(MINE, 'shutdown')")
  }, error = function(error) {
    how <- modifyList(list(retry_in = "", retryable = TRUE), unclass(error))
    tell("fail_jobs(MINE, array[$3], retry_ins => array[nullif($4, '')::interval], retryables => array[$5::boolean])",
      conditionMessage(error), how$retry_in, how$retryable)
  })
  sub("lease_lost", "lost", outcome)
}

work <- function() {
  db <<- dbConnect(PostgreSQL(), dbname = Sys.getenv("DATABASE_URL"))
  on.exit(try(dbDisconnect(db), silent = TRUE))
  cat("ready\n")
  while (!stopping) {
    job <- ask("select id::text, lease_id::text, kind, payload::text, attempt
      from pgwake.claim_next_job($1, $2, $3::interval)", queue, paste0("r-", Sys.getpid()), lease)
    if (nrow(job) == 1) cat(job$id, " ", job$kind, " ", run(as.list(job)), "\n", sep = "")
    nap(if (nrow(job) == 1) 0 else ask("select (case when due between 0 and 1 then due else 1 end)::float8 as seconds
      from extract(epoch from pgwake.next_run_at($1) - now()) as due", queue)$seconds)
  }
}

suspendInterrupts(while (!stopping) tryCatch(work(), error = function(error) {
  message(conditionMessage(error))
  nap(1)
}))
