"""`pgwake chaos`: runs jobs under faults and accounts for each."""

import asyncio
import random
import secrets
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from pgwake.chaos.faults import FAULTS
from pgwake.chaos.identity import Run
from pgwake.chaos.play import Play
from pgwake.chaos.report import Report, as_json
from pgwake.chaos.run import Plan
from pgwake.chaos.stage import TEAMS
from pgwake.cli.demo.stage import until_signal
from pgwake.cli.output import (
    InProduction,
    Json,
    Url,
    Yes,
    confirm,
    print_json,
    show,
    wrong_usage,
)
from pgwake.database.embedded import EmbeddedServer
from pgwake.doctor.connect import without_password
from pgwake.errors import ConfigurationError
from pgwake.observe import logs
from pgwake.settings import Settings

SESSIONS = 15  # of a worker process at most: its own, and its handlers'
OTHER_SESSIONS = 20
CALM = 6.0


def chaos(
    faults: Annotated[
        str | None,
        typer.Option(
            metavar="NAME,NAME",
            help="Only these of --list; by default all that can be made.",
        ),
    ] = None,
    list_faults: Annotated[
        bool, typer.Option("--list", help="Show the faults that there are.")
    ] = False,
    mix: Annotated[
        bool,
        typer.Option("--mix", help="Up to two at once, in any order; else in turn."),
    ] = False,
    seed: Annotated[
        int | None, typer.Option(help="Of the mix and of who is hit, to do it again.")
    ] = None,
    jobs: Annotated[
        int, typer.Option(min=0, help="Go on with the faults until so many are in.")
    ] = 0,
    rate: Annotated[
        float, typer.Option(min=1, max=100_000, help="Jobs a second.")
    ] = 200.0,
    hold: Annotated[
        float,
        typer.Option(
            min=1,
            max=3600,
            metavar="SECONDS",
            help=f"How long each lasts, and the calm before; that {CALM:g} at most.",
        ),
    ] = 8.0,
    processes: Annotated[
        int,
        typer.Option(min=1, max=64, help="Worker processes of each of 2 supervisors."),
    ] = 2,
    restart_command: Annotated[
        str | None,
        typer.Option(
            metavar="COMMAND",
            help="Restarts your server: for a shell, with $MODE fast or immediate.",
        ),
    ] = None,
    keep: Annotated[
        Path | None,
        typer.Option(
            metavar="FOLDER", help="Keep the logs there, and all in the database."
        ),
    ] = None,
    in_production: InProduction = False,
    yes: Yes = False,
    json_output: Json = False,
    database_url: Url = None,
) -> None:
    """Run jobs under faults and account for each: lost, done twice, how soon as before.

    On a database of its own where none is given; in yours in a queue of its own. Exit
    code 1: the account does not close, or a rate was not back within a minute.
    """
    if list_faults:
        rows = [
            {"fault": f.name, "what it does": f.sentence, "to others": f.for_others}
            for f in FAULTS.values()
        ]
        show(rows, as_json=json_output)
        return
    named = _named(faults)
    settings = Settings.load(database_url=database_url)
    sessions = TEAMS * processes * SESSIONS + OTHER_SESSIONS
    server = None
    if settings.database_url is None:
        server = EmbeddedServer(
            keep and keep.absolute() / "server",
            # For those, too, that nobody has told that their client is gone.
            settings={"max_connections": str(2 * sessions)},
        )
    left_out = {
        fault: why
        for fault in named or FAULTS
        if (why := FAULTS[fault].obstacle(server, restart_command))
    }
    if named and left_out:
        told = "; ".join(f"{fault}: {why}" for fault, why in left_out.items())
        raise ConfigurationError(f"some faults can't be made here: {told}")
    plan = Plan(
        faults=[fault for fault in named or FAULTS if fault not in left_out],
        rate=rate,
        hold_seconds=hold,
        jobs=jobs,
        seed=random.randrange(10**6) if seed is None else seed,  # noqa: S311
        calm_seconds=min(hold, CALM),
        is_mixed=mix,
    )
    name = secrets.token_hex(4)
    play = Play(
        run=Run(name, _folder(keep, name)),
        settings=settings,
        server=server,
        restart_command=restart_command,
        plan=plan,
        processes=processes,
        in_production=in_production,
        keeps=keep is not None,
    )
    report = Report(Console(stderr=json_output, highlight=False))
    if server is None:
        place = f"as set: {without_password(settings.dsn)}"
        report.warning(play.run, plan, sessions)
        if not yes and not sys.stdin.isatty():
            wrong_usage("Add --yes to have that done.")
        confirm("", yes=yes)
    else:
        place = f"PostgreSQL {server.version} of its own in {server.directory}"
    report.opening(play.run, place, plan, processes, left_out)
    # The producers' sessions are lost as they should be; the workers' have logs.
    logs.configure(settings.model_copy(update={"log_level": "error"}))
    code = asyncio.run(
        until_signal(play.perform(report), lambda: report.display.title("Stopped."))
    )
    if json_output and play.outcome is not None:
        print_json(as_json(play.outcome, plan, play.run, left_out))
    sys.exit(code)


def _named(text: str | None) -> Sequence[str]:
    if text is None:
        return ()
    names = [name.strip() for name in text.split(",")]
    for name in names:
        if name not in FAULTS:
            wrong_usage(
                f"--faults: there is no {name!r}, there are {', '.join(FAULTS)}"
            )
        if names.count(name) > 1:
            wrong_usage(f"--faults: {name} is named twice")
    return names


def _folder(keep: Path | None, name: str) -> Path:
    """Return the folder of a run, which need not be there: a new one, or the named."""
    if keep is None:
        return Path(tempfile.gettempdir(), f"pgwake-chaos-{name}")
    folder = keep.absolute()
    try:
        folder.mkdir(parents=True, exist_ok=True)
        if any(folder.iterdir()):
            wrong_usage(f"--keep {keep}: there is something in it, name a new folder")
    except OSError as error:
        wrong_usage(f"--keep {keep}: {error}")
    return folder
