"""The command line, typed in this process."""

import io
import os
import sys
from contextlib import redirect_stderr, redirect_stdout
from typing import Any
from unittest.mock import patch

from pgwake.cli.main import main
from support.worker.processes import Answer


def type_command(environment: dict[str, str], *arguments: str) -> Answer:
    """Call main() as the program does: an interpreter takes a second to start."""
    output, errors = (io.TextIOWrapper(io.BytesIO(), "utf-8") for _ in range(2))
    code: Any = 0
    with (
        patch.dict(os.environ, environment, clear=True),
        patch.object(sys, "argv", ["pgwake", *arguments]),
        patch.object(sys, "stdin", io.StringIO()),
        redirect_stdout(output),
        redirect_stderr(errors),
    ):
        try:
            main()
        except SystemExit as ended:
            code = ended.code or 0
    written = []
    for stream in (output, errors):
        stream.flush()
        written.append(stream.buffer.getvalue().decode())
    return Answer(code, *written)
