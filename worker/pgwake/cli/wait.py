"""The command that waits for the end of a job."""

import asyncio
from dataclasses import asdict
from typing import Annotated

import typer

from pgwake.cli.shared.output import JobId, Json, Url, note, print_json, say
from pgwake.errors import EXIT_BUSY, UnreadableValueError, WaitTimeoutError
from pgwake.jsontext import JsonText
from pgwake.produce.queue import AsyncQueue
from pgwake.produce.waiting import Ended
from pgwake.settings import Settings


def wait(
    job_id: JobId,
    timeout: Annotated[
        float | None,
        typer.Option(
            min=0,
            max=1e9,
            metavar="SECONDS",
            help="How long to wait at most; by default for ever.",
        ),
    ] = None,
    as_json: Json = False,
    database_url: Url = None,
) -> None:
    """Wait for the end of a job, and show how it ended.

    Exit code 0 if it completed, 1 if it failed or was cancelled, 75 if the time is up.
    """
    settings = Settings.load(database_url=database_url)

    async def waiting() -> Ended:
        async with AsyncQueue(settings.dsn, listen_url=settings.listen_dsn) as queue:
            return await queue.wait_for(job_id, timeout)

    try:
        end = asyncio.run(waiting())
    except WaitTimeoutError as error:
        note(f"pgwake: {error}")
        raise typer.Exit(EXIT_BUSY) from None
    except UnreadableValueError as error:  # only a completed one has a result
        if as_json:
            result = JsonText(error.text)
            print_json({"id": job_id, "status": "completed", "result": result})
        else:
            say(f"{job_id} completed")
        return
    if as_json:
        print_json(asdict(end))
    else:
        say(f"{end.id} {end.status}")
        if end.status == "failed" and end.errors:
            note(f"{end.errors[-1]['reason']}: {end.errors[-1]['message']}")
    if end.status != "completed":
        raise typer.Exit(1)
