"""python -m tests.lab.benchmarks: what pgwake does on the server it is given.

A server's URL is taken from --url, else from DATABASE_URL; without one, an embedded
PostgreSQL is started with its default settings (fsync on). Its role must be allowed to
create databases: each run has a new one. Everything else is as users have it: `pgwake
run` with its defaults, in processes of its own.
"""

import asyncio
import inspect
import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Annotated, Any

import typer

from pgwake.database.embedded import EmbeddedServer

from . import (
    claims,
    delayed,
    drain,
    enqueue,
    growth,
    inserts,
    limits,
    metrics,
    parts,
    report,
    snapshot,
    stats,
    steady,
    wakeup,
)
from .measure import Bench, Run

MODULES: dict[str, ModuleType] = {
    module.__name__.rpartition(".")[2]: module
    for module in (
        *(enqueue, drain, wakeup, steady, snapshot),
        *(inserts, delayed, claims, stats, metrics, limits, parts),
    )
}
if growth.IS_THERE:
    MODULES["storage"] = growth
# Fifty worker processes have five sessions each.
SERVER_SETTINGS = {"max_connections": "400"}

app = typer.Typer(
    add_completion=False,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    help=__doc__,
)
Url = Annotated[
    str | None,
    typer.Option(envvar="DATABASE_URL", help="Default $DATABASE_URL."),
]
Json = Annotated[Path | None, typer.Option("--json", help="Write all figures there.")]
Quick = Annotated[bool, typer.Option(help="Small sizes, for a look.")]
Only = Annotated[str, typer.Option(help="Only conditions that contain this.")]


@app.command("all")
def run_all(
    url: Url = None,
    json_path: Json = None,
    quick: Quick = False,
) -> None:
    """Run every benchmark, one after the other."""
    _run({name: {} for name in MODULES}, url, json_path, quick=quick, only="")


def _register(name: str, module: ModuleType) -> None:
    """Make a command of a module: its run()'s sizes are the command's options."""

    def command(
        url: Url = None,
        json_path: Json = None,
        quick: Quick = False,
        only: Only = "",
        **sizes: int | None,
    ) -> None:
        given = {size: value for size, value in sizes.items() if value is not None}
        _run({name: given}, url, json_path, quick=quick, only=only)

    *common, _ = inspect.signature(command).parameters.values()
    of_module = [
        parameter.replace(
            default=None,
            annotation=Annotated[
                int | None, typer.Option(help=f"Default {parameter.default:,}.")
            ],
        )
        for parameter in _sizes(module).values()
    ]
    signature = inspect.Signature(
        [
            *of_module,
            *(one.replace(kind=inspect.Parameter.KEYWORD_ONLY) for one in common),
        ]
    )
    command.__signature__ = signature  # type: ignore[attr-defined]
    command.__annotations__ = {
        parameter.name: parameter.annotation
        for parameter in signature.parameters.values()
    }
    app.command(name, help=module.__doc__)(command)


def _sizes(module: ModuleType) -> Mapping[str, inspect.Parameter]:
    parameters = dict(inspect.signature(module.run).parameters)
    del parameters["bench"]
    return parameters


def _run(
    benchmarks: dict[str, dict[str, int]],
    url: str | None,
    json_path: Path | None,
    *,
    quick: bool,
    only: str,
) -> None:
    with _server(url) as server_url:
        answer = asyncio.run(report.surroundings(server_url))
        answer["benchmarks"] = {}
        for name, given in benchmarks.items():
            module = MODULES[name]
            sizes: dict[str, Any] = {
                **{size: one.default for size, one in _sizes(module).items()},
                **(module.QUICK if quick else {}),
                **given,
            }
            bench = Bench(server_url, only)
            runs: list[Run] = asyncio.run(module.run(bench, **sizes))
            report.show_table(f"{name} {_words(sizes)}", runs)
            answer["benchmarks"][name] = {
                "sizes": sizes,
                "medians": report.medians(runs),
                "runs": [[run.condition, run.figures] for run in runs],
            }
            if json_path is not None:  # after each, so that none is lost
                json_path.write_text(json.dumps(answer, indent=1))


@contextmanager
def _server(url: str | None) -> Iterator[str]:
    if url is not None:
        yield url
    else:
        with EmbeddedServer(settings=SERVER_SETTINGS) as server:
            yield server.url


def _words(sizes: Mapping[str, int]) -> str:
    return ", ".join(
        f"{name.replace('_', ' ')} {size:,}" for name, size in sizes.items()
    )


for _name, _module in MODULES.items():
    _register(_name, _module)

if __name__ == "__main__":
    app()
