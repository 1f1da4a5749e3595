"""What `pgwake doctor` does: every check that can be made, each within its deadline."""

import asyncio
from collections.abc import AsyncIterator
from time import monotonic

import asyncpg

from pgwake.database.connection import FAULTS, connect, describe
from pgwake.doctor import checks as checkup
from pgwake.doctor.connect import explain_refusal
from pgwake.errors import PgwakeError
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
        self._settings = settings
        self._timeout = min(settings.query_timeout, CHECK_SECONDS)

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
        settings = self._settings
        await self._check("settings", checkup.look_at_settings(settings))
        await self._check("hosts", checkup.look_at_hosts(settings, self._timeout / 2))
        self.checks.append("connect")
        try:
            session = await connect(settings.dsn, checkup.NAME, self._timeout)
        except (*FAULTS, PgwakeError) as error:
            refusal = explain_refusal("PGWAKE_DATABASE_URL", settings.dsn, error)
            self.findings.append(refusal)
            return
        try:
            await self._check("clock", checkup.look_at_clock(session))
            await self._check("sessions", checkup.look_at_sessions(session, settings))
            await self._check(
                "listen", checkup.look_at_listening(session, settings, self._timeout)
            )
            if await self._check("schema", checkup.look_at_schema(session)):
                await self._check("rights", checkup.look_at_rights(session))
                await self._check("grants", checkup.look_at_grants(session))
                await self._check(
                    "environment", checkup.look_at_environment(session, settings)
                )
                await self._check("diagnose", checkup.diagnose(session))
        finally:
            session.terminate()

    async def _check(self, name: str, found: AsyncIterator[Finding]) -> bool:
        """Make a check within its deadline; whether it has found no error."""
        self.checks.append(name)
        before = len(self.findings)
        try:
            async with asyncio.timeout(self._timeout):
                async for finding in found:
                    self.findings.append(finding)
        except TimeoutError:
            self.findings.append(_unanswered(name, self._timeout))
        except FAULTS as error:
            self.findings.append(_unanswered(name, error))
        return not any(f.severity == "error" for f in self.findings[before:])


def _unanswered(name: str, reason: float | Exception) -> Finding:
    """Return the finding that a check could not be made."""
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
            fix = "pgwake init --roles  # then grant pgwake_worker to this role"
    return Finding("unanswered", "error", name, problem, fix)
