"""`pgwake demo`: real jobs on a real PostgreSQL, and a summary that checks itself."""
