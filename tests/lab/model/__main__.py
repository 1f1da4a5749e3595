"""python -m tests.lab.model: the model at its full sizes, in a few minutes.

The suite searches a small one, and holds that each part of the protocol is needed.
"""

import time
from pathlib import Path
from tempfile import TemporaryDirectory

from .check import SAFETY, Sizes, assert_nothing_found, build_checker, search

FULL: list[Sizes] = [
    {"W": 2, "S": 1, "T": 2, "FAULTS": 2},
    {"W": 2, "S": 2, "T": 2, "FAULTS": 1},
    {"W": 2, "S": 1, "T": 3},
    {"W": 3, "S": 1, "T": 2},
]

for sizes in FULL:
    began = time.monotonic()
    with TemporaryDirectory() as folder:
        build_checker(Path(folder), sizes, SAFETY)
        assert_nothing_found(search(Path(folder)))
    print(f"{sizes}: no error, {time.monotonic() - began:.0f} s", flush=True)  # noqa: T201
