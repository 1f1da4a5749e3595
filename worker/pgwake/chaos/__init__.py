"""Faults on purpose, and the account of what they did to the jobs: `pgwake chaos`."""
