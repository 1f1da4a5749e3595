"""`pgwake chaos`: runs jobs under faults and accounts for each."""
