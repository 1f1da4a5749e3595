"""Campaigns: commands, run from the checkout as python -m tests.lab.NAME."""

import sys
from pathlib import Path

_TESTS = str(Path(__file__).resolve().parents[1])
if _TESTS not in sys.path:  # pytest has it: support is there
    sys.path.insert(0, _TESTS)
