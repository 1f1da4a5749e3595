"""The command that serves HTTP without running jobs."""

import asyncio
import signal
from typing import Annotated

from pgwake import worker_names
from pgwake.cli.shared.options import LogFormat, LogLevel, setting
from pgwake.cli.shared.output import Url
from pgwake.http.standalone import StandaloneServer
from pgwake.observe import logs
from pgwake.settings import Settings
from pgwake.supervise.main import run_loop


def serve(
    host: Annotated[str | None, setting("http_host", "--host", metavar="HOST")] = None,
    port: Annotated[
        int | None,
        setting(
            "http_port",
            "--port",
            metavar="PORT",
            min=0,
            max=65_535,
            said="The port where it listens.",
        ),
    ] = None,
    log_format: LogFormat = None,
    log_level: LogLevel = None,
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
    name = worker_names.new_worker_name()
    logs.configure(settings, warns=True, worker=f"serve:{name}")

    async def run() -> None:
        web = StandaloneServer(settings, name)
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, web.stop)
        await web.run()

    run_loop(run())
