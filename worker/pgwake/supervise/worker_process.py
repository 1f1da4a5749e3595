"""A worker process, seen from its supervisor."""

import asyncio
import json
import os
import signal
import sys
from collections.abc import Sequence
from contextlib import suppress
from time import monotonic

import structlog

from pgwake import worker_names
from pgwake.database.statements.upkeep import CrashCount
from pgwake.settings import Settings

log = structlog.get_logger()

START_SECONDS = 300.0


class WorkerProcess:
    """One worker process.

    Attributes:
        name: Its worker name, as in claimed_by.
        pid: Its process id.
        queues: The queues it works on, once it has told.
        is_quarantine: Whether it works on suspects only.
        is_beating: Whether it has begun to work: its lifeline gives the beat.
        has_worked: Whether it could start: once the database fitted, and its resources
            were open.
        is_waiting: Whether it has said with its last beat that it is not so.
    """

    def __init__(
        self, process: asyncio.subprocess.Process, name: str, beats: int
    ) -> None:
        self._process = process
        self._beats = beats
        self._beat_at = monotonic()
        self._told = b""
        self.name = name
        self.pid = process.pid
        self.queues: tuple[str, ...] = ()
        self.is_beating = False
        self.has_worked = False
        self.is_waiting = False
        self.is_quarantine = False

    @classmethod
    async def start(
        cls, settings: Settings, port: int, *, suspects: bool
    ) -> "WorkerProcess":
        """Start one, in a process group of its own: Ctrl-C is ours to forward."""
        beats, beat_fd = os.pipe()
        try:
            process = await asyncio.create_subprocess_exec(
                sys.executable,
                "-m",
                "pgwake.supervise.main",
                stdin=asyncio.subprocess.PIPE,
                pass_fds=[beat_fd],
                start_new_session=True,
            )
        except BaseException:
            os.close(beats)
            raise
        finally:
            os.close(beat_fd)
        os.set_blocking(beats, False)
        child = cls(process, worker_names.new_worker_name(process.pid), beats)
        child.is_quarantine = suspects
        asyncio.get_running_loop().add_reader(beats, child._read_beats)
        child._write(
            {
                "name": child.name,
                "settings": settings.dump(),
                "beat_fd": beat_fd,
                "http_port": port,
                "suspects": suspects,
            }
        )
        return child

    def _write(self, order: object) -> bool:
        if self._process.stdin is None or self._process.stdin.is_closing():
            return False
        self._process.stdin.write(json.dumps(order).encode() + b"\n")
        return True

    def _read_beats(self) -> None:
        """Read what it tells: a line with its queues, then a dot for each beat.

        A dash for a beat while the database does not fit, or nothing is claimed yet.
        """
        try:
            data = os.read(self._beats, 4096)
        except BlockingIOError:
            return
        self._beat_at = monotonic()
        if not data:
            asyncio.get_running_loop().remove_reader(self._beats)
            return
        if not self.queues:
            self._told += data
            line, newline, data = self._told.partition(b"\n")
            if not newline:
                return
            self.queues = tuple(json.loads(line)["queues"])
        if data:
            self.is_waiting = data.endswith(b"-")
            self.has_worked = self.has_worked or b"." in data
        self.is_beating = self.is_beating or bool(data)

    def tell_crashed(self, jobs: Sequence[tuple[CrashCount, bool]]) -> bool:
        """Have it count jobs, as Metrics.crashed does; whether it heard."""
        return self._write({"crashed": jobs})

    def stop(self, count: int) -> None:
        """Tell it to stop: to drain, or with a count above 1 to end at once.

        By an order, since a handler may have set SIGTERM for itself. Until it has begun
        to work it reads no orders.
        """
        self._write({"stop": count})
        if not self.is_beating:
            self.send(signal.SIGTERM)

    def send(self, number: signal.Signals) -> None:
        """Send a signal, if it is still there."""
        with suppress(ProcessLookupError):
            self._process.send_signal(number)

    async def wait(self, stall_seconds: float) -> int:
        """Wait for its end; kill it when its lifeline is silent. The exit code."""
        ended = asyncio.ensure_future(self._process.wait())
        pause = min(1.0, stall_seconds / 4)
        try:
            while not ended.done():
                looked_at = monotonic()
                silent = looked_at - self._beat_at
                # Before the first beat it imports the user's modules, which may take
                # long.
                if silent > (stall_seconds if self.is_beating else START_SECONDS):
                    log.error(
                        "process silent, killed", pid=self.pid, seconds=round(silent)
                    )
                    self.send(signal.SIGKILL)
                await asyncio.wait({ended}, timeout=pause)
                if monotonic() - looked_at > 2 * pause:
                    self._beat_at = monotonic()  # it was this process that stood still
            return await ended
        finally:
            asyncio.get_running_loop().remove_reader(self._beats)
            os.close(self._beats)
