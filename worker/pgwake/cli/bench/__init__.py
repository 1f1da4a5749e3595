"""`pgwake bench`: how fast pgwake is on a server, and whether it has changed."""
