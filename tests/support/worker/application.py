"""An application with a worker inside: python -m worker.application.

Settings come from PGWAKE_* variables; TEST_WORKER_NAME names the worker.
"""

import asyncio
import os
import signal

from pgwake import Settings, Worker
from pgwake.engine.worker import import_handlers
from pgwake.observe import logs


async def main() -> None:
    settings = Settings.load()
    logs.configure(settings)
    import_handlers(settings.imports)
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGTERM, stop.set)
    async with Worker(settings, name=os.environ.get("TEST_WORKER_NAME")):
        await stop.wait()


if __name__ == "__main__":
    asyncio.run(main())
