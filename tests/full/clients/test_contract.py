"""The contract, run through each language's own driver."""

import asyncio
from pathlib import Path

import pytest

from clients.clients import DEAF, HERE, LANGUAGES, Clients
from support import RoleUrl

CONTRACT = HERE / "contract.sql"
every_language = pytest.mark.parametrize("language", ["python", *LANGUAGES])


@every_language
async def test_each_step_of_the_contract_goes_as_it_says(
    role_url: RoleUrl, binaries: Path, language: str
) -> None:
    clients = Clients(role_url("app_admin"), binaries)
    count = CONTRACT.read_text().count("\n-- step: ")

    done = await clients.run(language, "contract", str(CONTRACT))

    assert done == (0, [f"{count} steps"])


@every_language
async def test_a_step_that_goes_otherwise_is_named(
    database: str, binaries: Path, tmp_path: Path, language: str
) -> None:
    clients = Clients(database, binaries)

    async def run(step: str) -> tuple[int, list[str]]:
        title, _, _ = step.partition("\n")
        script = tmp_path / f"{title}.sql"
        script.write_text(f"\n-- step: first\nlisten a;\n-- step: {step}")
        return await clients.run(language, "contract", str(script))

    answer, error, note = await asyncio.gather(
        run("an answer\nselect null::text;\n-- expect: (empty)\n"),
        run("an error\nselect 1 / 0;\n"),
        run("a note\nnotify a, 'b';\n-- hears: a c\n"),
    )

    assert answer == (1, ['step "an answer": expected expect (empty), got (null)'])
    assert error[0] == 1
    assert error[1][0].startswith('step "an error": expected error')
    assert error[1][0].endswith(", got 22012")
    if language in DEAF:
        assert note == (0, ["2 steps"])
    else:
        assert note == (1, ['step "a note": expected hears a c, got a b'])
