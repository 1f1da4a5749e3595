"""Shortages of the machine: a job that meets one is given back, its attempt uncounted.

Of what pgwake does itself for a job: start a command or a process, open a connection.
An exception of a handler's own code is that job's failure, whatever it is: a handler
that uses up the descriptors itself would come back for ever.
"""

import errno
import os
import random
from collections.abc import Iterator
from contextlib import contextmanager

import structlog

from pgwake.jobs.outcomes import Snooze
from pgwake.seldom import Seldom

log = structlog.get_logger()

DELAY_SECONDS = 10.0  # on average: meanwhile another worker may have what is needed
_CODES = (errno.EMFILE, errno.ENFILE, errno.EAGAIN, errno.ENOMEM)
_seldom = Seldom()


@contextmanager
def given_back() -> Iterator[None]:
    """Put the job off when the block fails for want of descriptors, or the like.

    Raises:
        Snooze: So it did.
    """
    try:
        yield
    except OSError as error:
        # Uvloop does not say which error it was, so it is found out by trying, too.
        if error.errno not in _CODES and not no_descriptor_left():
            raise
        raise put_off(error) from None


def put_off(error: Exception) -> Snooze:
    """Return what puts a job off; a line now and then tells of it."""
    if count := _seldom.count():
        log.error("jobs put off for want of resources", error=str(error), count=count)
    return Snooze(random.uniform(0.5, 1.5) * DELAY_SECONDS)  # noqa: S311


def no_descriptor_left() -> bool:
    """Whether this process can't open anything just now."""
    try:
        os.close(os.open(os.devnull, os.O_RDONLY))
    except OSError as error:
        return error.errno in _CODES
    return False
