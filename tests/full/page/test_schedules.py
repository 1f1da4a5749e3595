"""The schedules and the kinds: add, run now, pause, who handles what."""

import psycopg
from playwright.sync_api import expect

from full.page.browsing import Visit
from full.page.serving import TOKEN, Site


def test_a_schedule_is_added_run_now_paused_replaced_and_removed(
    visit: Visit, site: Site, sql: psycopg.Connection
) -> None:
    sql.execute("insert into pgwake.kinds (name) values ('report')")
    visit.expected = "422"
    visit.log_in(site.url, TOKEN)
    page = visit.page
    page.get_by_role("link", name="Schedules").click()
    page.get_by_role("link", name="Add a schedule").click()
    page.get_by_role("combobox", name="Kind").select_option("report")
    page.get_by_label("Name").fill("nightly")
    for cron in ("at night", "30 2 * * *"):
        page.get_by_label("Cron: minute").fill(cron)
        page.get_by_role("button", name="Add", exact=True).click()
        if cron == "at night":
            expect(page.get_by_role("alert")).to_contain_text("at night")
    row = page.get_by_role("row").filter(has_text="nightly")
    expect(row).to_contain_text("30 2 * * * UTC")

    page.get_by_role("button", name="Run now nightly").click()
    page.get_by_role("dialog").get_by_role("button", name="Run now").click()
    expect(page.get_by_role("log")).to_contain_text("nightly runs as job 1.")
    expect(row.get_by_role("link", name="1", exact=True)).to_have_attribute(
        "href", "#/jobs/1"
    )

    for button, then in (("Pause", "Resume"), ("Resume", "Pause")):
        page.get_by_role("button", name=f"{button} nightly").click()
        page.get_by_role("dialog").get_by_role("button", name=button).click()
        expect(page.get_by_role("button", name=f"{then} nightly")).to_be_visible()
    expect(row.get_by_text("paused")).to_be_hidden()

    visit.goto("#/schedule?kind=report")
    page.get_by_label("Name").fill("nightly")
    page.get_by_label("Or every: seconds").fill("60")
    page.get_by_role("button", name="Add", exact=True).click()
    dialog = page.get_by_role("dialog", name="Replace nightly?")
    dialog.get_by_role("button", name="Replace").click()
    expect(row).to_contain_text("every 1 min")
    page.get_by_role("button", name="Remove nightly").click()
    page.get_by_role("dialog").get_by_role("button", name="Remove").click()
    expect(page.get_by_text("There are no schedules.")).to_be_visible()


def test_kinds_that_nobody_handles_come_first(
    visit: Visit, site: Site, sql: psycopg.Connection
) -> None:
    sql.execute("insert into pgwake.kinds (name, timeout) values ('b', '1 minute')")
    sql.execute("select pgwake.report_worker('w', 'h', 1, array['q'], array['a'])")
    visit.log_in(site.url, TOKEN)
    page = visit.page
    page.get_by_role("link", name="Kinds").click()
    rows = page.get_by_role("table", name="Kinds").locator("tbody tr")
    expect(rows.nth(0)).to_contain_text("b")
    expect(rows.nth(0)).to_contain_text("none")
    expect(rows.nth(0)).to_contain_text("timeout")
    expect(rows.nth(1).get_by_role("link", name="a", exact=True)).to_have_attribute(
        "href", "#/jobs?kind=a"
    )
