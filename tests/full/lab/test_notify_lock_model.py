"""The notify lock's protocol, checked by spin in every order of its steps."""

import re
from pathlib import Path

import pytest

from lab.model.check import (
    SAFETY,
    Sizes,
    assert_nothing_found,
    build_checker,
    search,
)


def test_no_job_is_left_while_a_worker_sleeps(tmp_path: Path) -> None:
    """Small; python -m tests.lab.model has the full sizes."""
    build_checker(tmp_path, {"T": 1, "FAULTS": 1}, (*SAFETY, "-O1"))
    assert_nothing_found(search(tmp_path))


@pytest.mark.parametrize(
    ("part", "faults"),
    [
        ("SECOND_LOOK", 0),
        ("LOOK_AFTER_LIST", 0),
        ("PASS_DUTY", 0),
        ("RELEASE_FIRST", 0),
        ("CLEAR_FIRST", 0),
        ("WAITS", 0),
        ("SEES_LOCKED", 0),
        ("LIFELINE", 1),
        ("SUPERVISOR", 1),
    ],
)
def test_a_job_is_left_without(tmp_path: Path, part: str, faults: int) -> None:
    sizes: Sizes = {"FAULTS": faults, "WITHOUT": part}
    build_checker(tmp_path, sizes, (*SAFETY, "-O0"))  # soon found, so soon made
    report = search(tmp_path)
    assert re.search(r"assertion violated .*jobs", report), report
    assert re.search(r"errors: [1-9]", report), report
