"""The command line: which commands there are, and how it ends.

Exit codes: 0 done, 1 failed, or for a part of what was named (the message says why),
2 wrong usage, 69 handlers that can't be imported, 75 a drain or a wait that was
not over in time, 78 wrong settings, 130 Ctrl-C; those of doctor are its own.
"""

import json
import sys
from collections.abc import Mapping
from importlib import import_module
from typing import Annotated

import typer

from pgwake.version import SCHEMA_VERSION, __version__

JOBS, QUEUES = "Jobs", "Queues and workers"
# Where each command is, and its panel in the help. A command is imported when it is
# typed, since most of what a command takes is the import of what it needs.
COMMANDS: Mapping[str, tuple[str, str | None]] = {
    "init": ("init:init", None),
    "run": ("run:run", None),
    "adopt": ("adopt:adopt", None),
    "serve": ("serve:serve", None),
    "bench": ("bench.command:bench", None),
    "demo": ("demo.command:command", None),
    "version": ("main:version", None),
    "enqueue": ("jobs:enqueue", JOBS),
    "emit": ("jobs:emit", JOBS),
    "list": ("jobs:list_jobs", JOBS),
    "show": ("jobs:show_job", JOBS),
    "explain": ("jobs:explain", JOBS),
    "wait": ("wait:wait", JOBS),
    "peek": ("jobs:peek", JOBS),
    "failed": ("bulk:failed", JOBS),
    "retry": ("bulk:retry", JOBS),
    "cancel": ("bulk:cancel", JOBS),
    "update": ("update_jobs:update", JOBS),
    "run-now": ("update_jobs:run_now", JOBS),
    "purge": ("bulk:purge", JOBS),
    "schedule": ("schedules:app", JOBS),
    "stats": ("queues:stats", QUEUES),
    "queues": ("queues:queues", QUEUES),
    "pause": ("queues:pause", QUEUES),
    "resume": ("queues:resume", QUEUES),
    "drain": ("queues:drain", QUEUES),
    "limit": ("limits:limit", QUEUES),
    "limit-kind": ("limits:limit_kind", QUEUES),
    "payloads": ("queues:payloads", QUEUES),
    "workers": ("workers:workers", QUEUES),
    "kinds": ("workers:kinds", QUEUES),
    "psql": ("psql:psql", QUEUES),
    "doctor": ("doctor:doctor", QUEUES),
}


def main() -> None:
    """Run the command line; errors become one line and an exit code."""
    try:
        application(*sys.argv[1:2])()
    except KeyboardInterrupt:
        sys.exit(130)
    except Exception as error:  # noqa: BLE001, raised again where it is none of ours
        from pgwake.cli.shared.output import fail_for  # noqa: PLC0415, as the commands

        fail_for(error)


def application(word: str = "") -> typer.Typer:
    """Return the command line: one command of it, or all if there is none such."""
    word = word.removeprefix("--")  # --version needs no other command either
    app = typer.Typer(
        no_args_is_help=True,
        add_completion=False,
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"]},
        help="A job queue in PostgreSQL. Settings come from flags, PGWAKE_* variables "
        "and .env.",
    )
    app.callback()(_options)
    for name in [word] if word in COMMANDS else COMMANDS:
        place, panel = COMMANDS[name]
        module, _, attribute = place.partition(":")
        command = getattr(import_module(f"pgwake.cli.{module}"), attribute)
        if isinstance(command, typer.Typer):
            app.add_typer(command, name=name, rich_help_panel=panel)
        else:
            app.command(name, rich_help_panel=panel)(command)
    return app


def _show_version(is_asked: bool) -> None:
    if is_asked:
        version()
        raise typer.Exit


def _options(
    _: Annotated[
        bool,
        typer.Option(
            "--version",
            help="Show the versions of pgwake and of the schema it needs.",
            callback=_show_version,
            is_eager=True,
        ),
    ] = False,
) -> None:
    pass


def version(
    as_json: Annotated[
        bool, typer.Option("--json", help="Print JSON, for scripts.")
    ] = False,
) -> None:
    """Show the versions of pgwake and of the schema it needs."""
    if as_json:
        print(json.dumps({"pgwake": __version__, "schema": SCHEMA_VERSION}))
    else:
        print(f"pgwake {__version__}, schema {SCHEMA_VERSION}")
