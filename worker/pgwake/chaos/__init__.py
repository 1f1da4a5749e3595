"""Faults on purpose, and the account of what they did to the jobs: `pgwake chaos`."""

KIND = "pgwake_chaos"  # of its jobs: one that nobody else has
ON_PURPOSE = "on purpose"  # what a handler of the run says that fails because it should
