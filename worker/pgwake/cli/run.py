"""The command that runs jobs."""

import asyncio
import sys
from typing import Annotated

import typer

from pgwake import names
from pgwake.cli.output import Url
from pgwake.errors import ConfigurationError
from pgwake.observe import logs
from pgwake.settings import Settings
from pgwake.supervise.supervisor import Supervisor

Seconds = Annotated[float | None, typer.Option(metavar="SECONDS")]


def run(
    imports: Annotated[
        list[str] | None,
        typer.Option("--import", help="Module with handlers; may be repeated."),
    ] = None,
    queues: Annotated[
        list[str] | None,
        typer.Option(
            "--queue", help="Queue to work on, with its slots (emails:20); repeatable."
        ),
    ] = None,
    http_handlers: Annotated[
        list[str] | None,
        typer.Option(
            "--http",
            metavar="KIND=URL",
            help="Kind whose jobs are posted to a URL; may be repeated.",
        ),
    ] = None,
    exec_handlers: Annotated[
        list[str] | None,
        typer.Option(
            "--exec",
            metavar="KIND=COMMAND",
            help="Kind whose jobs a command does; may be repeated.",
        ),
    ] = None,
    webhooks: Annotated[
        bool | None, typer.Option("--webhooks", help="Deliver webhooks.")
    ] = None,
    processes: Annotated[int | None, typer.Option(help="Worker processes.")] = None,
    poll_interval: Seconds = None,
    lease: Seconds = None,
    grace: Seconds = None,
    http_port: Annotated[int | None, typer.Option(help="0: no HTTP.")] = None,
    log_format: Annotated[str | None, typer.Option(help="auto, human or json.")] = None,
    log_level: Annotated[
        str | None, typer.Option(help="debug, info, warning or error.")
    ] = None,
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
    logs.configure(settings, worker=f"supervisor:{names.new_worker_name()}")
    sys.exit(asyncio.run(Supervisor(settings).run()))
