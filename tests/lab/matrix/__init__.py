"""Every PostgreSQL and every Python that is supported, by one command."""
