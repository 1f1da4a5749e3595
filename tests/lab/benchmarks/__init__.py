"""Benchmarks: commands of their own, never part of the tests."""
