"""The contract, run through each language's own driver."""

from pathlib import Path

import pytest

from conformance.clients import DEAF, HERE, LANGUAGES, Clients
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
    script = tmp_path / "contract.sql"

    async def run(*steps: str) -> tuple[int, list[str]]:
        script.write_text("\n-- step: ".join(["", "first\nlisten a;", *steps]))
        return await clients.run(language, "contract", str(script))

    code, (line,) = await run("an answer\nselect null::text;\n-- expect: (empty)\n")
    assert code == 1
    assert line == 'step "an answer": expected expect (empty), got (null)'

    code, (line,) = await run("an error\nselect 1 / 0;\n")
    assert code == 1
    assert line.startswith('step "an error": expected error')
    assert line.endswith(", got 22012")

    code, (line,) = await run("a note\nnotify a, 'b';\n-- hears: a c\n")
    if language in DEAF:
        assert (code, line) == (0, "2 steps")
    else:
        assert (code, line) == (1, 'step "a note": expected hears a c, got a b')
