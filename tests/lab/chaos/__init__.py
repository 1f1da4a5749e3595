"""Chaos: faults on purpose, and an account that has to close."""
