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
OPTIONS: dict[str, dict[str, Any]] = {
    "--import": {"dest": "imports", "action": "append", "metavar": "MODULE"},
    "--queue": {"dest": "queues", "action": "append", "metavar": "QUEUE:SLOTS"},
    "--processes": {"type": int, "metavar": "N"},
    "--grace": {"type": float, "metavar": "SECONDS"},
    "--http-port": {"type": int, "metavar": "PORT"},
    "--log-format": {"metavar": "auto|human|json"},
    "--log-level": {"metavar": "LEVEL"},
}


class Command(BaseCommand):
    """Runs jobs until SIGTERM or Ctrl-C; then running jobs may end within the grace."""

    help = "Run the jobs of this project: those of each app's jobs.py."

    def add_arguments(self, parser: ArgumentParser) -> None:
        """Take what `pgwake run` takes; the rest is in PGWAKE, or in variables."""
        for flag, how in OPTIONS.items():
            field = Settings.model_fields[how.get("dest", flag[2:].replace("-", "_"))]
            parser.add_argument(flag, help=field.description, **how)
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
        names = [how.get("dest", f[2:].replace("-", "_")) for f, how in OPTIONS.items()]
        try:
            settings = worker_settings(**{name: options[name] for name in names})
        except ConfigurationError as error:
            raise CommandError(str(error), returncode=78) from None
        # Where manage.py is: the processes look for the project there.
        paths = [sys.path[0], os.environ.get("PYTHONPATH", "")]
        os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, paths))
        if code := supervise(settings):
            sys.exit(code)
