"""python -m tests.lab.fuzz: hostile inputs at every door, beside good jobs.

Each input is accepted, or refused in a way that is promised; the session goes on, a
worker completes the good jobs, and at the end the books agree. The same seed makes the
same inputs. Exit code 1, with the shortest input that shows it, where one does harm.
"""

import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import psycopg
import typer
from rich.console import Console
from rich.table import Table

from pgwake.database.embedded import EmbeddedServer
from support import (
    CHECKOUT,
    create_installed_database,
    database_url,
    make_logins,
    psql,
)

from . import campaign, verdict
from .campaign import Account
from .doors import DOORS
from .stage import Stage


class DoorName(StrEnum):
    """The doors."""

    SQL = "sql"
    INSERT = "insert"
    HTTP = "http"
    CLI = "cli"


app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)


@contextmanager
def stage() -> Iterator[Stage]:
    """Yield a stage on a server of its own."""
    name = "pgwake_fuzz"
    with (
        EmbeddedServer(settings={"fsync": "off"}) as server,
        tempfile.TemporaryDirectory() as folder,
    ):
        url = create_installed_database(server, name)
        admin_url = database_url(server, name, role="postgres")
        psql(server, admin_url, "-f", str(CHECKOUT / "sql" / "roles.sql"))
        with psycopg.connect(admin_url, autocommit=True) as admin:
            make_logins(admin)
        with Stage(
            url, lambda login: database_url(server, name, login), Path(folder)
        ) as made:
            yield made


@app.command(help=__doc__)
def main(
    inputs: Annotated[int, typer.Option(min=1, help="At each door.")] = 10_000,
    seed: int = 1,
    door: Annotated[
        list[DoorName] | None, typer.Option(help="By default all; repeatable.")
    ] = None,
) -> None:
    """Put hostile inputs in, and print what became of them."""
    table = Table("door", "inputs", "accepted", "refused", "crashes", "good jobs", "s")
    crashes = 0
    for name in door or list(DoorName):
        before = crashes
        with stage() as made:
            opened = DOORS[name](made)
            account = Account(name)
            try:
                campaign.run(opened, made, inputs, seed, account)
                opened.close()
                made.close()
            except (verdict.FaultError, ExceptionGroup) as error:
                crashes += 1
                print(f"{name}, --seed {seed}: {error}", file=sys.stderr)  # noqa: T201
                for one in getattr(error, "exceptions", ()):
                    print(f"  {one}", file=sys.stderr)  # noqa: T201
        refused = ", ".join(f"{n} {code}" for code, n in account.refusals.items())
        table.add_row(
            *(name, str(account.inputs), str(account.outcomes[verdict.ACCEPTED])),
            *(refused, str(crashes - before), str(made.good_count)),
            f"{account.seconds:.0f}",
        )
    Console(soft_wrap=True).print(table)
    if crashes:
        raise typer.Exit(1)


if __name__ == "__main__":
    app()
