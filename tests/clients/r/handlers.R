# What consumer.R does with a job of each kind: yours go here. A handler takes the payload and the job, and returns the
# result. An error fails the attempt; failure() says when to try again, or never.
failure <- function(message, retry_in = "", retryable = TRUE) {
  stop(errorCondition(message, class = "failure", retry_in = retry_in, retryable = retryable))
}

echo <- function(payload, job) {
  Sys.sleep(max(0, payload$seconds))
  list(number = payload$number, by = "r")
}

fail_once <- function(payload, job) {
  if (job$attempt == 1) failure("not yet", retry_in = "0 seconds")
  echo(payload, job)
}

fail <- function(payload, job) {
  echo(payload, job)
  failure("never", retryable = FALSE)
}

handlers <- list(conformance.echo = echo, conformance.fail_once = fail_once, conformance.fail = fail)
