"""The command about copies of a database: adopt; and what init does of it."""

from typing import Annotated

import typer

from pgwake.cli.shared.options import setting
from pgwake.cli.shared.output import (
    DryRun,
    Json,
    Url,
    Yes,
    ask,
    confirm,
    note,
    print_json,
    say,
    show,
)
from pgwake.cli.shared.tables import Row
from pgwake.database.connection import Connection
from pgwake.database.statements import schedules
from pgwake.database.statements.install import Adoption, get_adoption
from pgwake.database.statements.install import adopt as note_adoption
from pgwake.database.statements.operate import pause_queue
from pgwake.database.statements.stats import list_queues
from pgwake.errors import ConfigurationError
from pgwake.observe.database_fit import adoption_problem
from pgwake.settings import Settings

Environment = Annotated[
    str | None,
    setting(
        "environment",
        metavar="NAME",
        said="What the database is for, such as production; workers may insist on it.",
    ),
]
_COUNTS = ("pending", "scheduled", "waiting", "running")


def adopt(
    environment: Environment = None,
    pause: Annotated[
        bool,
        typer.Option(
            "--pause", help="Pause all queues and schedules, to look and cancel first."
        ),
    ] = False,
    dry_run: DryRun = False,
    yes: Yes = False,
    as_json: Json = False,
    database_url: Url = None,
) -> None:
    """Let jobs run in this database, which is a copy; show its contents first."""
    settings = Settings.load(database_url=database_url, environment=environment)
    adoption, queues, ticking = ask(database_url, _look)
    found = {**adoption._asdict(), "queues": queues, "schedules": ticking}
    if not as_json:
        _show(adoption, queues, ticking)
    if dry_run:
        if as_json:
            print_json(found)
        return
    when = "when their queues are resumed" if pause else "from now on"
    confirm(f"Jobs run in this database {when}.", yes=yes)

    async def run(connection: Connection) -> Adoption:
        async with connection.transaction():
            if pause:
                _, queues, ticking = await _look(connection)
                for row in queues:
                    await pause_queue(connection, row["queue"])
                for row in ticking:
                    await schedules.pause(connection, row["schedule"])
            await note_adoption(connection, settings.environment)
            return await get_adoption(connection)

    noted = ask(database_url, run)
    if as_json:
        print_json({**found, "adopted": noted._asdict(), "paused": pause})
        return
    say(f"noted for this database{_environment(noted)}")
    if pause:
        note(
            "look (pgwake list), cancel what is not to run here (pgwake cancel), then "
            "pgwake resume QUEUE and pgwake schedule resume NAME"
        )


def note_environment(settings: Settings) -> None:
    """Note after an installation what the database is for; a copy stays one.

    Raises:
        ConfigurationError: It is noted for another environment.
    """
    name, adoption = settings.environment, ask(settings.dsn, get_adoption)
    if name is not None and adoption.environment is None and not adoption.is_copy:
        is_guarded = adoption.identity is not None
        ask(settings.dsn, lambda c: note_adoption(c, name, guard=is_guarded))
    elif problem := adoption_problem(adoption, name):
        if not adoption.is_copy:
            raise ConfigurationError(problem)
        note(problem)


async def _look(connection: Connection) -> tuple[Adoption, list[Row], list[Row]]:
    """What stands in the database: queues with live jobs or policy, and schedules."""
    queues = [
        {
            "queue": row["name"],
            **{f"{name}_count": row[f"{name}_count"] for name in _COUNTS},
            "is_paused": row["is_paused"],
        }
        for row in await list_queues(connection)
    ]
    ticking = [
        {
            "schedule": row["name"],
            "kind": row["kind"],
            "next_at": row["next_at"],
            "is_paused": row["is_paused"],
        }
        for row in await schedules.list_schedules(connection)
    ]
    return await get_adoption(connection), queues, ticking


def _show(adoption: Adoption, queues: list[Row], ticking: list[Row]) -> None:
    here = f"this database, {adoption.present_identity},"
    if adoption.is_copy:
        say(f"{here} is a copy of {adoption.identity}{_environment(adoption)}")
    elif adoption.identity is None:
        say(f"{here} is not guarded: copies of it run jobs too{_environment(adoption)}")
    else:
        say(f"{here} is the one that pgwake is noted for{_environment(adoption)}")
    show(queues, as_json=False)
    show(ticking, as_json=False)
    running = sum(row["running_count"] for row in queues)
    if adoption.is_copy and running:
        note(
            f"running: {running}. Their workers are the original's and renew nothing "
            "here: when their leases run out they run again, and count a crash each"
        )


def _environment(adoption: Adoption) -> str:
    name = adoption.environment
    return f", environment {name}" if name else ""
