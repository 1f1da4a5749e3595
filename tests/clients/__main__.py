"""python -m tests.clients: the test where all languages work at once, at length.

In the environment that tests/environment.sh makes, on an embedded server.
"""

import asyncio
import sys
from contextlib import redirect_stdout
from pathlib import Path

import typer

from pgwake.database.embedded import EmbeddedServer
from pgwake.database.install import install

sys.path.insert(0, str(Path(__file__).parents[1]))  # as pytest does

from clients.together import run


def main(jobs: int = 20_000) -> None:
    """Run it and print the account; exit code 1 if a job is missing in it."""
    with EmbeddedServer() as server:
        asyncio.run(install(server.url))
        with redirect_stdout(sys.stderr):  # the workers' log
            account = asyncio.run(run(server.url, server.binaries, jobs))
    print(account)  # noqa: T201
    sys.exit(bool(account.faults))


if __name__ == "__main__":
    typer.run(main)
