"""The worker: claims jobs, runs their handlers, and writes their ends."""
