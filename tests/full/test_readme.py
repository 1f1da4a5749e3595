"""The documents say what is so: tables are made, commands are run, outputs shown."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from pgwake.database.embedded import EmbeddedServer
from support.readme import CHECKOUT, DOCUMENTS, anchors, with_tables
from support.tools import need

IDS = [str(path.relative_to(CHECKOUT)) for path in DOCUMENTS]
LINK = re.compile(r"\]\(([^)#:\s]*)(?:#([^)\s]*))?\)")
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.DOTALL | re.MULTILINE)


@pytest.mark.parametrize("path", DOCUMENTS, ids=IDS)
def test_tables_are_up_to_date(path: Path) -> None:
    text = path.read_text()
    assert text == with_tables(text), "run: python -m tests.support.readme"


@pytest.mark.parametrize("path", DOCUMENTS, ids=IDS)
def test_links_lead_somewhere(path: Path) -> None:
    for target, anchor in LINK.findall(path.read_text()):
        document = path.parent / target if target else path
        assert document.exists(), target
        if anchor:
            assert anchor in anchors(document.read_text()), f"{target}#{anchor}"


def test_the_first_page_is_short() -> None:
    lines = (CHECKOUT / "README.md").read_text().splitlines()
    assert len(lines) < 160
    assert [line for line in lines if len(line) >= 120] == []


def test_tests_that_a_document_names_exist() -> None:
    names = re.compile(r"\bdef (test_\w+)")
    there = {
        name
        for path in (CHECKOUT / "tests").rglob("test_*.py")
        for name in names.findall(path.read_text())
    }
    for path in DOCUMENTS:
        named = set(re.findall(r"`(test_\w+)`", path.read_text()))
        assert named <= there, named - there


@pytest.mark.parametrize("path", DOCUMENTS, ids=IDS)
def test_examples_print_what_is_shown(
    path: Path, database: str, admin_url: str, server: EmbeddedServer, tmp_path: Path
) -> None:
    if "promtool" in path.read_text():
        need("promtool")
    environment = {
        **os.environ,
        "PGWAKE_DATABASE_URL": database,
        "PGWAKE_ADMIN_URL": admin_url,  # of a superuser, for roles
        "PATH": os.pathsep.join(
            [str(Path(sys.executable).parent), str(server.binaries), os.environ["PATH"]]
        ),
        "PYTHONPATH": str(tmp_path),
        "PGTZ": "UTC",
    }
    (tmp_path / "deploy").symlink_to(CHECKOUT / "deploy")
    for language, text in BLOCK.findall(path.read_text()):
        if language == "python" and text.startswith("# "):
            name, *where = text.partition("\n")[0].split()[1:]
            with (tmp_path / name).open("a" if where else "w") as file:
                file.write(text)
        elif language == "sql":
            run = ["psql", "-X", "-q", "-v", "ON_ERROR_STOP=1", database, "-c", text]
            _run(run, environment, tmp_path)
        elif language == "console":
            for command, shown in _commands(text):
                printed = _run(["bash", "-c", command], environment, tmp_path)
                assert _matches(printed, shown), f"$ {command}\n{printed}"


def _commands(text: str) -> list[tuple[str, str]]:
    """Split a console block into commands and the output shown under each."""
    parts = re.split(r"^\$ ", text, flags=re.MULTILINE)[1:]
    return [(part.split("\n", 1)[0], part.split("\n", 1)[1]) for part in parts]


def _matches(printed: str, shown: str) -> bool:
    """Compare; an ellipsis stands for anything."""
    pattern = ".*?".join(map(re.escape, shown.strip().split("...")))
    return re.fullmatch(pattern, printed.strip(), re.DOTALL) is not None


def _run(command: list[str], environment: dict[str, str], folder: Path) -> str:
    # Into a file: what a command leaves running would keep a pipe open.
    with (folder / "output").open("w+") as output:
        done = subprocess.run(
            command,
            check=False,
            env=environment,
            cwd=folder,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
        )
        output.seek(0)
        printed = output.read()
    assert done.returncode == 0, f"{command[-1]}\n{printed}"
    return printed
