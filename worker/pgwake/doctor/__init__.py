"""`pgwake doctor`: what is wrong with a database and its settings."""
