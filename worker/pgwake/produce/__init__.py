"""How jobs are enqueued and waited for."""
