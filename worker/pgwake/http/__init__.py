"""HTTP: metrics, health, and, behind a token, the queue itself."""
