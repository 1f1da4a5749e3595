"""Whatever two sessions do at once: no job is lost, no limit is exceeded.

500 steps; more by `tests/run tests/full/sql/test_lifecycle.py --steps 100000`, and
others by `--hypothesis-seed NUMBER`.
"""

from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

import psycopg
import pytest
from hypothesis import HealthCheck, settings
from hypothesis.stateful import run_state_machine_as_test

from support.sql.lifecycle import FAMILIES, Lifecycle

USUAL = {"completed", "failed", "cancelled", "retry", "released", "replaced"}
USUAL |= set(FAMILIES)
USUAL |= {"fired", "not fired", "raced", "updated", "unchanged"}
USUAL |= {"updated by hand"}
USUAL |= {"commit", "rollback", "55P03", "PW003", "PW005", "running"}


@contextmanager
def machine(url: str) -> Iterator[type[Lifecycle]]:
    """The machine with its three sessions."""
    with ExitStack() as stack:
        sessions = [
            stack.enter_context(psycopg.connect(url, autocommit=True)) for _ in range(3)
        ]
        for session in sessions[:2]:
            session.execute("set lock_timeout = '20 ms'")
        bound = {"sessions": sessions, "seen": Counter[str]()}
        yield type("BoundLifecycle", (Lifecycle,), bound)


def run(
    lifecycle: type[Lifecycle], examples: int, steps: int, *, derandomize: bool
) -> None:
    """Run so many examples of so many steps each."""
    run_state_machine_as_test(
        lifecycle,
        settings=settings(
            max_examples=examples,
            stateful_step_count=steps,
            deadline=None,
            derandomize=derandomize,
            suppress_health_check=list(HealthCheck),
            database=None,
        ),
    )


@pytest.mark.timeout(0)  # a failure takes its time, to be shrunk; and so do more steps
def test_whatever_two_sessions_do_no_job_is_lost_and_no_limit_exceeded(
    database: str, pytestconfig: pytest.Config
) -> None:
    seed = pytestconfig.getoption("hypothesis_seed")
    with machine(database) as lifecycle:
        examples = pytestconfig.getoption("steps") // 50
        run(lifecycle, examples, 50, derandomize=seed is None)
        for _ in range(10):  # what is seen depends on who is first
            if lifecycle.seen.keys() >= USUAL:
                break
            run(lifecycle, examples, 50, derandomize=False)
        assert lifecycle.seen.keys() >= USUAL, USUAL - lifecycle.seen.keys()
