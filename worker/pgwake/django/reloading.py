"""A worker in development: started anew when a file of the project changes."""

import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from django.apps import apps
from django.utils.autoreload import StatReloader

POLL_SECONDS = 1.0


def run_reloading(command: Sequence[str]) -> None:
    """Run a command, and again after each change of a file, until a signal.

    The files are those that this process has loaded, and all of the project's apps. A
    command that has ended by itself is started again by the next change.
    """
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    reloader = StatReloader()
    for app in apps.get_app_configs():
        if "site-packages" not in app.path:
            reloader.watch_dir(Path(app.path), "**/*.py")
    while True:
        files = dict(reloader.snapshot_files())
        child = subprocess.Popen(command)
        try:
            while dict(reloader.snapshot_files()) == files:
                time.sleep(POLL_SECONDS)
        except KeyboardInterrupt:  # which it has heard, too
            sys.exit(child.wait())
        except SystemExit:
            _stop(child)
            raise
        print("a file has changed: starting anew", file=sys.stderr)  # noqa: T201
        _stop(child)


def _stop(child: "subprocess.Popen[bytes]") -> None:
    child.terminate()
    child.wait()
