"""pgwake doctor: what is wrong with a database and its settings, and what to type."""

import asyncio
from dataclasses import asdict
from typing import Any

import typer
from rich.text import Text

from pgwake.cli.shared.output import Json, Url, console, print_json
from pgwake.cli.shared.tables import printable
from pgwake.doctor.examine import Examination
from pgwake.finding import SEVERITIES, Finding, Severity
from pgwake.settings import Settings

EXIT_CODES: dict[Severity, int] = {"error": 4, "warning": 3, "notice": 0}
_STYLES: dict[Severity, str] = {"error": "bold red", "warning": "yellow", "notice": ""}


def doctor(as_json: Json = False, database_url: Url = None) -> None:
    """Check the database; name each problem, and the command that mends it.

    Looks with the settings that a worker would have. Exit code 0: nothing, or notices
    alone; 3: warnings; 4: errors, such as a database that can't be reached.
    """
    settings = Settings.load(database_url=database_url)
    _ = settings.dsn  # without one there is nothing to look at
    examination = Examination(settings)
    asyncio.run(examination.run())
    findings = examination.findings
    if as_json:
        print_json(_summary(examination))
    else:
        shown = console()
        for finding in findings:
            shown.print(_said(finding), soft_wrap=True)
        shown.print(
            f"{_counted(findings)}: {len(examination.checks)} checks in "
            f"{examination.seconds:.1f} s"
        )
    if findings and (code := EXIT_CODES[findings[0].severity]):
        raise typer.Exit(code)


def _summary(examination: Examination) -> dict[str, Any]:
    return {
        "findings": [asdict(finding) for finding in examination.findings],
        "checks": examination.checks,
        "seconds": examination.seconds,
    }


def _said(finding: Finding) -> Text:
    return Text.assemble(
        (f"{finding.severity:8}", _STYLES[finding.severity]),
        (finding.check, "bold"),
        f" {printable(finding.subject)}: {printable(finding.problem)}\n",
        (f"        {printable(finding.fix)}", "cyan"),
    )


def _counted(findings: list[Finding]) -> str:
    counts = [
        (sum(finding.severity == severity for finding in findings), severity)
        for severity in SEVERITIES
    ]
    said = [f"{n} {name}{'s' if n > 1 else ''}" for n, name in counts if n]
    return ", ".join(said) or "nothing found"
