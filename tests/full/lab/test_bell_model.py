"""The bell's protocol, checked by spin in every order that its steps can take."""

import re
import subprocess
from pathlib import Path

import pytest

from support import CHECKOUT
from support.tools import need

MODEL = CHECKOUT / "tests" / "lab" / "model" / "bell.pml"
MEMORY_MB = 4000
DEPTH = 10_000

# A minute of the machine's own; tests beside it can make that three.
pytestmark = pytest.mark.timeout(300)


def build_checker(folder: Path, sizes: dict[str, int | str], flags: list[str]) -> None:
    """Make `folder`/pan, which searches all states of the model."""
    need("spin")
    need("cc")
    definitions = [f"-D{name}={value}" for name, value in sizes.items()]
    # Without -P it calls gcc by that name.
    spin = ["spin", "-Pcc -E -x c", "-a", *definitions, str(MODEL)]
    subprocess.run(spin, cwd=folder, check=True, timeout=30)
    cc = ["cc", "-O2", "-w", *flags, f"-DMEMLIM={MEMORY_MB}", "-o", "pan", "pan.c"]
    subprocess.run(cc, cwd=folder, check=True, timeout=60)


def search(folder: Path, *options: str) -> str:
    """Run `folder`/pan and return its report."""
    pan = ["./pan", f"-m{DEPTH}", "-n", *options]
    result = subprocess.run(
        pan, cwd=folder, check=False, capture_output=True, text=True, timeout=280
    )
    return result.stdout + result.stderr


def assert_nothing_found(report: str) -> None:
    assert re.search(r"errors: 0$", report, re.MULTILINE), report
    # A search that was cut short counts no errors either.
    for sign in ("not completed", "search depth too small", "out of memory"):
        assert sign not in report, report


@pytest.mark.parametrize(
    "sizes",
    [
        {"W": 2, "S": 1, "T": 2, "FAULTS": 2},
        {"W": 2, "S": 2, "T": 2, "FAULTS": 1},
        {"W": 2, "S": 1, "T": 3},
        {"W": 3, "S": 1, "T": 2},
    ],
    ids=str,
)
def test_no_job_is_left_while_a_worker_sleeps(
    tmp_path: Path, sizes: dict[str, int | str]
) -> None:
    build_checker(tmp_path, sizes, ["-DSAFETY", "-DCOLLAPSE"])
    assert_nothing_found(search(tmp_path))


@pytest.mark.parametrize(
    ("part", "faults"),
    [
        ("SECOND_LOOK", 0),
        ("LOOK_AFTER_LIST", 0),
        ("BATON", 0),
        ("RELEASE_FIRST", 0),
        ("CLEAR_FIRST", 0),
        ("WAITS", 0),
        ("SEES_LOCKED", 0),
        ("LIFELINE", 1),
        ("SUPERVISOR", 1),
    ],
)
def test_a_job_is_left_without(tmp_path: Path, part: str, faults: int) -> None:
    sizes: dict[str, int | str] = {"FAULTS": faults, "WITHOUT": part}
    build_checker(tmp_path, sizes, ["-DSAFETY", "-DCOLLAPSE"])
    report = search(tmp_path)
    assert re.search(r"assertion violated .*jobs", report), report
    assert re.search(r"errors: [1-9]", report), report


def test_the_workers_come_to_rest(tmp_path: Path) -> None:
    """No cycle in which everybody who can move does."""
    build_checker(tmp_path, {"T": 1, "FAULTS": 1}, ["-DNP", "-DNFAIR=3"])
    assert_nothing_found(search(tmp_path, "-l", "-f"))
