"""Commands at a terminal, as people run them."""

import asyncio
import fcntl
import os
import pty
import signal
import struct
import sys
import termios
from collections.abc import Callable, Sequence
from pathlib import Path

from support.worker.processes import clean_environment


class Screen:
    """What a command at a terminal has shown so far."""

    def __init__(self) -> None:
        self.text = ""
        self.code: int | None = None
        self._news = asyncio.Event()

    def add(self, data: bytes) -> None:
        self.text += data.decode(errors="replace")
        self._news.set()

    async def shows(self, text: str) -> None:
        async with asyncio.timeout(20):
            while text not in self.text:
                self._news.clear()
                await self._news.wait()


async def at_terminal(
    database: str,
    folder: Path,
    *arguments: str,
    columns: int = 80,
    typed: str = "",
    interrupt_at: str | Sequence[str] = (),
) -> Screen:
    """Run a command with a terminal for all three; Ctrl-C at each text."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
    environment = clean_environment({"PGWAKE_DATABASE_URL": database, "TERM": "xterm"})
    environment.pop("COLUMNS", None)
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "pgwake", *arguments),
        cwd=folder,
        env=environment,
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        start_new_session=True,
        preexec_fn=_at_terminal,
    )
    os.close(theirs)
    screen = Screen()
    loop = asyncio.get_running_loop()
    loop.add_reader(ours, _reader(ours, screen, loop.remove_reader))
    os.write(ours, typed.encode())
    for text in [interrupt_at] if isinstance(interrupt_at, str) else interrupt_at:
        await screen.shows(text)
        os.write(ours, b"\x03")
    screen.code = await process.wait()
    await asyncio.sleep(0)
    loop.remove_reader(ours)
    os.close(ours)
    return screen


def _at_terminal() -> None:
    fcntl.ioctl(0, termios.TIOCSCTTY, 0)
    # Tests that run in the background ignore it, and what they start inherits that.
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def _reader(
    descriptor: int, screen: Screen, stop: Callable[[int], bool]
) -> Callable[[], None]:
    def read() -> None:
        try:
            data = os.read(descriptor, 65536)
        except OSError:  # the last who had the terminal open is gone
            data = b""
        if data:
            screen.add(data)
        else:
            stop(descriptor)

    return read
