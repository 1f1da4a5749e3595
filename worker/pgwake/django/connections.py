"""Django's connections around each handler: as fresh as around a request."""

from collections.abc import Iterator
from contextlib import contextmanager

from asgiref.sync import SyncToAsync, ThreadSensitiveContext
from django.db import connections, reset_queries

from pgwake.jobs.job import Job
from pgwake.jobs.registry import registry


def closing_connections(jobs: list[Job]) -> Iterator[None]:
    """Leave no lost connection to the next handler.

    A plain one keeps those of its thread, by CONN_MAX_AGE and CONN_HEALTH_CHECKS, as
    a request does under WSGI. An async one has a thread of its own for the ORM, which
    is started if it is needed and closes its connections, as a request under ASGI.
    """
    handler = registry.get(jobs[0].kind)
    is_async = handler is not None and handler.is_async
    with _own_thread() if is_async else _fresh_connections():
        yield


@contextmanager
def _own_thread() -> Iterator[None]:
    context = ThreadSensitiveContext()
    token = SyncToAsync.thread_sensitive_context.set(context)
    try:
        yield
    finally:
        SyncToAsync.thread_sensitive_context.reset(token)
        # Without waiting: what a cancelled handler has left there comes first.
        thread = SyncToAsync.context_to_thread_executor.pop(context, None)
        if thread is not None:
            thread.submit(connections.close_all)
            thread.shutdown(wait=False)


@contextmanager
def _fresh_connections() -> Iterator[None]:
    reset_queries()
    given = _in_use()
    _close_old(given)
    try:
        yield
    finally:
        _close_old(given)


def _in_use() -> set[str]:
    """Return the aliases whose connection is the caller's: a test case's, in atomic."""
    opened = connections.all(initialized_only=True)
    return {connection.alias for connection in opened if connection.in_atomic_block}


def _close_old(given: set[str]) -> None:
    """Close connections of this thread as close_old_connections() does, but these."""
    for connection in connections.all(initialized_only=True):
        if connection.alias not in given:
            connection.close_if_unusable_or_obsolete()
