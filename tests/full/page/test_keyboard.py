"""All of it can be done without a mouse."""

import psycopg
from playwright.sync_api import Page, expect

from full.page.browsing import Visit
from full.page.queueing import failed, insert, status
from full.page.serving import TOKEN, Site


def tab_to(page: Page, name: str, limit: int = 40) -> None:
    """Press Tab until something with that name has the focus."""
    for _ in range(limit):
        page.keyboard.press("Tab")
        label = page.evaluate(
            "(document.activeElement.ariaLabel || document.activeElement.textContent)"
        )
        if label == name:
            return
    raise AssertionError(f"Tab does not reach {name}")


def test_a_visitor_logs_in_skips_the_bar_and_goes_through_the_pages(
    visit: Visit, site: Site, sql: psycopg.Connection
) -> None:
    insert(sql)
    visit.open(site.url)
    page = visit.page
    expect(page.get_by_label("Token")).to_be_focused()
    page.keyboard.type(TOKEN)
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", name="Overview")).to_be_visible()

    page.reload()
    page.keyboard.press("Tab")
    skip = page.get_by_role("link", name="Skip to the content")
    expect(skip).to_be_focused()
    expect(skip).to_be_in_viewport()
    page.keyboard.press("Enter")
    expect(page.locator("main")).to_be_focused()
    assert page.url.rstrip("#/") == site.url.rstrip("/")

    page.reload()
    tab_to(page, "Jobs")
    page.keyboard.press("Enter")
    heading = page.get_by_role("heading", name="Jobs")
    expect(heading).to_be_focused()
    tab_to(page, "1")
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", name="Job 1")).to_be_focused()
    page.go_back()
    expect(heading).to_be_visible()


def test_a_question_holds_the_focus_and_gives_it_back(
    visit: Visit, site: Site, sql: psycopg.Connection
) -> None:
    insert(sql)
    visit.log_in(site.url, TOKEN)
    page = visit.page
    tab_to(page, "Pause default")
    page.keyboard.press("Enter")
    dialog = page.get_by_role("dialog", name="Pause default?")
    expect(dialog).to_be_visible()
    page.keyboard.press("Escape")
    expect(dialog).to_have_count(0)
    expect(page.get_by_role("button", name="Pause default")).to_be_focused()

    page.keyboard.press("Space")
    expect(page.get_by_label("How long")).to_be_focused()
    page.keyboard.press("ArrowDown")
    tab_to(page, "Pause")
    page.keyboard.press("Enter")
    expect(page.get_by_role("button", name="Resume default")).to_be_focused()


def test_dead_letters_are_retried(
    visit: Visit, site: Site, sql: psycopg.Connection
) -> None:
    job = failed(sql, "send")
    visit.log_in(site.url, TOKEN)
    page = visit.page
    tab_to(page, "Failed")
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", name="Failed jobs")).to_be_focused()
    expect(page.get_by_role("button", name="Retry 1 job of kind send")).to_be_visible()
    tab_to(page, "Retry 1 job of kind send")
    page.keyboard.press("Enter")
    tab_to(page, "Retry 1 job")
    page.keyboard.press("Enter")
    # The button is gone, with its row.
    expect(page.get_by_role("heading", name="Failed jobs")).to_be_focused()
    assert status(sql, job) == "pending"
    tab_to(page, "Log out")
    page.keyboard.press("Enter")
    expect(page.get_by_label("Token")).to_be_focused()
