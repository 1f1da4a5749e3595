"""A pytest plugin for the tests of those who use pgwake.

In the conftest.py at the root of the tests:

    pytest_plugins = ["pgwake.testing"]

It runs PostgreSQL where it is given none, and each test has a database of its own.
"""

from importlib.util import find_spec

from pgwake.testing.enqueued import Enqueued
from pgwake.testing.inline import Run
from pgwake.testing.jobs import Jobs, SyncJobs

__all__ = ["Enqueued", "Jobs", "Run", "SyncJobs"]

if find_spec("pytest"):  # Django's tests have SyncJobs without it
    from pgwake.testing.plugin import (  # noqa: F401
        pgwake_database,
        pgwake_jobs,
        pgwake_registry,
        pgwake_resources,
        pgwake_schema,
        pgwake_server,
        pgwake_sync_jobs,
        pgwake_template,
        pytest_addoption,
    )
