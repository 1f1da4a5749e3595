"""All that EVIDENCE.md shows is made anew by one command."""

import re
from pathlib import Path

from lab.evidence import CAMPAIGNS, run
from support import CHECKOUT

EVIDENCE = CHECKOUT / "tests" / "EVIDENCE.md"


def test_each_campaign_that_evidence_names_is_run_by_it() -> None:
    named = set(re.findall(r"`python -m ([\w.]+)", EVIDENCE.read_text()))
    assert {"tests.lab.chaos", "tests.clients"} <= named
    run_by_it = {words.split()[0] for words in CAMPAIGNS.values()}
    assert named - {"tests.lab.evidence"} <= run_by_it


def test_what_a_campaign_prints_and_how_it_ended_is_kept(tmp_path: Path) -> None:
    folder = tmp_path / "its figures"
    campaigns = {"good": "platform FOLDER", "bad": "no_such_module"}
    codes = run(campaigns, folder)
    assert codes == {"good": 0, "bad": 1}
    assert "Linux" in (folder / "good.txt").read_text()
    assert "No module named no_such_module" in (folder / "bad.txt").read_text()
    assert "-m pip freeze" in (folder / "surroundings.txt").read_text()
