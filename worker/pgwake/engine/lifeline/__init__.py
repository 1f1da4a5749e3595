"""The lifeline: a thread with its own loop, which a blocked main loop can't stop."""
