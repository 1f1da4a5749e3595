"""The command that runs jobs."""

import asyncio
import sys
from typing import Annotated

from pgwake import names
from pgwake.cli.options import LogFormat, LogLevel, setting
from pgwake.cli.output import Url
from pgwake.errors import ConfigurationError
from pgwake.observe import logs
from pgwake.settings import Settings
from pgwake.supervise.supervisor import Supervisor

LOG_SECONDS = 1.0  # that the last lines may wait for whoever reads the log


def run(
    imports: Annotated[
        list[str] | None,
        setting(
            "imports",
            "--import",
            metavar="MODULE",
            said="Module with handlers; may be repeated.",
        ),
    ] = None,
    queues: Annotated[
        list[str] | None,
        setting(
            "queues",
            "--queue",
            metavar="QUEUE:SLOTS",
            said="Queue to work on, with its slots (emails:20); may be repeated. By "
            "default those of the handlers, 10 slots each.",
        ),
    ] = None,
    http_handlers: Annotated[
        list[str] | None,
        setting(
            "http_handlers",
            "--http",
            metavar="KIND=URL",
            said="Kind whose jobs are posted to a URL; may be repeated.",
        ),
    ] = None,
    exec_handlers: Annotated[
        list[str] | None,
        setting(
            "exec_handlers",
            "--exec",
            metavar="KIND=COMMAND",
            said="Kind whose jobs a command does; may be repeated.",
        ),
    ] = None,
    webhooks: Annotated[
        bool | None, setting("webhooks", "--webhooks", said="Deliver webhooks.")
    ] = None,
    processes: Annotated[int | None, setting("processes", metavar="N")] = None,
    poll_interval: Annotated[
        float | None, setting("poll_interval", metavar="SECONDS")
    ] = None,
    lease: Annotated[float | None, setting("lease", metavar="SECONDS")] = None,
    grace: Annotated[float | None, setting("grace", metavar="SECONDS")] = None,
    http_port: Annotated[int | None, setting("http_port", metavar="PORT")] = None,
    log_format: LogFormat = None,
    log_level: LogLevel = None,
    database_url: Url = None,
) -> None:
    """Run jobs, until SIGTERM or Ctrl-C: then running jobs may end within the grace."""
    settings = Settings.load(
        imports=tuple(imports) if imports else None,
        queues=tuple(queues) if queues else None,
        http_handlers=http_handlers or None,
        exec_handlers=exec_handlers or None,
        webhooks=webhooks,
        processes=processes,
        poll_interval=poll_interval,
        lease=lease,
        grace=grace,
        http_port=http_port,
        log_format=log_format,
        log_level=log_level,
        database_url=database_url,
    )
    if not (settings.imports or settings.names_handlers):
        raise ConfigurationError(
            "no handlers: name the modules that have them (--import MODULE, or "
            "PGWAKE_IMPORTS), or kinds with --http or --exec"
        )
    name = f"supervisor:{names.new_worker_name()}"
    logs.configure(settings, warns=True, worker=name)
    code = asyncio.run(Supervisor(settings).run())
    logs.flush(LOG_SECONDS)
    sys.exit(code)
