"""What `pgwake doctor` does: every check that can be made, each within its deadline."""

import asyncio
from time import monotonic

import asyncpg

from pgwake.database.connection import FAULTS, describe
from pgwake.doctor.checks import CHECKS, Check, Patient
from pgwake.finding import SEVERITIES, Finding
from pgwake.settings import Settings

CHECK_SECONDS = 8.0  # that a check may take; a longer query_timeout is cut to it
RUN_SECONDS = 40.0  # that all may take


class Examination:
    """One run of all checks.

    Args:
        settings: What is examined: those that a worker would have.

    Attributes:
        checks: The checks that were made, in order.
        findings: What was found, the worst first once run() has returned.
        seconds: How long it has taken.
    """

    def __init__(self, settings: Settings) -> None:
        self.checks: list[str] = []
        self.findings: list[Finding] = []
        self.seconds = 0.0
        self._patient = Patient(settings, min(settings.query_timeout, CHECK_SECONDS))

    async def run(self) -> None:
        """Make all checks that can be made; a failure is a finding, too."""
        began = monotonic()
        try:
            async with asyncio.timeout(RUN_SECONDS):
                await self._run()
        except TimeoutError:
            self.findings.append(
                Finding(
                    "deadline",
                    "error",
                    "pgwake doctor",
                    f"not all checks were made in {RUN_SECONDS:.0f} s",
                    "pgwake doctor  # once more, when the server answers",
                )
            )
        self.seconds = monotonic() - began
        self.findings.sort(key=lambda finding: SEVERITIES.index(finding.severity))

    async def _run(self) -> None:
        try:
            for check in CHECKS:
                is_passed = await self._make(check)
                if check.is_vital and not is_passed:
                    return
        finally:
            if self._patient.session is not None:
                self._patient.session.terminate()

    async def _make(self, check: Check) -> bool:
        """Make a check within its deadline; whether it has found no error."""
        self.checks.append(check.name)
        before = len(self.findings)
        timeout = self._patient.timeout
        try:
            async with asyncio.timeout(timeout):
                async for finding in check.look(self._patient):
                    self.findings.append(finding)
        except TimeoutError:
            self.findings.append(_unanswered(check.name, timeout))
        except FAULTS as error:
            self.findings.append(_unanswered(check.name, error))
        return not any(f.severity == "error" for f in self.findings[before:])


def _unanswered(name: str, reason: float | Exception) -> Finding:
    """Return the finding that a check could not be made."""
    check = "unanswered"
    problem = f"the check {name} has got no answer"
    if isinstance(reason, float):
        problem += f" within {reason:g} s"
        fix = (
            "select pid, state, wait_event_type, wait_event from pg_stat_activity "
            "where state <> 'idle';  -- who is in the way?"
        )
    else:
        problem += f": {describe(reason)}"
        fix = "pgwake doctor  # once more"
        if isinstance(reason, asyncpg.InsufficientPrivilegeError):
            check = "rights"
            fix = "pgwake init --roles  # then grant pgwake_worker to this role"
    return Finding(check, "error", name, problem, fix)
