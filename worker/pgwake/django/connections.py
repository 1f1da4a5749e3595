"""Django's connections around each handler: as fresh as around a request."""

import functools
import inspect
from collections.abc import Callable
from typing import Any

from asgiref.sync import SyncToAsync, ThreadSensitiveContext
from django.db import close_old_connections, connections, reset_queries


def closing_connections(handler: Callable[..., Any]) -> Callable[..., Any]:
    """Return a handler that leaves no lost connection to the next one.

    A plain one keeps those of its thread, by CONN_MAX_AGE and CONN_HEALTH_CHECKS, as
    a request does under WSGI. An async one has a thread of its own for the ORM, which
    is started if it is needed and closes its connections, as a request under ASGI.
    """
    if inspect.iscoroutinefunction(handler):

        @functools.wraps(handler)
        async def call_async(**arguments: Any) -> Any:
            context = ThreadSensitiveContext()
            token = SyncToAsync.thread_sensitive_context.set(context)
            try:
                return await handler(**arguments)
            finally:
                SyncToAsync.thread_sensitive_context.reset(token)
                # Without waiting: what a cancelled handler has left there comes first.
                thread = SyncToAsync.context_to_thread_executor.pop(context, None)
                if thread is not None:
                    thread.submit(connections.close_all)
                    thread.shutdown(wait=False)

        return call_async

    @functools.wraps(handler)
    def call(**arguments: Any) -> Any:
        reset_queries()
        close_old_connections()
        try:
            return handler(**arguments)
        finally:
            close_old_connections()

    return call
