"""Where the log goes: standard error, which may be full, closed, or read by nobody."""

import os
import select
import socket
import stat
import threading
from collections import deque
from collections.abc import Callable
from contextlib import suppress

MAX_WAITING = 2**20  # bytes of lines that wait for a reader


class LogSink:
    """Writes lines to a descriptor, and never waits for it.

    What a pipe has no room for waits in memory for a thread, which is started then. A
    line that finds no room there, or that is refused, is dropped and counted.

    Attributes:
        dropped: How many lines are.

    Args:
        fd: The descriptor.
        tell_dropped: Writes a line that says how many are, once one can be written.
    """

    def __init__(self, fd: int, tell_dropped: Callable[[int], None]) -> None:
        self.dropped = self._told = 0
        self._tell_dropped = tell_dropped
        self._write, self._fd = _unblocked(fd)
        self._start_anew()
        os.register_at_fork(after_in_child=self._start_anew)

    def _start_anew(self) -> None:
        """Forget what waits: in a fork the lock may be held by a thread it lacks."""
        self._lock = threading.RLock()  # a signal may come while a line is written
        self._waiting: deque[bytes] = deque()
        self._size = 0
        self._is_empty = threading.Event()
        self._is_empty.set()

    def write(self, line: str) -> None:
        """Write a line, now or soon; from any thread."""
        data = line.encode(errors="backslashreplace") + b"\n"
        before = self.dropped
        with self._lock:
            rest = data if self._waiting else self._send(data)
            if rest and len(rest) == len(data) and self._size > MAX_WAITING:
                self.dropped += 1
            elif rest:
                self._waiting.append(rest)
                self._size += len(rest)
                if self._is_empty.is_set():
                    self._is_empty.clear()
                    threading.Thread(
                        target=self._drain, name="pgwake-log", daemon=True
                    ).start()
        if self.dropped == before:
            self._tell()

    def _tell(self) -> None:
        if self._is_empty.is_set() and self._told < self.dropped:
            self._told = self.dropped
            self._tell_dropped(self.dropped)

    def flush(self, seconds: float) -> None:
        """Wait until all is written, no longer than so many seconds."""
        self._is_empty.wait(seconds)

    def _send(self, data: bytes) -> bytes:
        """Write what there is room for; the rest."""
        try:
            return data[self._write(data) :]
        except BlockingIOError:
            return data
        except OSError:
            self.dropped += 1
            return b""

    def _drain(self) -> None:
        poll = select.poll()
        poll.register(self._fd, select.POLLOUT)
        while True:
            poll.poll()
            with self._lock:
                data = self._waiting.popleft()
                self._size -= len(data)
                if rest := self._send(data):
                    self._waiting.appendleft(rest)
                    self._size += len(rest)
                if not self._waiting:
                    self._is_empty.set()
                    break
        self._tell()


def _unblocked(fd: int) -> tuple[Callable[[bytes], int], int]:
    """Return how to write to a descriptor without waiting, and what to wait for.

    Others have the same pipe or terminal open, and must not find it non-blocking: so it
    is opened anew, which Linux can.
    """
    mode = os.fstat(fd).st_mode
    if stat.S_ISSOCK(mode):
        opened = socket.socket(fileno=os.dup(fd))
        return lambda data: opened.send(data, socket.MSG_DONTWAIT), opened.fileno()
    if stat.S_ISFIFO(mode) or stat.S_ISCHR(mode):
        flags = os.O_WRONLY | os.O_NONBLOCK | os.O_NOCTTY
        with suppress(OSError):
            fd = os.open(f"/proc/self/fd/{fd}", flags)
    return lambda data: os.write(fd, data), fd


class Logger:
    """What structlog writes its lines to."""

    def __init__(self, sink: LogSink) -> None:
        self._sink = sink

    def msg(self, message: str) -> None:
        """Write a line."""
        self._sink.write(message)

    log = debug = info = warn = warning = msg
    fatal = failure = err = error = critical = exception = msg
