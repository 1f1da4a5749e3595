"""Options and arguments that commands share: of settings and of jobs."""

import inspect
from collections.abc import Callable, Mapping
from enum import StrEnum
from typing import Annotated, Any, TypeVar, get_args

import typer

from pgwake.produce.options import DEFAULTS, MAX_ID, OPTIONS
from pgwake.settings import Settings

F = TypeVar("F", bound=Callable[..., None])


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
    raise typer.BadParameter(
        f"{text!r} is no job's id: use a number from 1 to {MAX_ID}"
    )


def takes(
    options: Mapping[str, Any], defaults: Mapping[str, Any] = {}
) -> Callable[[F], F]:
    """Give a command options beside its own; it takes them as keyword arguments.

    Args:
        options: The type of each by its name, annotated by typer.Option.
        defaults: What they are where they are not given, by name; else None.
    """
    parameters = [
        inspect.Parameter(
            *(name, inspect.Parameter.KEYWORD_ONLY),
            annotation=annotation,
            default=defaults.get(name),
        )
        for name, annotation in options.items()
    ]

    def change(command: F) -> F:
        signature = inspect.signature(command)
        own = [p for p in signature.parameters.values() if p.kind is not p.VAR_KEYWORD]
        first = [p for p in own if p.kind is not p.KEYWORD_ONLY]
        last = own[len(first) :]
        changed = signature.replace(parameters=[*first, *parameters, *last])
        setattr(command, "__signature__", changed)  # noqa: B010, mypy knows of none
        return command

    return change


def takes_job_options(*names: str) -> Callable[[F], F]:
    """Give a command options of a job, by their names in the table."""
    return takes({name: _job_option(name) for name in names}, DEFAULTS)


def _job_option(name: str) -> Any:
    """Return the type of a job's option on the command line."""
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
    return Annotated[given | None, option]


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
