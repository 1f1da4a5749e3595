"""Kills what commands have left when their worker has died.

A process of its own, run as a file, so that it starts in milliseconds: it imports
nothing of pgwake's. Reads +GROUP and -GROUP, a line each, on standard input, which ends
when the worker does, however that was; then it kills the groups that are left.
"""

import os
import signal
import sys
from contextlib import suppress


def main() -> None:
    """Keep the list, and kill what is on it in the end."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    groups: set[int] = set()
    for line in sys.stdin:
        if line.startswith("+"):
            groups.add(int(line))
        else:
            groups.discard(-int(line))
    for group in groups:
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(group, signal.SIGKILL)


if __name__ == "__main__":
    main()
