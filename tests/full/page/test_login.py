"""Who gets in."""

import psycopg
from playwright.sync_api import Page, expect

from full.page.browsing import Visit
from full.page.serving import TOKEN, Site


def test_a_wrong_token_is_refused_and_the_right_one_opens_the_page(
    visit: Visit, site: Site
) -> None:
    visit.expected = "401"
    page = visit.page
    visit.open(site.url)
    expect(page.get_by_role("navigation")).to_have_count(0)

    page.get_by_label("Token").fill("not-the-token-of-this")
    page.keyboard.press("Enter")
    expect(page.get_by_role("alert")).to_have_text("That token is not accepted.")
    page.get_by_label("Token").fill("nor\N{SNOWMAN}this")
    page.keyboard.press("Enter")
    expect(page.get_by_role("alert")).to_contain_text("This is not a token")

    page.get_by_label("Token").fill(TOKEN)
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", name="Overview")).to_be_visible()


def test_the_token_is_kept_for_the_tab_alone_and_never_in_an_address(
    visit: Visit, site: Site
) -> None:
    asked: list[str] = []
    visit.page.on("request", lambda request: asked.append(request.url))
    visit.log_in(site.url, TOKEN)
    page = visit.page
    page.reload()
    expect(page.get_by_role("heading", name="Overview")).to_be_visible()

    kept = "[JSON.stringify(sessionStorage), localStorage.length, document.cookie]"
    stored, elsewhere, cookies = page.evaluate(kept)
    assert TOKEN in stored
    assert (elsewhere, cookies) == (0, "")
    assert not [url for url in [*asked, page.url] if TOKEN in url]

    page.get_by_role("button", name="Log out").click()
    expect(page.get_by_label("Token")).to_be_focused()
    assert page.evaluate("sessionStorage.length") == 0
    page.reload()
    expect(page.get_by_label("Token")).to_be_visible()


def test_a_token_that_is_changed_leads_back_to_the_login(
    visit: Visit, page: Page, site: Site
) -> None:
    visit.expected = "401|ERR_(CONNECTION_REFUSED|INCOMPLETE_CHUNKED|EMPTY_RESPONSE)"
    site.stop()
    site.start(api_token=TOKEN[::-1])
    alert = page.get_by_role("alert")
    expect(alert).to_have_text("The token is not accepted any more.")
    expect(page.get_by_label("Token")).to_be_focused()
    assert page.evaluate("sessionStorage.length") == 0


def test_an_address_that_was_asked_for_is_shown_after_the_login(
    visit: Visit, site: Site, sql: psycopg.Connection
) -> None:
    sql.execute("insert into pgwake.jobs (kind) values ('hello')")
    visit.log_in(f"{site.url}#/jobs/1", TOKEN)
    expect(visit.page.get_by_role("heading", name="Job 1")).to_be_visible()
    assert visit.page.title() == "Job 1 - pgwake"
