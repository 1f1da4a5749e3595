"""Tabs that notice what goes wrong in them."""

import re
from dataclasses import dataclass, field
from urllib.parse import urlsplit

from playwright.sync_api import ConsoleMessage, Page, Request, expect

FLAGS = [
    "--no-sandbox",  # the tests may be root's
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]

# Runs before the page's own scripts.
WATCH = """
document.addEventListener('securitypolicyviolation', (event) =>
  console.error(`policy: ${event.violatedDirective} ${event.blockedURI}`));
"""


@dataclass
class Visit:
    """A tab, and what has gone wrong in it.

    Attributes:
        expected: What its console may say, as a regular expression.
    """

    page: Page
    problems: list[str] = field(default_factory=list)
    expected: str | None = None

    def open(self, url: str) -> None:
        """Open an address of the page."""
        self.page.goto(url)

    def log_in(self, url: str, token: str) -> None:
        """Open an address and log in; wait until data is shown."""
        self.open(url)
        self.page.get_by_label("Token").fill(token)
        self.page.get_by_role("button", name="Log in").click()
        expect(self.page.locator("main .view")).to_be_visible()
        expect(self.page.locator("main[aria-busy]")).to_have_count(0)

    def goto(self, fragment: str) -> None:
        """Go to a page by its address, without loading it anew; wait for its data."""
        self.page.evaluate("(hash) => { location.hash = hash; }", fragment)
        expect(self.page.locator("main[aria-busy]")).to_have_count(0)

    def note(self, problem: str) -> None:
        """Take down a problem that was not expected."""
        if self.expected is None or not re.search(self.expected, problem):
            self.problems.append(problem)


def guarded(page: Page) -> Visit:
    """Watch over a tab."""
    visit = Visit(page)

    def hear(message: ConsoleMessage) -> None:
        if message.type in ("error", "warning"):
            visit.note(f"console: {message.text}")

    def see(request: Request) -> None:
        parts = urlsplit(request.url)
        if parts.hostname != "127.0.0.1" and parts.scheme != "data":
            visit.note(f"request to elsewhere: {request.url}")

    page.on("console", hear)
    page.on("request", see)
    page.on("pageerror", lambda error: visit.note(f"script: {error}"))
    page.on("dialog", lambda dialog: visit.note(f"dialog: {dialog.message}"))
    page.add_init_script(WATCH)
    return visit
