"""The queues: counts, charts, filter, pause."""

import psycopg
from playwright.sync_api import Page, expect

from full.page.browsing import Visit
from full.page.queueing import completed, failed, insert, insert_many, running
from full.page.serving import TOKEN, Site, StartSite


def test_an_empty_installation_says_how_to_begin(page: Page) -> None:
    expect(page.get_by_text("There are no queues yet")).to_be_visible()
    expect(page.get_by_role("table")).to_have_count(0)


def test_each_queue_is_shown_with_what_stands_in_it(
    visit: Visit, site: Site, sql: psycopg.Connection
) -> None:
    insert_many(sql, 3, queue="email")
    insert(sql, queue="email", run_at="2100-01-01")
    insert(sql, queue="email", concurrency_key="a")
    insert(sql, queue="email", concurrency_key="a")
    failed(sql, queue="reports")
    running(sql, queue="reports")
    visit.log_in(site.url, TOKEN)

    email = visit.page.get_by_role("row").filter(has_text="email").get_by_role("cell")
    # With a key, the first one is admitted by the first claim or upkeep.
    expect(email.nth(0)).to_have_text("3")
    expect(email.nth(2)).to_have_text("1")
    expect(email.nth(3)).to_have_text("2")
    reports = visit.page.get_by_role("row").filter(has_text="reports")
    expect(reports.get_by_role("cell").nth(1)).to_have_text("1")
    for page_ in ("jobs?queue=reports&status=running", "failed?queue=reports"):
        expect(reports.locator(f"a[href='#/{page_}']")).to_have_text("1")
    total = visit.page.locator(".totals > div").filter(has_text="Queued")
    expect(total.locator(".figure")).to_have_text("6")


def test_a_chart_says_in_words_what_it_shows(
    start_site: StartSite, visit: Visit, sql: psycopg.Connection
) -> None:
    completed(sql)
    visit.log_in(start_site().url, TOKEN)
    chart = visit.page.get_by_role("img", name="Average time in the queue: last")
    expect(chart).to_be_visible()


def test_a_queue_is_paused_and_resumed_once_that_is_confirmed(
    visit: Visit, site: Site, sql: psycopg.Connection
) -> None:
    insert(sql, queue="email")
    visit.log_in(site.url, TOKEN)
    page = visit.page
    paused = "select paused_until > now() from pgwake.queues where name = 'email'"

    page.get_by_role("button", name="Pause email").click()
    page.get_by_role("button", name="Keep as it is").click()
    expect(page.get_by_role("dialog")).to_have_count(0)
    assert sql.execute(paused).fetchone() is None

    page.get_by_role("button", name="Pause email").click()
    page.get_by_role("dialog").get_by_role("button", name="Pause").click()
    expect(page.get_by_role("log")).to_contain_text("Paused email.")
    expect(page.get_by_role("row").filter(has_text="paused")).to_be_visible()
    assert sql.execute(paused).fetchone() == (True,)

    page.get_by_role("button", name="Resume email").click()
    page.get_by_role("dialog").get_by_role("button", name="Resume").click()
    expect(page.get_by_role("button", name="Pause email")).to_be_visible()
    assert sql.execute(paused).fetchone() in ((False,), (None,))


def test_a_pause_can_end_by_itself(
    visit: Visit, site: Site, sql: psycopg.Connection
) -> None:
    insert(sql, queue="email")
    visit.log_in(site.url, TOKEN)
    page = visit.page
    page.get_by_role("button", name="Pause email").click()
    page.get_by_label("How long").select_option("for an hour")
    page.get_by_role("dialog").get_by_role("button", name="Pause").click()
    expect(page.get_by_text("paused, ends in")).to_be_visible()


def test_a_thousand_queues_are_filtered_sorted_and_shown_in_parts(
    visit: Visit, site: Site, sql: psycopg.Connection
) -> None:
    sql.execute(
        "insert into pgwake.jobs (kind, queue)"
        " select 'hello', 'tenant ' || to_char(n, 'fm0000')"
        " from generate_series(1, 1000) as n"
    )
    insert_many(sql, 5, queue="tenant 0777")
    visit.log_in(site.url, TOKEN)
    page = visit.page
    names = page.locator("tbody th")
    expect(names).to_have_count(100)
    expect(page.get_by_text("100 of 1,000 queues")).to_be_visible()

    page.get_by_label("Sort by").select_option("Most pending")
    expect(names.first).to_have_text("tenant 0777")
    page.get_by_label("Filter queues").fill("99")
    expect(names).to_have_count(19)
    page.get_by_label("Filter queues").fill("no such")
    expect(page.get_by_text("No matching queues.")).to_be_visible()
    page.get_by_label("Filter queues").fill("")
    page.get_by_role("button", name="Show all 1,000").click()
    expect(names).to_have_count(1000)
    expect(names.nth(100).get_by_role("link")).to_be_focused()


def test_what_is_wrong_is_said_with_what_to_type_against_it(
    visit: Visit, site: Site, sql: psycopg.Connection
) -> None:
    insert(sql, queue="email", run_at="2020-01-01")
    visit.log_in(site.url, TOKEN)
    finding = visit.page.get_by_role("listitem").filter(has_text="email")
    expect(finding).to_contain_text("error")
    expect(finding.locator("code")).to_contain_text("PGWAKE_QUEUES")
