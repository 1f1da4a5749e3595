"""What changes is shown by itself."""

import time
from pathlib import Path

import psycopg
from playwright.sync_api import Page, expect

from full.page.browsing import Visit
from full.page.queueing import insert, insert_many, progress
from full.page.serving import TOKEN, Site, StartSite
from pgwake.database.embedded import EmbeddedServer
from support import free_port

AWAY = "ERR_(CONNECTION_REFUSED|CONNECTION_RESET|INCOMPLETE_CHUNKED|EMPTY_RESPONSE)"


def expect_state(page: Page, state: str) -> None:
    expect(page.locator("#connection")).to_contain_text(state)


def test_a_job_that_is_inserted_appears_without_a_reload(
    page: Page, visit: Visit, sql: psycopg.Connection
) -> None:
    expect_state(page, "live")
    page.evaluate("window.isTheSame = true")
    insert(sql, queue="new queue")
    expect(page.get_by_role("rowheader", name="new queue")).to_be_visible()
    visit.goto("#/jobs")
    expect(page.locator("tbody tr")).to_have_count(1)
    insert(sql)
    expect(page.locator("tbody tr")).to_have_count(2)
    assert page.evaluate("window.isTheSame")


def test_what_has_the_focus_keeps_it_while_rows_come_and_go(
    page: Page, visit: Visit, sql: psycopg.Connection
) -> None:
    insert(sql)
    visit.goto("#/jobs")
    link = page.get_by_role("link", name="1", exact=True)
    link.focus()
    insert_many(sql, 3)
    expect(page.locator("tbody tr")).to_have_count(4)
    expect(link).to_be_focused()


def test_a_burst_of_changes_costs_a_read_a_second(
    page: Page, sql: psycopg.Connection
) -> None:
    expect_state(page, "live")
    reads: list[str] = []
    page.on("request", lambda r: reads.append(r.url) if "stats" in r.url else None)
    began = time.monotonic()
    for _ in range(300):
        insert(sql)
    pending = page.get_by_role("row").filter(has_text="default").get_by_role("cell")
    expect(pending.first).to_have_text("300")
    assert len(reads) <= time.monotonic() - began + 2


def test_while_the_server_is_away_it_is_said_and_what_is_shown_is_marked(
    page: Page, visit: Visit, site: Site, sql: psycopg.Connection
) -> None:
    visit.expected = AWAY
    expect_state(page, "live")
    site.stop()
    expect_state(page, "offline since")
    note = page.get_by_text("The server does not answer. The data is from")
    expect(note).to_be_visible()
    assert "grayscale" in page.locator("main").evaluate(
        "(main) => getComputedStyle(main).filter"
    )
    insert(sql, queue="meanwhile")
    site.start()
    expect_state(page, "live")
    expect(page.get_by_role("rowheader", name="meanwhile")).to_be_visible()
    expect(note).to_have_count(0)
    insert(sql, queue="afterwards")
    expect(page.get_by_role("rowheader", name="afterwards")).to_be_visible()


def test_without_events_the_page_polls(
    visit: Visit, start_site: StartSite, sql: psycopg.Connection
) -> None:
    nowhere = f"postgresql://nobody@127.0.0.1:{free_port()}/none"
    visit.log_in(start_site(listen_url=nowhere).url, TOKEN)
    expect_state(visit.page, "polling")
    for queue in ("new queue", "another"):  # the first may come by what was told before
        insert(sql, queue=queue)
        new = visit.page.get_by_role("rowheader", name=queue)
        expect(new).to_be_visible()


def test_a_page_that_nobody_sees_asks_for_nothing(page: Page) -> None:
    expect_state(page, "live")
    hide = """(is_hidden) => {
      Object.defineProperty(document, 'hidden', {value: is_hidden, configurable: true});
      document.dispatchEvent(new Event('visibilitychange'));
    }"""
    page.evaluate(hide, True)
    reads: list[str] = []
    page.on("request", lambda request: reads.append(request.url))
    page.wait_for_timeout(6000)
    assert reads == []
    page.evaluate(hide, False)
    expect_state(page, "live")


def test_a_job_is_watched_from_its_worker_s_start_to_its_end(
    visit: Visit, start_site: StartSite, sql: psycopg.Connection, tmp_path: Path
) -> None:
    site = start_site(is_worker=True)
    until = tmp_path / "done"
    job = insert(sql, "hold", payload={"until": str(until)})
    visit.log_in(site.url, TOKEN)
    page = visit.page
    visit.goto("#/running")
    expect(page.get_by_role("rowheader", name=str(job))).to_be_visible()
    progress(sql, 3, 4)
    bar = page.get_by_role("progressbar")
    expect(bar).to_have_attribute("value", "3")
    expect(page.get_by_text("3 of 4")).to_be_visible()
    visit.goto("#/workers")
    expect(page.get_by_role("cell", name="live", exact=True)).to_be_visible()
    visit.goto(f"#/jobs/{job}")
    until.touch()
    expect(page.locator(".job-status")).to_contain_text("completed")


def test_while_the_database_is_away_it_is_said(
    visit: Visit,
    start_site: StartSite,
    own_server: EmbeddedServer,
    own_database: str,
) -> None:
    visit.expected = "503"
    site = start_site(database_url=own_database, query_timeout=2)
    visit.log_in(site.url, TOKEN)
    page = visit.page
    expect_state(page, "live")
    own_server._halt("immediate")
    expect_state(page, "offline since")
    expect(page.locator("#stale")).to_contain_text("database")
    own_server._launch()
    expect_state(page, "live")
    expect(page.locator("#stale")).to_be_empty()
