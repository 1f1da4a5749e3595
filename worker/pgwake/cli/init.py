"""The command that installs the schema."""

import asyncio
from typing import Annotated

import typer

from pgwake.cli import adopt
from pgwake.cli.shared.output import Url, note
from pgwake.database import install
from pgwake.settings import Settings


def init(
    roles: Annotated[
        bool,
        typer.Option(
            "--roles", help="Make pgwake_producer, pgwake_worker and pgwake_admin."
        ),
    ] = False,
    environment: adopt.Environment = None,
    database_url: Url = None,
) -> None:
    """Install the schema, or bring it up to date. Safe to run again, at any time."""
    settings = Settings.load(database_url=database_url, environment=environment)
    before, after = asyncio.run(install.install(settings.dsn, roles=roles))
    print(f"pgwake schema {after} is installed{_told(before, after)}")
    adopt.note_environment(settings)
    if before is None:  # whoever runs it by uvx or pipx has it nowhere else
        note(
            "In your project: pip install pgwake; a worker there: pgwake run --import "
            "MODULE"
        )


def _told(before: int | None, after: int) -> str:
    if before is None:
        return ""
    if before == after:
        return ", as before"
    done = ", ".join(map(str, range(before + 1, after + 1)))
    return f": it was {before}, migrated by {done}"
