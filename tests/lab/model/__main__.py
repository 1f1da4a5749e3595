"""python -m tests.lab.model: the model at its full sizes, in a few minutes.

No job is left while a worker sleeps, and there is no cycle in which everybody who can
move does. The suite searches a small one, and holds that each part is needed.
"""

import time
from pathlib import Path
from tempfile import TemporaryDirectory

from .check import SAFETY, Sizes, assert_nothing_found, build_checker, search

REST = ("-DNP", "-DNFAIR=3")
SEARCHES: list[tuple[Sizes, tuple[str, ...], tuple[str, ...]]] = [
    ({"W": 2, "S": 1, "T": 2, "FAULTS": 2}, SAFETY, ()),
    ({"W": 2, "S": 2, "T": 2, "FAULTS": 1}, SAFETY, ()),
    ({"W": 2, "S": 1, "T": 3}, SAFETY, ()),
    ({"W": 3, "S": 1, "T": 2}, SAFETY, ()),
    ({"T": 1, "FAULTS": 1}, REST, ("-l", "-f")),
]

for sizes, flags, options in SEARCHES:
    began = time.monotonic()
    with TemporaryDirectory() as folder:
        build_checker(Path(folder), sizes, flags)
        assert_nothing_found(search(Path(folder), *options))
    print(f"{sizes}: no error, {time.monotonic() - began:.0f} s", flush=True)  # noqa: T201
