"""The status page in a real browser, before a real server and a real database."""

import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal

import psycopg
import pytest
from playwright.sync_api import Browser, Page, expect, sync_playwright

from full.page.browsing import FLAGS, Visit, guarded
from full.page.serving import TOKEN, Site, StartSite, WorkerSite
from support import PATIENCE
from support.tools import need

Scheme = Literal["light", "dark"]


# No longer than a module: while it lives, its loop runs in this thread, and tests of
# other folders can't run theirs.
@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """The browser that a module's tests share; each has a profile of its own."""
    need("chromium")
    program = shutil.which("chromium")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=program, args=FLAGS)
        expect.set_options(timeout=PATIENCE * 1000)
        yield browser
        browser.close()


@pytest.fixture
def sql(database: str) -> Iterator[psycopg.Connection[Any]]:
    """A session of the test's database, in autocommit."""
    with psycopg.connect(database, autocommit=True) as connection:
        yield connection


@pytest.fixture
def start_site(database: str, tmp_path: Path) -> Iterator[StartSite]:
    """Start `pgwake serve` or, by is_worker, `pgwake run`; keywords are settings."""
    started: list[Site] = []

    def start(*, is_worker: bool = False, **settings: object) -> Site:
        settings = {"database_url": database, **settings}
        site = WorkerSite(settings, tmp_path) if is_worker else Site(settings)
        started.append(site)
        site.start()
        return site

    yield start
    for site in started:
        site.stop()


@pytest.fixture
def site(start_site: StartSite) -> Site:
    """A `pgwake serve` on the test's database."""
    return start_site()


@pytest.fixture
def scheme() -> Scheme:
    return "light"


@pytest.fixture
def width() -> int:
    return 1280


@pytest.fixture
def visit(
    browser: Browser,
    scheme: Scheme,
    width: int,
    start_site: StartSite,  # noqa: ARG001, the tab is closed before its server is
) -> Iterator[Visit]:
    """A visitor's tab. The test fails if anything goes wrong in it unexpectedly."""
    context = browser.new_context(
        viewport={"width": width, "height": 800}, color_scheme=scheme, locale="en-GB"
    )
    context.set_default_timeout(PATIENCE * 1000)
    visit = guarded(context.new_page())
    yield visit
    context.close()
    assert visit.problems == []


@pytest.fixture
def page(visit: Visit, site: Site) -> Page:
    """The same, logged in."""
    visit.log_in(site.url, TOKEN)
    return visit.page


@pytest.fixture(autouse=True)
def _only_the_tests_own_settings(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.delenv("DATABASE_URL", raising=False)
    monkeypatch.chdir(tmp_path)
    for name in list(os.environ):
        if name.startswith("PGWAKE_") and not name.startswith("PGWAKE_TEST_"):
            monkeypatch.delenv(name)
