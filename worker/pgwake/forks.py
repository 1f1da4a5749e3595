"""What a process that a handler forks must not have of its worker's.

A fork has a copy of every descriptor. It may outlive the worker, and the sessions would
live on in it: with their locks, and as if the worker did. So in a fork each descriptor
that is withheld becomes /dev/null. Programs that are started get none: Python's
descriptors are closed on exec.
"""

import os
from contextlib import suppress
from typing import Protocol
from weakref import WeakSet


class _File(Protocol):
    def fileno(self) -> int: ...


_files: "WeakSet[_File]" = WeakSet()
_fds: set[int] = set()
_is_fork = False


def withhold(file: _File | int) -> None:
    """Let forks have no copy of an open file, or of a descriptor that stays open."""
    if isinstance(file, int):
        os.set_inheritable(file, False)
        _fds.add(file)
    else:
        _files.add(file)


def begin() -> None:
    """Note that a worker begins here, be it in a fork that an application has made."""
    global _is_fork  # noqa: PLW0603
    _is_fork = False


def leave_if_forked() -> None:
    """End this process if it is a fork whose handler has returned into the worker."""
    if _is_fork:
        os._exit(0)


def _withhold_all() -> None:
    global _is_fork  # noqa: PLW0603
    _is_fork = True
    fds = set(_fds)
    for file in list(_files):
        with suppress(OSError, ValueError):  # it is closed
            fds.add(file.fileno())
    nothing = os.open(os.devnull, os.O_RDWR)
    for fd in fds:
        if fd >= 0:
            os.dup2(nothing, fd, inheritable=False)
    os.close(nothing)


os.register_at_fork(after_in_child=_withhold_all)
