"""The command that opens psql on the database."""

import os
import shutil
import sys
from typing import Annotated
from urllib.parse import parse_qsl, quote, unquote, urlencode

import typer

from pgwake.cli.shared.output import Url
from pgwake.database.url import split_url
from pgwake.errors import PgwakeError
from pgwake.settings import Settings


def psql(
    words: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="WORD",
            show_default=False,
            help="What psql is given, after --: pgwake psql -- -c 'select 1'.",
        ),
    ] = None,
    database_url: Url = None,
) -> None:
    """Open psql on the database.

    The password is handed over in the environment, which other users can't read.
    """
    settings = Settings.load(database_url=database_url)
    url, password = split_password(settings.dsn)
    program = shutil.which("psql")
    if program is None:
        raise PgwakeError(
            "psql is not installed, or not in PATH: install PostgreSQL's client, such "
            "as by apt install postgresql-client, dnf install postgresql, or brew "
            "install libpq"
        )
    given = {} if password is None else {"PGPASSWORD": password}
    sys.stdout.flush()
    os.execve(program, ["psql", url, *(words or ())], {**os.environ, **given})  # noqa: S606


def split_password(url: str) -> tuple[str, str | None]:
    """Return a URL without its password, and that.

    The one before the host comes before the parameter, as for a worker.
    """
    parts = split_url(url)
    login, at, hosts = parts.netloc.rpartition("@")
    user, colon, password = login.partition(":")
    query = dict(parse_qsl(parts.query, keep_blank_values=True))
    parameter = query.pop("password", None)
    if not colon and parameter is None:
        return url, None
    left = f"?{urlencode(query, quote_via=quote)}" if query else ""
    safe = f"{parts.scheme}://{user}{at}{hosts}{parts.path}{left}"
    return safe, unquote(password) if colon else parameter
