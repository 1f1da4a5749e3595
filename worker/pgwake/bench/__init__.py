"""What pgwake does on a user's own database, in figures: `pgwake bench`."""
