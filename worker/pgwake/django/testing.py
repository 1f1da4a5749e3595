"""The queue in tests of a project: what is enqueued is seen, and run, there."""

from django.db import connections

from pgwake.django.config import alias
from pgwake.testing.jobs import SyncJobs


def sync_jobs() -> SyncJobs:
    """Return the jobs on Django's connection, in the transaction of a TestCase.

        sync_jobs().run_due()

    Plain handlers run on the same connection. Async ones have another, which sees
    what is committed: test these in a TransactionTestCase.
    """
    return SyncJobs.of("").on(connections[alias()])
