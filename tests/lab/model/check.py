"""The checker of the model: spin writes it, cc makes it, it tries all orders."""

import re
import subprocess
from pathlib import Path

from support.tools import need

MODEL = Path(__file__).with_name("notify_lock.pml")
MEMORY_MB = 4000
DEPTH = 10_000
SAFETY = ("-DSAFETY", "-DCOLLAPSE")

# Of notify_lock.pml: W workers, S slots, T producers, FAULTS.
Sizes = dict[str, int | str]


def build_checker(folder: Path, sizes: Sizes, flags: tuple[str, ...]) -> None:
    """Make `folder`/pan, which searches all states of the model."""
    need("spin")
    need("cc")
    definitions = [f"-D{name}={value}" for name, value in sizes.items()]
    # Without -P it calls gcc by that name.
    spin = ["spin", "-Pcc -E -x c", "-a", *definitions, str(MODEL)]
    subprocess.run(spin, cwd=folder, check=True, timeout=60)
    cc = ["cc", "-O2", "-w", *flags, f"-DMEMLIM={MEMORY_MB}", "-o", "pan", "pan.c"]
    subprocess.run(cc, cwd=folder, check=True, timeout=120)


def search(folder: Path, *options: str) -> str:
    """Run `folder`/pan and return its report."""
    pan = ["./pan", f"-m{DEPTH}", "-n", *options]
    result = subprocess.run(
        pan, cwd=folder, check=False, capture_output=True, text=True, timeout=900
    )
    return result.stdout + result.stderr


def assert_nothing_found(report: str) -> None:
    """Fail unless the whole of the model was searched and no error found."""
    assert re.search(r"errors: 0$", report, re.MULTILINE), report
    # A search that was cut short counts no errors either.
    for sign in ("not completed", "search depth too small", "out of memory"):
        assert sign not in report, report
