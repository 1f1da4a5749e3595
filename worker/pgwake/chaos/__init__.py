"""Faults on purpose, and the account of what they did to the jobs: `pgwake chaos`."""

ON_PURPOSE = "on purpose"  # what a handler of the run says that fails because it should
