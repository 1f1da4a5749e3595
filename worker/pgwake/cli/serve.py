"""The command that serves HTTP without running jobs."""

import asyncio
import signal
from typing import Annotated

import typer

from pgwake import names
from pgwake.cli.output import Url
from pgwake.http.serve import Web
from pgwake.observe import logs
from pgwake.settings import Settings
from pgwake.supervise.main import run_loop


def serve(
    host: Annotated[
        str | None, typer.Option(help="Where to listen: PGWAKE_HTTP_HOST.")
    ] = None,
    port: Annotated[
        int | None,
        typer.Option(min=0, max=65_535, help="By default PGWAKE_HTTP_PORT, else 9808."),
    ] = None,
    log_format: Annotated[str | None, typer.Option(help="auto, human or json.")] = None,
    log_level: Annotated[
        str | None, typer.Option(help="debug, info, warning or error.")
    ] = None,
    database_url: Url = None,
) -> None:
    """Serve metrics, health, the API and the status page, and run no jobs.

    The API and the page need PGWAKE_API_TOKEN. Until SIGTERM or Ctrl-C.
    """
    settings = Settings.load(
        http_host=host,
        http_port=port,
        log_format=log_format,
        log_level=log_level,
        database_url=database_url,
    )
    name = names.new_worker_name()
    logs.configure(settings, worker=f"serve:{name}")

    async def run() -> None:
        web = Web(settings, name)
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, web.stop)
        await web.run()

    run_loop(run())
