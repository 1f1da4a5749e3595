# Runs a contract through RPostgreSQL: DATABASE_URL=... Rscript contract.R FILE
# The format is in ../README.md. Exit code 0: each step went as expected; 1: one did not.
# This driver hears no notifications (`hears` is left out), sends no NULL (it is written into the
# statement), and does not tell an error's SQLSTATE: where one is expected, a function that runs
# the statement tells it.
suppressPackageStartupMessages(library(RPostgreSQL))

connect <- function() {
  session <- dbConnect(PostgreSQL(), dbname = Sys.getenv("DATABASE_URL"))
  dbGetQuery(session, "create function pg_temp.sqlstate_of(statement text) returns text language plpgsql as
    $$ begin execute statement; return null; exception when others then return sqlstate; end $$")
  session
}

# Puts what a function makes of each {name} in its place.
fill <- function(text, of) {
  places <- gregexpr("\\{\\w+\\}", text)
  names <- regmatches(text, places)[[1]]
  regmatches(text, places) <- list(vapply(names, function(name) of(substr(name, 2, nchar(name) - 1)), ""))
  text
}

# Runs a statement; returns its first value, NA for NULL.
ask <- function(session, statement, parameters = character()) {
  answer <- suppressWarnings(dbSendQuery(session, statement, parameters))
  on.exit(dbClearResult(answer))
  rows <- if (dbHasCompleted(answer)) data.frame() else suppressWarnings(fetch(answer, n = -1))
  if (nrow(rows) == 0) "(no row)" else as.character(rows[1, 1])
}

sessions <- list()
values <- character()
script <- paste(readLines(commandArgs(trailingOnly = TRUE)[1], encoding = "UTF-8"), collapse = "\n")
steps <- strsplit(script, "\n-- step: ", fixed = TRUE)[[1]][-1]
for (step in steps) {
  lines <- strsplit(step, "\n", fixed = TRUE)[[1]]
  directives <- grep("^-- (in|expect|error|keep|hears): ", lines, value = TRUE)
  wanted <- setNames(as.list(sub("^-- \\w+: ", "", directives)), sub("^-- (\\w+): .*", "\\1", directives))
  name <- if (is.null(wanted[["in"]])) "a" else wanted[["in"]]
  if (is.null(sessions[[name]])) sessions[[name]] <- connect()
  session <- sessions[[name]]
  sql <- paste(lines[-1][!startsWith(lines[-1], "--")], collapse = "\n")

  compare <- function(word, got) {
    expected <- if (is.null(wanted[[word]])) "(none)" else fill(wanted[[word]], function(name) values[[name]])
    if (got == expected) return()
    cat(sprintf("step \"%s\": expected %s %s, got %s\n", lines[1], word, expected, got))
    quit(status = 1)
  }
  sqlstate <- function() {
    exact <- fill(sql, function(name) as.character(dbQuoteString(session, values[[name]])))
    code <- ask(session, "select pg_temp.sqlstate_of($1)", exact)
    if (is.na(code)) "(none)" else code
  }
  if (!is.null(wanted$error)) {
    compare("error", sqlstate())
    next
  }
  parameters <- character()
  statement <- fill(sql, function(name) {
    if (is.na(values[[name]])) return("null")
    parameters <<- c(parameters, values[[name]])
    paste0("$", length(parameters))
  })
  value <- tryCatch(ask(session, statement, parameters), error = function(error) compare("error", sqlstate()))
  if (!is.null(wanted$keep)) {
    kept <- if (is.na(value) || value == "") value else strsplit(value, "\n", fixed = TRUE)[[1]]
    values[strsplit(wanted$keep, " ")[[1]]] <- kept
  }
  if (!is.null(wanted$expect)) compare("expect", if (is.na(value)) "(null)" else if (value == "") "(empty)" else value)
}
cat(length(steps), "steps\n")
