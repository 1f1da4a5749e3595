"""`pgwake bench`: measures pgwake on the database it is given."""
