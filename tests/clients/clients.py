"""The clients of this kit, a language each, and how they are run."""

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Literal, TypeAlias

from support import PATIENCE, wait_for
from support.tools import unpacked
from support.worker.processes import clean_environment

HERE = Path(__file__).parent
LANGUAGES = ("bash", "node", "go", "java", "ruby", "php", "perl", "r")
POLLING = frozenset({"bash", "r"})  # their consumers go on no duty
ALONE = frozenset({"r"})  # what does one thing at a time: run a job, or look after it
DEAF = frozenset({"r"})  # their drivers have no notifications
STOPS = {"r": signal.SIGINT}  # what stops who has no handler for SIGTERM
ENDINGS = {"node": "js", "ruby": "rb", "php": "php", "perl": "pl", "r": "R"}

Part: TypeAlias = Literal["consumer", "producer", "contract"]


def tools() -> Path:
    """The folder of the languages, as languages.sh makes it."""
    return unpacked("languages").parent


def command(language: str, part: Part) -> list[str]:
    """How a part of a language's client is started."""
    match language:
        case "python":
            return [sys.executable, str(HERE / "python" / f"{part}.py")]
        case "bash":
            return [str(HERE / "bash" / f"{part}.sh")]
        case "go":
            return [str(tools() / "built" / f"go-{part}")]
        case "java":
            return [str(tools() / "bin" / "java"), part.title()]
        case _:
            script = HERE / language / f"{part}.{ENDINGS[language]}"
            return [str(tools() / "bin" / language), str(script)]


class Clients:
    """Starts clients against a database; psql's folder comes first on their path."""

    def __init__(self, url: str, binaries: Path) -> None:
        self.environment = {
            "DATABASE_URL": url,
            "PGSSLMODE": "disable",  # lib/pq insists on TLS unless it is told
            "PATH": f"{binaries}{os.pathsep}{os.environ['PATH']}",
        }

    async def start(
        self, language: str, part: Part, *arguments: str, **environment: str
    ) -> asyncio.subprocess.Process:
        """Start a part; what it says is read by the caller."""
        return await asyncio.create_subprocess_exec(
            *command(language, part),
            *arguments,
            env=clean_environment({**self.environment, **environment}),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            start_new_session=True,
        )

    async def run(
        self, language: str, part: Part, *arguments: str, **environment: str
    ) -> tuple[int, list[str]]:
        """Run a part to its end: its exit code, and the lines that it printed."""
        process = await self.start(language, part, *arguments, **environment)
        output, _ = await process.communicate()
        assert process.returncode is not None
        return process.returncode, output.decode().splitlines()

    @asynccontextmanager
    async def consuming(
        self, language: str, queue: str = "default", lease: int = 30
    ) -> AsyncIterator["Consumer"]:
        """Have a consumer at work; at the end it is killed, unless it was stopped."""
        process = await self.start(language, "consumer", QUEUE=queue, LEASE=str(lease))
        consumer = Consumer(language, process)
        try:
            await consumer.printed("ready")
            yield consumer
        finally:
            if process.returncode is None:
                os.killpg(process.pid, signal.SIGKILL)
            await consumer.exit_code()


class Consumer:
    """A consumer at work, and the lines that it has printed."""

    def __init__(self, language: str, process: asyncio.subprocess.Process) -> None:
        self.language = language
        self.pid = process.pid
        self.lines: list[str] = []
        self._process = process
        self._reader = asyncio.create_task(self._read())

    async def _read(self) -> None:
        assert self._process.stdout is not None
        async for line in self._process.stdout:
            self.lines.append(line.decode().rstrip())

    async def printed(self, line: str, count: int = 1) -> None:
        """Wait for such a line (the count-th)."""

        async def is_there() -> bool:
            return self.lines.count(line) >= count

        try:
            await wait_for(is_there, PATIENCE)
        except AssertionError:
            message = f"{self.language} has not printed {line!r}, but {self.lines}"
            raise AssertionError(message) from None

    async def stop(self) -> int:
        """Ask it to stop; its exit code."""
        self._process.send_signal(STOPS.get(self.language, signal.SIGTERM))
        return await self.exit_code()

    async def exit_code(self) -> int:
        """Wait for its end."""
        async with asyncio.timeout(PATIENCE):
            code = await self._process.wait()
            await self._reader
        return code
