"""Options and arguments that commands share: of settings and of jobs."""

from typing import Annotated, Any

import typer

from pgwake.settings import Settings

MAX_ID = 2**63 - 1


def setting(name: str, *flags: str, said: str = "", **more: Any) -> Any:
    """Return the option of a setting; its help has the variable and the default.

    Args:
        name: The field of Settings.
        flags: How it is given, if not as the parameter is called.
        said: What it is, if not as the field says.
        more: What typer.Option takes beside.
    """
    field = Settings.model_fields[name]
    text = field.description or ""
    said = said or f"{text[:1].upper()}{text[1:]}."
    told = f"env: PGWAKE_{name.upper()}"
    if field.default:
        value = field.default
        told += f"; default: {f'{value:g}' if isinstance(value, float) else value}"
    # Escaped: Typer takes brackets for markup.
    return typer.Option(*flags, help=f"{said} \\[{told}]", **more)


def job_id(text: str) -> int:
    """Read a job's id; as a parser, since Typer's own shows its range in each help.

    Raises:
        typer.BadParameter: It can't be one.
    """
    if text.isdecimal() and 1 <= int(text) <= MAX_ID:
        return int(text)
    raise typer.BadParameter(f"{text} is no job's id: use a number from 1 to {MAX_ID}")


Priority = Annotated[
    int,
    typer.Option(metavar="N", min=-100, max=100, help="Higher first."),
]
MaxAttempts = Annotated[
    int | None,
    typer.Option(
        metavar="N",
        min=1,
        max=10_000,
        help="Until the dead letters; by default as the policy says.",
    ),
]
JobsConcurrencyKey = Annotated[
    str | None,
    typer.Option(metavar="KEY", help="Jobs with one key wait for each other."),
]
LogFormat = Annotated[
    str | None,
    setting(
        "log_format",
        metavar="auto|human|json",
        said="auto is human on a terminal, json otherwise.",
    ),
]
LogLevel = Annotated[
    str | None,
    setting("log_level", metavar="LEVEL", said="debug, info, warning or error."),
]
