"""Chaos: faults on purpose, and every job accounted for."""
