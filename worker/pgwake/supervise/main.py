"""A supervised worker process: python -m pgwake.supervise.main, ordered by stdin."""

import asyncio
import functools
import gc
import json
import os
import signal
import sys
import threading
from collections.abc import Coroutine
from contextlib import suppress
from typing import Any, NoReturn, TextIO

import structlog

from pgwake import forks
from pgwake.database.statements.upkeep import CrashCount
from pgwake.engine.worker import Worker, import_handlers
from pgwake.errors import (
    EXIT_CONFIG,
    EXIT_START,
    ConfigurationError,
    ResourceError,
)
from pgwake.jobs.registry import registry
from pgwake.observe import logs
from pgwake.settings import Settings
from pgwake.tracing import tracing

log = structlog.get_logger()

STOP_SIGNALS = (signal.SIGTERM, signal.SIGINT)
FLUSH_SECONDS = 3.0  # that the last spans may take to be exported
# How long a thread that computes keeps the interpreter from the lifeline's, each time
# that one needs it. Python's 5 ms make its beat half a second late beside ten of them.
SWITCH_SECONDS = 0.001
# After how many new objects the collector looks for cycles among them. Jobs that wait
# for their turn or their end are no garbage: at Python's 700 each claim was looked
# through, which took a tenth of the CPU of a short job.
COLLECTED_OBJECTS = 5_000


def main() -> NoReturn:
    """Read the order, work, and end the process."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # until it works, without a traceback
    orders = _take_stdin()
    order: dict[str, Any] = json.loads(orders.readline())
    settings = Settings.load(**order["settings"])
    logs.configure(settings, worker=order["name"])
    # A handler's module may set others.
    sys.setswitchinterval(SWITCH_SECONDS)
    gc.set_threshold(COLLECTED_OBJECTS)
    try:
        import_handlers(settings.imports)
    except ConfigurationError as error:
        log.error("worker can't start", problem=str(error))
        _leave(EXIT_START)
    except (Exception, SystemExit):
        log.exception("handlers can't be imported")
        _leave(EXIT_START)
    code = 0
    try:
        if settings.names_handlers:
            # Here, since other workers need nothing of what it imports.
            from pgwake.kinds import builtin  # noqa: PLC0415

            builtin.register(registry, settings, order["name"])
        run_loop(_work(settings, order, orders))
    except ConfigurationError as error:
        log.error("worker can't start", problem=str(error))
        code = EXIT_CONFIG
    except ResourceError as error:
        log.exception("worker failed", problem=str(error))
        code = EXIT_START
    except Exception:
        log.exception("worker failed")
        code = 1
    _leave(code)


def _take_stdin() -> TextIO:
    """Return what the supervisor writes to, and let handlers read nothing there.

    A thread reads it, which would hold the lock of sys.stdin for good: a handler's
    input() waited for that, and so did each fork of multiprocessing's.
    """
    orders = os.fdopen(os.dup(0))
    forks.withhold(orders.fileno())
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    return orders


def _leave(code: int) -> NoReturn:
    """End the process at once.

    A thread that still runs a job would keep the interpreter from ending, a task that
    swallows its cancellation the loop.
    """
    tracing.flush(FLUSH_SECONDS)
    logs.flush()
    for output in (sys.stdout, sys.stderr):
        with suppress(AttributeError, OSError, ValueError):  # full, or closed
            output.flush()
    os._exit(code)


async def _work(settings: Settings, order: dict[str, Any], orders: TextIO) -> None:
    loop = asyncio.get_running_loop()
    beat_fd: int = order["beat_fd"]
    os.set_blocking(beat_fd, False)
    forks.withhold(beat_fd)
    worker = Worker(
        settings,
        name=order["name"],
        beat_fd=beat_fd,
        http_port=order["http_port"],
        suspects=order["suspects"],
    )
    os.write(beat_fd, json.dumps({"queues": list(worker.queues)}).encode() + b"\n")
    signals = stops = 0

    def stop(*_: object) -> None:
        nonlocal signals
        signals += 1
        stop_to(signals)

    def stop_to(count: int) -> None:
        """Stop, told so by a signal, an order, or both; the second time at once."""
        nonlocal stops
        if count <= stops:
            return
        stops, again = count, count > 1
        worker.expect_stop(at_once=again)
        loop.call_soon_threadsafe(functools.partial(worker.stop, at_once=again))

    # Not the loop's own handlers: they are called by a loop that is not blocked.
    for number in STOP_SIGNALS:
        signal.signal(number, stop)

    masks = threading.local()

    def block_signals() -> None:
        """Have signals wait: a fork would lose them until its handlers are reset."""
        masks.before = signal.pthread_sigmask(signal.SIG_BLOCK, STOP_SIGNALS)

    def unblock_signals() -> None:
        signal.pthread_sigmask(signal.SIG_SETMASK, masks.before)

    def reset_signals() -> None:
        """Let a fork end when it is told to: the worker is not its to stop."""
        signal.set_wakeup_fd(-1)
        for number in STOP_SIGNALS:
            if signal.getsignal(number) is stop:
                signal.signal(number, signal.SIG_DFL)
        unblock_signals()

    os.register_at_fork(
        before=block_signals,
        after_in_parent=unblock_signals,
        after_in_child=reset_signals,
    )

    def read_orders() -> None:
        for line in orders:
            order = json.loads(line)
            stop_to(order.get("stop", 0))
            for jobs, were_claimed in order.get("crashed", ()):
                count = functools.partial(
                    worker.metrics.crashed, CrashCount(*jobs), were_claimed=were_claimed
                )
                loop.call_soon_threadsafe(count)
        stop_to(1)  # the supervisor is gone: drain

    threading.Thread(target=read_orders, name="pgwake-orders", daemon=True).start()
    await worker.run()
    _leave(0)


def run_loop(work: Coroutine[Any, Any, None]) -> None:
    """Run a coroutine, on uvloop where it is installed."""
    try:
        import uvloop  # noqa: PLC0415, the extra "fast"
    except ImportError:
        asyncio.run(work)
    else:
        uvloop.run(work)


if __name__ == "__main__":
    main()
