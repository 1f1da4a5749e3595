"""Supervisors, as the engine stops them."""

import os
import signal
import sys
import time
from pathlib import Path

import pytest

from lab.chaos.crew import Team

STARTED = '{"event": "process started", "name": "w", "pid": 1, "suspects": false}'
# Says what it is told to say, and is ended by a signal as one without a handler is.
PROGRAM = "import sys, time; print(sys.argv[1], flush=True); time.sleep(60)"


@pytest.mark.parametrize(("said", "code"), [("", 0), (STARTED, -signal.SIGTERM)])
def test_who_is_stopped_while_it_starts_has_done_nothing_wrong(
    tmp_path: Path, said: str, code: int
) -> None:
    log = tmp_path / "log"
    command = [sys.executable, "-c", PROGRAM, said]
    team = Team(command, dict(os.environ), log)
    while not log.read_text().endswith("\n"):
        time.sleep(0.01)

    team.send(signal.SIGTERM)

    assert team.stop() == code
