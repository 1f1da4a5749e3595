"""Options and arguments that commands share: of settings and of jobs."""

import inspect
from collections.abc import Callable
from enum import StrEnum
from typing import Annotated, Any, get_args

import typer

from pgwake.produce.options import MAX_ID, OPTIONS
from pgwake.settings import Settings


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


def takes_job_options(
    *names: str,
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Give a command options of a job, which it takes as keyword arguments.

    Args:
        names: Which of the table; as people give them, None where they do not.
    """

    def change(command: Callable[..., None]) -> Callable[..., None]:
        signature = inspect.signature(command)
        own = [p for p in signature.parameters.values() if p.kind is not p.VAR_KEYWORD]
        first = [p for p in own if p.kind is not p.KEYWORD_ONLY]
        added = [_parameter(name) for name in names]
        last = [p for p in own if p.kind is p.KEYWORD_ONLY]
        changed = signature.replace(parameters=[*first, *added, *last])
        setattr(command, "__signature__", changed)  # noqa: B010, mypy knows of none
        return command

    return change


def _parameter(name: str) -> inspect.Parameter:
    """Return a parameter of a command that Typer makes an option of a job of."""
    row = OPTIONS[name]
    limits: dict[str, Any] = {}
    given, metavar = _GIVEN.get(row.sql_type, (str, "TEXT"))
    if row.sql_type == "int":
        limits = {"min": row.option.low, "max": row.option.high}
    elif choices := get_args(row.type) if row.sql_type == "text" else ():
        given, metavar = StrEnum(name, [(c, c) for c in choices]), "|".join(choices)
    text = row.option.help
    told = f"{text[:1].upper()}{text[1:]}."
    option = typer.Option(
        f"--{name.replace('_', '-')}", metavar=metavar, help=told, **limits
    )
    return inspect.Parameter(
        name,
        inspect.Parameter.KEYWORD_ONLY,
        default=row.option.default,
        annotation=Annotated[given | None, option],
    )


_GIVEN: dict[str, tuple[Any, str]] = {
    "int": (int, "N"),
    "interval": (float, "SECONDS"),
    "timestamptz": (str, "TIME"),
    "bigint[]": (list[int], "ID"),
    "jsonb": (str, "JSON"),
}


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
