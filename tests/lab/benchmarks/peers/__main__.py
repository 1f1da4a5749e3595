"""python -m tests.lab.benchmarks.peers: pgwake beside its peers, in one run.

The runner and the peers' drivers lie in the folder that PGWAKE_PEERS names; they are
copied below BENCH_ROOT, and told about pgwake. What follows the options goes to the
runner: --peers, --tests, --reps, ...
"""

import asyncio
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Annotated

import asyncpg
import typer

CHECKOUT = Path(__file__).resolve().parents[4]
DRIVER = Path(__file__).with_name("driver.py")
BULLMQ = Path(__file__).with_name("bullmq.mjs")
app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)


@app.command(
    context_settings={"allow_extra_args": True, "ignore_unknown_options": True}
)
def main(
    context: typer.Context,
    runner: Annotated[Path, typer.Option(envvar="PGWAKE_PEERS", help="Its folder.")],
    root: Annotated[Path, typer.Option(envvar="BENCH_ROOT", help="Of setup.sh.")],
    source: Annotated[
        Path, typer.Option(envvar="PGWAKE_SRC", help="The checkout to measure.")
    ] = CHECKOUT,
    payload_bytes: Annotated[int, typer.Option(help="More in each job's payload.")] = 0,
) -> None:
    """Measure, and print the report."""
    copy = root / "runner"
    _copy(runner, copy, payload_bytes)
    os.environ |= {
        "BENCH_ROOT": str(root),
        "PGWAKE_SRC": str(source.resolve()),
        "PGWAKE_BENCH_LOG": str(root / "results" / "pgwake.log"),
        "PYTHONPATH": str(copy),
        "PYTHONDONTWRITEBYTECODE": "1",
    }
    asyncio.run(_forget_templates(int(os.environ.get("BENCH_PORT", "5544"))))
    python = root / "venv" / "ref" / "bin" / "python"
    arguments = context.args
    subprocess.run([python, copy / "runner.py", *arguments], check=True)
    results = arguments[arguments.index("--out") + 1]
    subprocess.run([python, copy / "report.py", results], check=True)


def _copy(runner: Path, copy: Path, payload_bytes: int) -> None:
    """Copy the runner, with pgwake among its peers and payloads of that size."""
    shutil.rmtree(copy, ignore_errors=True)
    shutil.copytree(runner, copy)
    driver = shutil.copy(DRIVER, copy / "peers" / "pgwake_driver.py")
    shutil.copy(BULLMQ, copy / "peers")
    ours = f'"pgwake": {[sys.executable, str(driver)]}'
    bullmq = '"bullmq": [NODE, "peers/bullmq.mjs"]'
    _edit(copy / "runner.py", "\nCMD = {", f"\nCMD = {{{ours}, {bullmq},\n       ")
    _edit(copy / "report.py", 'rank = ["ref"', 'rank = ["pgwake", "bullmq", "ref"')
    if payload_bytes:
        text = os.urandom(payload_bytes // 2).hex()  # nothing compresses it
        _edit(copy / "runner.py", 'tpl_{peer}_{loaded}"', 'tpl_{peer}_{loaded}_big"')
        for path in (copy / "peers").iterdir():
            _edit(path, '{"t0":0}', f'{{"t0":0,"pad":"{text}"}}')
            _edit(path, "{ t0: 0 }", f'{{ t0: 0, pad: "{text}" }}')


def _edit(path: Path, old: str, new: str) -> None:
    if path.is_file():
        path.write_text(path.read_text().replace(old, new))


async def _forget_templates(port: int) -> None:
    """Drop the databases with pgwake's schema, and with payloads of another size."""
    admin = await asyncpg.connect(f"postgresql://postgres@127.0.0.1:{port}/postgres")
    for row in await admin.fetch(
        "select datname from pg_database "
        "where datname like 'tpl\\_pgwake\\_%' or datname like 'tpl\\_%\\_big'"
    ):
        await admin.execute(f"drop database {row['datname']}")
    await admin.close()


if __name__ == "__main__":
    app()
