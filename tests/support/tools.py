"""Programs that tests need beside Python packages: fetched by the test that asks."""

import os
import shutil
import subprocess
from functools import cache
from pathlib import Path

import pytest

from support import CHECKOUT, untimed

# Where a program is another's: tests/unpack knows the latter's name.
_PACKAGES = {"promtool": "prometheus"}


@cache
def unpacked(tool: str) -> Path:
    """Return the folder of a tool's programs, unpacked by tests/unpack if need be."""
    with untimed():
        done = subprocess.run(
            [CHECKOUT / "tests" / "unpack", tool],
            check=False,
            capture_output=True,
            text=True,
        )
    if done.returncode:
        raise pytest.UsageError(f"{tool} can't be had here:\n{done.stderr}")
    return Path(done.stdout.strip())


def need(program: str) -> None:
    """Have a program at the end of the search path, unless the system has it."""
    if shutil.which(program) is None:
        folder = unpacked(_PACKAGES.get(program, program))
        os.environ["PATH"] += f"{os.pathsep}{folder}"
