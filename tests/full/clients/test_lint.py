"""The clients, as each language's own checker sees them; for bash: .ci/run."""

import subprocess
from pathlib import Path

import pytest

from clients.clients import HERE, tools

# Its command, and what it says of a file in which it finds nothing.
CHECKERS = {
    "node": (["bin/node", "--check"], ""),
    "go": (["usr/bin/gofmt", "-l"], ""),
    "ruby": (["bin/ruby", "-wc"], "Syntax OK\n"),
    "php": (["bin/php", "-l"], "No syntax errors detected in {file}\n"),
    "perl": (["bin/perl", "-wc"], "{file} syntax OK\n"),
}
FILES = [file for language in CHECKERS for file in (HERE / language).iterdir()]


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.name)
def test_the_checker_of_its_language_finds_nothing(file: Path) -> None:
    (program, option), nothing = CHECKERS[file.parent.name]

    said = subprocess.run(
        [tools() / program, option, file],
        check=False,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )

    assert (said.returncode, said.stdout) == (0, nothing.format(file=file))
