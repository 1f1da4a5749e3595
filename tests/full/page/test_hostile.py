"""Whatever a job carries is text, and all of it is shown as it is."""

import psycopg
import pytest
from playwright.sync_api import expect

from full.page.browsing import Visit
from full.page.queueing import Session, failed, insert
from full.page.serving import TOKEN, Site

MARKUP = (
    'javascript:alert(1)//"><svg onload=alert(2)><img src=x onerror=alert(3)>'
    "<script>alert(4)</script>{{7*7}}${7*7}"
)
HIDDEN = "safe\N{RIGHT-TO-LEFT OVERRIDE}txt.exe\N{ZERO WIDTH SPACE}"
LONG = "n" * 128


def visit_all(visit: Visit, job: int) -> None:
    """Show every view that a job appears in."""
    for fragment in ("#/", "#/running", "#/failed", "#/jobs", "#/workers"):
        visit.goto(fragment)
    visit.goto(f"#/jobs/{job}")


def attack(sql: Session, text: str) -> int:
    """A failed job with this in every field."""
    return failed(
        sql,
        text[:128],
        text,
        queue=text[:128],
        payload={text: [text, {"__proto__": text}]},
        metadata={text: text},
        unique_key=text,
        concurrency_key=None,
    )


def test_markup_in_every_field_is_text(
    visit: Visit, site: Site, sql: psycopg.Connection
) -> None:
    job = attack(sql, MARKUP)
    insert(sql, MARKUP, queue=MARKUP, concurrency_key=MARKUP)
    visit.log_in(site.url, TOKEN)
    page = visit.page
    visit_all(visit, job)
    payload = page.get_by_role("region", name="Payload").locator("pre")
    expect(payload).to_contain_text("__proto__")
    attempts = page.get_by_role("region", name="Failed attempts")
    expect(attempts.get_by_text(MARKUP).first).to_be_visible()
    assert page.locator("main :is(script, iframe, svg[onload], img)").count() == 0
    # Links lead nowhere but to the page's own views.
    hrefs = page.locator("a").evaluate_all("(all) => all.map((a) => a.href)")
    assert {href.partition("#")[0] for href in hrefs} == {site.url}
    # A filter with it works.
    page.get_by_role("region", name="Details").get_by_role("link").first.click()
    expect(page.locator("tbody tr")).to_have_count(2)


def test_what_cannot_be_seen_is_written_out(
    visit: Visit, site: Site, sql: psycopg.Connection
) -> None:
    job = attack(sql, HIDDEN)
    visit.log_in(site.url, TOKEN)
    visit_all(visit, job)
    page = visit.page
    text = page.locator("main").inner_text()
    assert "\N{RIGHT-TO-LEFT OVERRIDE}" not in text
    assert "\N{ZERO WIDTH SPACE}" not in text
    assert "safe\\u202etxt.exe\\u200b in safe\\u202etxt.exe\\u200b" in text
    page.get_by_role("region", name="Details").get_by_role("link").first.click()
    expect(page.locator("tbody tr")).to_have_count(1)


@pytest.mark.parametrize("width", [360, 1280])
def test_long_names_keep_to_their_place(
    visit: Visit, site: Site, sql: psycopg.Connection, width: int
) -> None:
    job = attack(sql, LONG)
    visit.log_in(site.url, TOKEN)
    for fragment in ("#/", "#/failed", "#/jobs", f"#/jobs/{job}"):
        visit.goto(fragment)
        expect(visit.page.get_by_text(LONG).first).to_be_visible()
        needed = visit.page.evaluate("document.documentElement.scrollWidth")
        assert needed <= width, fragment


def test_numbers_are_shown_as_they_are(
    visit: Visit, site: Site, sql: psycopg.Connection
) -> None:
    sql.execute("alter sequence pgwake.jobs_id_seq restart with 9007199254740993")
    sql.execute(
        "insert into pgwake.jobs (kind, payload) values ('big', '{\"n\":"
        " [12345678901234567890, 0.1000, 1e400, -0.0, 3]}')"
    )
    visit.log_in(site.url, TOKEN)
    page = visit.page
    visit.goto("#/jobs")
    page.get_by_role("link", name="9007199254740993").click()
    expect(page.get_by_role("heading", name="Job 9007199254740993")).to_be_visible()
    shown = page.get_by_role("region", name="Payload").locator("pre").inner_text()
    (stored,) = sql.execute("select payload->>'n' from pgwake.jobs").fetchone() or ()
    assert "".join(shown.split()) == f'{{"n":{stored.replace(" ", "")}}}'
    assert "12345678901234567890" in shown
    assert "0.1000" in shown


def test_a_large_payload_is_clipped_until_all_is_asked_for(
    visit: Visit, site: Site, sql: psycopg.Connection
) -> None:
    job = insert(sql, payload={"text": "x" * 1_000_000, "end": "the end"})
    visit.log_in(site.url, TOKEN)
    page = visit.page
    visit.goto(f"#/jobs/{job}")
    box = page.get_by_role("region", name="Payload").locator("pre")
    assert len(box.inner_text()) < 30_000
    page.get_by_role("button", name="Show all 1,000,").click()
    assert len(box.inner_text()) > 1_000_000
    expect(box).to_be_focused()


def test_a_payload_nested_deeply_is_shown(
    visit: Visit, site: Site, sql: psycopg.Connection
) -> None:
    nested = "[" * 1500 + "]" * 1500
    sql.execute(
        "insert into pgwake.jobs (kind, payload)"
        " values ('deep', ('{\"n\":' || %s || '}')::jsonb)",
        [nested],
    )
    visit.log_in(site.url, TOKEN)
    visit.goto("#/jobs/1")
    shown = visit.page.get_by_role("region", name="Payload").locator("pre")
    expect(shown).to_contain_text("[")
