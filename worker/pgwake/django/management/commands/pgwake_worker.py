"""manage.py pgwake_worker: runs the jobs of the project."""

import os
import sys
from argparse import ArgumentParser
from typing import Any

from django.core.management.base import BaseCommand, CommandError
from django.db import connections

from pgwake.django.config import alias, worker_settings
from pgwake.django.reloading import run_reloading
from pgwake.errors import ConfigurationError
from pgwake.settings import Settings
from pgwake.supervise.supervisor import supervise

RELOAD = "--autoreload"
# By the setting that each sets.
OPTIONS: dict[str, tuple[str, dict[str, Any]]] = {
    "imports": ("--import", {"action": "append", "metavar": "MODULE"}),
    "queues": ("--queue", {"action": "append", "metavar": "QUEUE:SLOTS"}),
    "processes": ("--processes", {"type": int, "metavar": "N"}),
    "grace": ("--grace", {"type": float, "metavar": "SECONDS"}),
    "http_port": ("--http-port", {"type": int, "metavar": "PORT"}),
    "log_format": ("--log-format", {"metavar": "auto|human|json"}),
    "log_level": ("--log-level", {"metavar": "LEVEL"}),
}


class Command(BaseCommand):
    """Runs jobs until SIGTERM or Ctrl-C; then running jobs may end within the grace."""

    help = "Run the jobs of this project: those of each app's jobs.py."

    def add_arguments(self, parser: ArgumentParser) -> None:
        """Take what `pgwake run` takes; the rest is in PGWAKE, or in variables."""
        for name, (flag, how) in OPTIONS.items():
            told = Settings.model_fields[name].description
            parser.add_argument(flag, dest=name, help=told, **how)
        parser.add_argument(
            RELOAD,
            action="store_true",
            help="start anew when a file of the project changes, for development",
        )

    def get_check_kwargs(self, options: dict[str, Any]) -> dict[Any, Any]:
        """Look at the database's schema, too."""
        return {**super().get_check_kwargs(options), "databases": [alias()]}

    def handle(self, *_: Any, autoreload: bool, **options: Any) -> None:
        """Run the supervisor; its processes set Django up for themselves."""
        connections.close_all()  # of the checks
        if autoreload:
            run_reloading([sys.executable, *(a for a in sys.argv if a != RELOAD)])
            return
        try:
            settings = worker_settings(**{name: options[name] for name in OPTIONS})
        except ConfigurationError as error:
            raise CommandError(str(error), returncode=78) from None
        # Where manage.py is: the processes look for the project there.
        paths = [sys.path[0], os.environ.get("PYTHONPATH", "")]
        os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, paths))
        if code := supervise(settings):
            sys.exit(code)
