"""The command that runs jobs."""

import sys
from typing import Annotated, Any

from pgwake.cli.shared.options import LogFormat, LogLevel, setting, takes
from pgwake.cli.shared.output import Url
from pgwake.errors import ConfigurationError
from pgwake.settings import Settings
from pgwake.supervise.supervisor import supervise

OPTIONS = {
    "imports": Annotated[
        list[str] | None,
        setting(
            "imports",
            "--import",
            metavar="MODULE",
            said="Module with handlers; may be repeated.",
        ),
    ],
    "queues": Annotated[
        list[str] | None,
        setting(
            "queues",
            "--queue",
            metavar="QUEUE:SLOTS",
            said="Queue to work on, with its slots (emails:20); may be repeated. By "
            "default those of the handlers, 10 slots each.",
        ),
    ],
    "http_handlers": Annotated[
        list[str] | None,
        setting(
            "http_handlers",
            "--http",
            metavar="KIND=URL",
            said="Kind whose jobs are posted to a URL; may be repeated.",
        ),
    ],
    "exec_handlers": Annotated[
        list[str] | None,
        setting(
            "exec_handlers",
            "--exec",
            metavar="KIND=COMMAND",
            said="Kind whose jobs a command does; may be repeated.",
        ),
    ],
    "webhooks": Annotated[
        bool | None, setting("webhooks", "--webhooks", said="Deliver webhooks.")
    ],
    "processes": Annotated[int | None, setting("processes", metavar="N")],
    "poll_interval": Annotated[
        float | None, setting("poll_interval", metavar="SECONDS")
    ],
    "lease": Annotated[float | None, setting("lease", metavar="SECONDS")],
    "grace": Annotated[float | None, setting("grace", metavar="SECONDS")],
    "http_port": Annotated[int | None, setting("http_port", metavar="PORT")],
    "log_format": LogFormat,
    "log_level": LogLevel,
    "database_url": Url,
}


@takes(OPTIONS)
def run(**given: Any) -> None:
    """Run jobs, until SIGTERM or Ctrl-C: then running jobs may end within the grace."""
    settings = Settings.load(
        **{
            n: (tuple(v) or None) if isinstance(v, list) else v
            for n, v in given.items()
        }
    )
    if not (settings.imports or settings.names_handlers):
        raise ConfigurationError(
            "no handlers: name the modules that have them (--import MODULE, or "
            "PGWAKE_IMPORTS), or kinds with --http or --exec"
        )
    sys.exit(supervise(settings))
