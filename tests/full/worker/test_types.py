"""Code of users for type checkers: pyright here, mypy with all that it checks."""

import subprocess
import sys
from pathlib import Path
from typing import get_type_hints

from pgwake import Settings
from pgwake.settings import Given
from support import untimed
from support.tools import unpacked


def test_pyright_refuses_what_is_marked_and_no_more(tmp_path: Path) -> None:
    program = unpacked("pyright") / "pyright"
    calls = Path(__file__).parent / "typed_calls.py"
    with untimed():
        checked = subprocess.run(
            [program, "--pythonpath", sys.executable, calls],
            check=False,
            capture_output=True,
            text=True,
            cwd=tmp_path,
        )
    assert "0 errors, 0 warnings" in checked.stdout, checked.stdout + checked.stderr


def test_type_checkers_know_each_setting() -> None:
    assert get_type_hints(Given).keys() == Settings.model_fields.keys()
