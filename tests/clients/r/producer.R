# A producer of pgwake in R (RPostgreSQL, jsonlite): plain inserts in transactions of the caller's own.
# Rscript producer.R N [PREFIX]; environment: DATABASE_URL, QUEUE (default).
suppressPackageStartupMessages(library(RPostgreSQL))
library(jsonlite)

arguments <- commandArgs(trailingOnly = TRUE)
count <- as.integer(arguments[1])
prefix <- if (length(arguments) > 1) arguments[2] else "r-"
queue <- Sys.getenv("QUEUE", "default")
db <- dbConnect(PostgreSQL(), dbname = Sys.getenv("DATABASE_URL"))

# Adds a job, unless a live one has its unique key; returns how many were added.
insert <- function(number, priority = 0) {
  answer <- dbSendQuery(db, "insert into pgwake.jobs (queue, kind, payload, metadata, unique_key, priority)
    values ($1, 'conformance.echo', $2, $3, $4, $5)
    on conflict do nothing",
    c(queue, toJSON(list(number = number), auto_unbox = TRUE), toJSON(list(from = "r"), auto_unbox = TRUE),
      paste0(prefix, number), priority))
  on.exit(dbClearResult(answer))
  dbGetRowsAffected(answer)
}

# Evaluates code in a transaction: all of it counts, or nothing where it stops.
transaction <- function(code) {
  dbGetQuery(db, "begin")
  tryCatch({
    code
    dbGetQuery(db, "commit")
  }, error = function(error) {
    dbGetQuery(db, "rollback")
    stop(error)
  })
}

inserted <- 0
numbers <- seq_len(count) - 1
for (batch in split(numbers, numbers %/% 10)) {
  transaction(for (number in batch) inserted <- inserted + insert(number))
}

# With the caller's work its jobs are rolled back: they have never been there.
tryCatch(transaction({
  for (number in count + 0:9) insert(number)
  stop("the order is not paid")
}), error = function(error) message(conditionMessage(error)))

# A job that can't be meant is refused; the session is as before.
tryCatch(insert(count, priority = 1000), error = function(error) message(conditionMessage(error)))

# This driver does not tell the SQLSTATE of that. Who needs it has a function run the statement.
invisible(dbGetQuery(db, "create function pg_temp.sqlstate_of(statement text) returns text language plpgsql as
  $$ begin execute statement; return null; exception when others then return sqlstate; end $$"))
refused <- dbGetQuery(db, "select pg_temp.sqlstate_of('insert into pgwake.jobs (kind, priority) values (''refused'', 1000)') as code")
cat("refused ", refused$code, "\n", sep = "")
cat("inserted ", inserted, "\n", sep = "")
