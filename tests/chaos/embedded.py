"""python -m tests.chaos.embedded: a worker without a supervisor, its lease 3 s."""

import asyncio
import signal

from pgwake import Settings, Worker, logs

from . import handlers as handlers  # noqa: PLC0414, registers them


async def main() -> None:
    """Work until SIGTERM."""
    settings = Settings.load(queues="chaos:10", lease=3, http_port=0)
    logs.configure(settings)
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    async with Worker(settings):
        await stop.wait()


if __name__ == "__main__":
    asyncio.run(main())
