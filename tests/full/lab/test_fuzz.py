"""The same inputs at each run, so that it fails for a change and not by chance.

Others, and more: python -m tests.lab.fuzz --inputs 10000 --seed NUMBER.
"""

from pathlib import Path

import pytest

from lab.fuzz import campaign
from lab.fuzz.campaign import Account
from lab.fuzz.doors import DOORS
from lab.fuzz.stage import Stage
from support import RoleUrl

INPUTS = {"sql": 100, "insert": 60, "http": 100, "cli": 20}


@pytest.mark.parametrize("name", DOORS)
def test_whatever_is_put_in_good_jobs_run_and_the_books_agree(
    database: str, role_url: RoleUrl, tmp_path: Path, name: str
) -> None:
    account = Account(name)
    with Stage(database, role_url, tmp_path) as stage:
        door = DOORS[name](stage)
        campaign.run(door, stage, INPUTS[name], seed=8, account=account)
        door.close()
        stage.close()

    assert account.inputs >= INPUTS[name]
    assert account.outcomes["accepted"] > 0, account
    assert account.refusals, account
