"""python -m tests.lab.benchmarks: what pgwake does on the server it is given.

A server's URL is taken from --url, else from DATABASE_URL; without one, an embedded
PostgreSQL is started with its default settings (fsync on). Its role must be allowed to
create databases: each run has a new one. Everything else is as users have it: `pgwake
run` with its defaults, in processes of its own.
"""

import argparse
import asyncio
import inspect
import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from pgwake.database.embedded import EmbeddedServer

from . import (
    claims,
    delayed,
    drain,
    features,
    idle,
    inserts,
    metrics,
    parts,
    report,
    scale,
    snapshot,
    stats,
    steady,
    steps,
    storage,
    wakeup,
)
from .measure import Bench

MODULES = {
    module.__name__.rpartition(".")[2]: module
    for module in (
        *(drain, wakeup, steady, snapshot, inserts, delayed),
        *(claims, idle, stats, metrics, scale, parts, steps, features, storage),
    )
}
# Fifty worker processes have five sessions each.
SERVER_SETTINGS = {"max_connections": "400"}


def main() -> None:
    """Run what the command line names."""
    options = vars(_parser().parse_args())
    name, url = options.pop("name"), options.pop("url")
    json_path, quick = options.pop("json"), options.pop("quick")
    only = options.pop("only", "")
    with _server(url) as server_url:
        answer = asyncio.run(report.surroundings(server_url)) | {"benchmarks": {}}
        for one in MODULES if name == "all" else [name]:
            module = MODULES[one]
            given = {size: value for size, value in options.items() if value}
            sizes = {**_sizes(one), **(module.QUICK if quick else {}), **given}
            runs = asyncio.run(module.run(Bench(server_url, only), **sizes))
            words = (f"{size.replace('_', ' ')} {n:,}" for size, n in sizes.items())
            report.show_table(f"{one} {', '.join(words)}", runs)
            answer["benchmarks"][one] = {
                "sizes": sizes,
                "medians": report.medians(runs),
                "runs": [[run.condition, run.figures] for run in runs],
            }
            if json_path is not None:  # after each, so that none is lost
                json_path.write_text(json.dumps(answer, indent=1))


def _parser() -> argparse.ArgumentParser:
    """A command a benchmark: the sizes of its run() are the command's options."""
    common = argparse.ArgumentParser(add_help=False)
    common.add_argument(
        "--url", default=os.environ.get("DATABASE_URL"), help="default $DATABASE_URL"
    )
    common.add_argument("--json", type=Path, help="write all figures there")
    common.add_argument("--quick", action="store_true", help="small sizes, for a look")
    parser = argparse.ArgumentParser(
        "python -m tests.lab.benchmarks", description=__doc__
    )
    commands = parser.add_subparsers(dest="name", required=True)
    commands.add_parser("all", parents=[common], help="all, one after the other")
    for name, module in MODULES.items():
        about = module.__doc__ or ""
        command = commands.add_parser(
            name, parents=[common], help=about.split("\n\n")[0], description=about
        )
        command.add_argument(
            "--only", default="", help="only conditions that contain this"
        )
        for size, default in _sizes(name).items():
            flag = f"--{size.replace('_', '-')}"
            command.add_argument(flag, type=int, help=f"default {default:,}")
    return parser


def _sizes(name: str) -> Mapping[str, int]:
    _, *sizes = inspect.signature(MODULES[name].run).parameters.values()
    return {size.name: size.default for size in sizes}


@contextmanager
def _server(url: str | None) -> Iterator[str]:
    if url is not None:
        yield url
    else:
        with EmbeddedServer(settings=SERVER_SETTINGS) as server:
            yield server.url


if __name__ == "__main__":
    main()
