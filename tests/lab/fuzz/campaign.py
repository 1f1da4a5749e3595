"""Inputs by the hundred between good jobs, counted by what became of them."""

import time
from collections import Counter
from dataclasses import dataclass, field
from typing import Any, Protocol

import hypothesis
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st

from . import verdict
from .stage import Stage

ROUND = 500  # inputs, after which all good jobs are waited for
BETWEEN = 20  # inputs from one good job to the next


class Door(Protocol):
    """Where inputs are put in."""

    name: str
    inputs: st.SearchStrategy[Any]

    def put(self, given: Any) -> str:
        """Put one in; "accepted", or the code of its refusal."""

    def close(self) -> None:
        """Give back what it holds."""


@dataclass
class Account:
    """What became of the inputs of a door."""

    door: str
    outcomes: Counter[str] = field(default_factory=Counter)
    seconds: float = 0.0

    @property
    def inputs(self) -> int:
        return self.outcomes.total()

    @property
    def refusals(self) -> dict[str, int]:
        return {
            code: count
            for code, count in sorted(self.outcomes.items())
            if code != verdict.ACCEPTED
        }


def run(door: Door, stage: Stage, inputs: int, seed: int, account: Account) -> None:
    """Put in so many, the same ones for the same seed, and count them.

    Raises:
        FaultError: One has done harm; it has been shrunk, and the message shows it.
    """
    began = time.monotonic()
    try:
        for number in range(0, inputs, ROUND):
            count = min(ROUND, inputs - number)
            _put_round(door, stage, account, count, f"{seed} {number}")
            stage.settle()
    finally:
        account.seconds = time.monotonic() - began


def _put_round(
    door: Door, stage: Stage, account: Account, count: int, seed: str
) -> None:
    @hypothesis.seed(seed)
    @settings(
        max_examples=count,
        database=None,
        deadline=None,
        phases=(Phase.generate, Phase.shrink),
        suppress_health_check=list(HealthCheck),
        report_multiple_bugs=False,
        print_blob=False,
    )
    @hypothesis.given(door.inputs)
    def put(given: Any) -> None:
        if account.inputs % BETWEEN == 0:
            stage.add_good()
        try:
            outcome = door.put(given)
        except verdict.FaultError as error:
            raise verdict.FaultError(f"{given}\n  {error}") from None
        account.outcomes[outcome] += 1

    put()
