"""The dead letters."""

import psycopg
from playwright.sync_api import expect

from full.page.browsing import Visit
from full.page.queueing import failed, insert, status
from full.page.serving import TOKEN, Site


def test_a_group_is_retried_once_it_is_confirmed_how_many(
    visit: Visit, site: Site, sql: psycopg.Connection
) -> None:
    letters = [failed(sql, "send", f"timeout after {n} s") for n in (1, 2, 3)]
    other = failed(sql, "send", "no such user")
    visit.log_in(site.url, TOKEN)
    visit.goto("#/failed")
    page = visit.page
    expect(page.get_by_text("4 failed jobs in 2 groups")).to_be_visible()

    page.get_by_role("button", name="Retry 3 jobs of kind send").click()
    dialog = page.get_by_role("dialog", name="Retry 3 jobs?")
    dialog.get_by_role("button", name="Retry 3 jobs").click()
    expect(page.get_by_role("log")).to_contain_text("Retried 3 jobs.")
    expect(page.get_by_text("1 failed job in 1 group")).to_be_visible()
    assert [status(sql, letter) for letter in letters] == ["pending"] * 3
    assert status(sql, other) == "failed"


def test_what_can_not_be_retried_is_said(
    visit: Visit, site: Site, sql: psycopg.Connection
) -> None:
    failed(sql, "send", unique_key="once")
    insert(sql, "send", unique_key="once")
    visit.log_in(site.url, TOKEN)
    visit.goto("#/failed")
    visit.page.get_by_role("button", name="Retry 1 job of kind send").click()
    visit.page.get_by_role("dialog").get_by_role("button", name="Retry 1 job").click()
    said = "Retried 0 jobs. 1 job stayed: a live job has the unique key."
    expect(visit.page.get_by_role("log")).to_contain_text(said)


def test_a_group_leads_to_its_last_job_and_to_its_list(
    visit: Visit, site: Site, sql: psycopg.Connection
) -> None:
    failed(sql, "send", queue="email")
    last = failed(sql, "send", queue="email")
    failed(sql, "draw", queue="images")
    visit.log_in(site.url, TOKEN)
    page = visit.page
    visit.goto("#/failed?queue=email")
    expect(page.get_by_text("2 failed jobs in 1 group")).to_be_visible()
    page.get_by_role("link", name=str(last), exact=True).click()
    expect(page.get_by_role("heading", name=f"Job {last}")).to_be_visible()
    page.go_back()
    page.get_by_role("link", name="List 2 jobs of kind send").click()
    expect(page.locator("tbody tr")).to_have_count(2)
    expect(page.get_by_label("Status")).to_have_value("failed")


def test_a_group_is_retried_at_a_rate_or_purged(
    visit: Visit, site: Site, sql: psycopg.Connection
) -> None:
    failed(sql, "send", "gone")
    for _ in "123":
        failed(sql, "draw", "no picture")
    visit.log_in(site.url, TOKEN)
    visit.goto("#/failed")
    page = visit.page
    page.get_by_role("button", name="Retry 3 jobs of kind draw").click()
    page.get_by_label("How fast").select_option("0.1 a second")
    page.get_by_role("dialog").get_by_role("button", name="Retry 3 jobs").click()
    expect(page.get_by_role("log")).to_contain_text("Retried 3 jobs.")
    spread = "select max(run_at) - min(run_at) from pgwake.jobs where kind = 'draw'"
    (seconds,) = sql.execute(spread).fetchone() or ()
    assert seconds.total_seconds() == 20

    page.get_by_role("button", name="Purge 1 job of kind send").click()
    page.get_by_role("dialog").get_by_role("button", name="Purge 1 job").click()
    expect(page.get_by_role("log")).to_contain_text("Purged 1 job.")
    expect(page.get_by_text("No job has failed.")).to_be_visible()
    assert sql.execute("select count(*) from pgwake.jobs_failed").fetchone() == (0,)
