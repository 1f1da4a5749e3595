"""An operator's tasks: limits and pauses, all jobs of a filter, a new job by a form."""

import re

import psycopg
import pytest
from playwright.sync_api import Page, expect
from psycopg.types.json import Jsonb

from full.page.browsing import Visit
from full.page.queueing import failed, insert, insert_many, progress, running, status
from full.page.serving import TOKEN, Site
from full.page.test_keyboard import tab_to


def test_a_queue_shows_its_limits_and_a_retry_says_that_it_is_paused(
    visit: Visit, site: Site, sql: psycopg.Connection
) -> None:
    sql.execute(
        "insert into pgwake.queues (name, max_running, rate_limit, timeout)"
        " values ('email', 1, 20, '1 minute')"
    )
    sql.execute("insert into pgwake.concurrency_limits values ('email', 'acme', 3)")
    letter = failed(sql, "send", queue="email")
    running(sql, "send", queue="email")
    visit.log_in(site.url, TOKEN)
    page = visit.page
    page.get_by_role("link", name="Queues").click()
    row = page.get_by_role("row").filter(has_text="email")
    for text in ("1 of 1", '20/s, key "acme" 3', "timeout 00:01:00"):
        expect(row).to_contain_text(text)
    expect(row.get_by_role("link", name="1", exact=True)).to_have_attribute(
        "href", "#/failed?queue=email"
    )
    page.get_by_role("button", name="Pause email").click()
    page.get_by_role("dialog").get_by_role("button", name="Pause").click()
    expect(row.get_by_text("paused")).to_be_visible()

    visit.goto("#/failed")
    expect(page.get_by_text("queue paused")).to_be_visible()
    page.get_by_role("button", name="Retry 1 job of kind send").click()
    expect(page.get_by_role("dialog")).to_contain_text("The queue is paused")
    page.keyboard.press("Escape")
    visit.goto(f"#/jobs/{letter}")
    expect(page.get_by_text("its queue is paused")).to_be_visible()


def confirm(page: Page, title: str, action: str) -> None:
    """Press the button of a question, by keyboard."""
    expect(page.get_by_role("dialog", name=title)).to_be_visible()
    tab_to(page, action)
    page.keyboard.press("Enter")


@pytest.mark.parametrize("width", [360])
def test_all_jobs_of_a_filter_are_changed_by_keyboard_alone(
    visit: Visit, site: Site, sql: psycopg.Connection, width: int
) -> None:
    insert_many(sql, 3, "send", queue="email")
    held = running(sql, "send", queue="email", priority=9)
    other = insert(sql, "send")
    visit.log_in(site.url, TOKEN)
    page = visit.page
    visit.goto("#/jobs")
    every = page.get_by_role("button", name="all…")
    expect(every).to_have_count(0)  # of no filter
    visit.goto("#/jobs?queue=email&kind=send")
    tab_to(page, "Update all…")
    page.keyboard.press("Enter")
    expect(page.get_by_label("Priority, -100 to 100")).to_be_focused()
    page.keyboard.type("5")
    page.keyboard.press("Tab")
    page.keyboard.press("Tab")
    page.keyboard.type("urgent")
    page.keyboard.press("Enter")
    dialog = page.get_by_role("dialog", name="Update 3 jobs?")
    expect(dialog).to_contain_text("priority 5, queue urgent")
    expect(dialog).to_contain_text("3 updated, 1 running")
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    moved = "select count(*) from pgwake.jobs where queue = 'urgent' and priority = 5"
    assert sql.execute(moved).fetchone() == (0,)
    confirm(page, "Update 3 jobs?", "Update 3 jobs")
    expect(page.get_by_role("log")).to_contain_text("Done: 3 updated")
    assert sql.execute(moved).fetchone() == (3,)

    for queue, jobs, said in (
        ("urgent", "3 jobs", "Cancelled 3 jobs"),
        ("email", "1 job", "asked 1 running job to stop"),
    ):
        visit.goto(f"#/jobs?queue={queue}")
        tab_to(page, "Cancel all…")
        page.keyboard.press("Enter")
        confirm(page, f"Cancel {jobs}?", f"Cancel {jobs}")
        expect(page.get_by_role("log")).to_contain_text(said)
    assert [status(sql, job) for job in (held, other)] == ["running", "pending"]
    visit.goto("#/jobs?status=completed")
    expect(every).to_have_count(0)


@pytest.mark.parametrize("width", [360])
def test_limits_are_changed_and_a_queue_is_drained_by_keyboard_alone(
    visit: Visit, site: Site, sql: psycopg.Connection, width: int
) -> None:
    held = running(sql, "send", queue="email")
    sql.execute("insert into pgwake.queues (name, key_limit) values ('email', 2)")
    visit.expected = "422"
    visit.log_in(site.url, TOKEN)
    page = visit.page
    visit.goto("#/queues")
    row = page.get_by_role("row").filter(has_text="email")
    expect(row).to_contain_text("2 a key")
    tab_to(page, "Limits email")
    page.keyboard.press("Enter")
    dialog = page.get_by_role("dialog", name="Limits of email")
    expect(page.get_by_label("Jobs at once", exact=True)).to_be_focused()
    expect(page.get_by_label("Jobs of a concurrency key")).to_have_value("2")
    page.keyboard.type("3")
    page.keyboard.press("Tab")
    page.keyboard.press("Tab")
    page.keyboard.type("4")  # of a burst without a rate
    page.keyboard.press("Enter")
    expect(dialog.get_by_role("alert")).to_contain_text("rate burst needs rate limit")
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    page.keyboard.press("Shift+Tab")
    page.keyboard.type("0.5")
    page.keyboard.press("Enter")
    expect(row).to_contain_text("0.5/s, burst 4, 2 a key")
    expect(row).to_contain_text("1 of 3")
    expect(page.get_by_role("button", name="Limits email")).to_be_focused()

    page.keyboard.press("Tab")
    page.keyboard.press("Enter")
    page.keyboard.type("acme")
    page.keyboard.press("Tab")
    page.keyboard.type("0")
    page.keyboard.press("Enter")
    expect(row).to_contain_text('key "acme" 0')
    tab_to(page, "Pause email")
    page.keyboard.press("Enter")
    confirm(page, "Pause email?", "Pause")
    expect(row).to_contain_text("paused, 1 running")
    sql.execute("select pgwake.complete_job(id, lease_id) from pgwake.jobs_live")
    expect(row).to_contain_text("paused, none running")
    assert status(sql, held) == "completed"


def test_payloads_are_patched_an_event_is_emitted_and_a_step_done_again(
    visit: Visit, site: Site, sql: psycopg.Connection
) -> None:
    waits = insert(sql, "send", queue="email", payload={"to": "x", "old": 1})
    failed(sql, "draw")
    held = running(sql, "order", queue="orders")
    for step in ("charge", "pack"):
        record = "select pgwake.record_step(id, lease_id, %s) from pgwake.jobs_live"
        sql.execute(f"{record} where id = %s", [step, held])
    wait = "select pgwake.await_event(id, lease_id, 'paid') from pgwake.jobs_live"
    sql.execute(f"{wait} where id = %s", [held])
    visit.log_in(site.url, TOKEN)
    page = visit.page
    log, dialog = page.get_by_role("log"), page.get_by_role("dialog")
    patch = page.get_by_label("Merge into each payload")

    visit.goto("#/jobs?kind=send")
    page.get_by_role("button", name="Update all").click()
    patch.fill('{"to": ')
    dialog.get_by_role("button", name="Try").click()
    expect(dialog.get_by_role("alert")).to_contain_text("The payload is not JSON")
    patch.fill('{"to": "y", "n": 0.10, "old": null}')
    dialog.get_by_role("button", name="Try").click()
    expect(dialog).to_contain_text("1 updated")
    dialog.get_by_role("button", name="Update 1 job").click()
    expect(log).to_contain_text("Done: 1 updated")
    visit.goto("#/failed")
    page.get_by_role("button", name="Retry 1 job of kind draw").click()
    patch.fill('{"n": 0.10}')
    dialog.get_by_role("button", name="Retry 1 job").click()
    expect(log).to_contain_text("Retried 1 job.")
    payloads = "select payload::text from pgwake.jobs where id <> %s order by id"
    found = [text for (text,) in sql.execute(payloads, [held])]
    assert found == ['{"n": 0.10, "to": "y"}', '{"n": 0.10}']
    visit.goto(f"#/jobs/{waits}")
    page.get_by_role("button", name="Update job").click()
    page.get_by_label("Priority").fill("9")
    dialog.get_by_role("button", name="Update").click()
    expect(page.get_by_text("Priority9")).to_be_visible()

    visit.goto(f"#/jobs/{held}")
    page.get_by_role("button", name="Cancel job").click()
    dialog.get_by_role("button", name="Cancel job").click()
    page.get_by_role("button", name="Retry job").click()
    page.get_by_label("Where it goes on").select_option("from pack on")
    dialog.get_by_role("button", name="Retry job").click()
    expect(page.get_by_text("step charge")).to_be_visible()
    expect(page.get_by_text("step pack")).to_have_count(0)
    sql.execute("select pgwake.claim_next_job('orders', 'w1')")
    sql.execute(f"{wait} where id = %s", [held])
    page.get_by_role("button", name="Emit event").click()
    page.get_by_label("Payload, any JSON").fill('{"by": "Ann"}')
    dialog.get_by_role("button", name="Emit event").click()
    expect(log).to_contain_text("Emitted paid.")
    event = sql.execute("select name, payload from pgwake.events").fetchone()
    assert event == ("paid", {"by": "Ann"})


def test_one_question_changes_more_jobs_than_one_request(
    visit: Visit, site: Site, sql: psycopg.Connection
) -> None:
    running(sql, "send", queue="email")
    insert_many(sql, 10_001, "send", queue="email")
    visit.log_in(site.url, TOKEN)
    page = visit.page
    dialog = page.get_by_role("dialog")
    visit.goto("#/jobs?kind=send")
    page.get_by_role("button", name="Update all").click()
    page.get_by_label("Move to queue").fill("slow")
    dialog.get_by_role("button", name="Try").click()
    dialog.get_by_role("button", name="Update 9,999 jobs or more").click()
    said = "Done: 10,001 updated, 1 running"
    expect(page.get_by_role("log")).to_contain_text(said)
    page.get_by_role("button", name="Cancel all").click()
    dialog.get_by_role("button", name="Cancel 10,000 jobs or more").click()
    expect(page.get_by_role("log")).to_contain_text("Cancelled 10,001 jobs")


SCHEMA = {
    "$defs": {"Size": {"enum": ["small", "large"], "type": "string"}},
    "type": "object",
    "properties": {
        "to": {"type": "string"},
        "account": {"type": "integer"},
        "size": {"$ref": "#/$defs/Size"},
        "urgent": {"type": "boolean", "default": False},
        "note": {"anyOf": [{"type": "string"}, {"type": "null"}], "default": None},
        "parts": {"type": "array"},
    },
    "required": ["to", "account", "size", "parts"],
    "additionalProperties": False,
}


def test_a_job_is_enqueued_by_a_form_made_of_its_kind_s_schema(
    visit: Visit, site: Site, sql: psycopg.Connection
) -> None:
    sql.execute(
        "insert into pgwake.kinds (name, declared_schema) values ('send', %s),"
        " ('free', null)",
        [Jsonb(SCHEMA)],
    )
    insert(sql, "send", queue="email")
    visit.log_in(site.url, TOKEN)
    page = visit.page
    page.get_by_role("link", name="Kinds").click()
    row = page.get_by_role("row").filter(has_text="send")
    row.get_by_role("link", name="Enqueue").click()
    expect(page.get_by_label("Queue", exact=True)).to_have_value("email")
    page.get_by_label("to", exact=True).fill("a@example.org")
    page.get_by_label("account").fill("nine")
    page.get_by_label("size").select_option("large")
    page.get_by_label("parts").fill('["a", 0.10]')
    page.get_by_label("Priority").fill("7")
    page.get_by_role("button", name="Enqueue").click()
    notice = page.get_by_role("alert")
    expect(notice).to_contain_text("account is not JSON: nine")
    notice.get_by_role("button", name="Dismiss").click()
    expect(notice).to_have_count(0)
    page.get_by_label("account").fill("9007199254740993")
    page.get_by_role("button", name="Enqueue").click()
    expect(page.get_by_role("heading", name="Job 2")).to_be_visible()
    found = "select payload::text, priority, queue from pgwake.jobs where id = 2"
    payload = (
        '{"to": "a@example.org", "size": "large", "parts": ["a", 0.10],'
        ' "account": 9007199254740993}'
    )
    assert sql.execute(found).fetchone() == (payload, 7, "email")
    # Without a schema the payload is JSON.
    visit.goto("#/jobs")
    page.get_by_role("link", name="Enqueue a job").click()
    page.get_by_role("combobox", name="Kind").select_option("free")
    page.get_by_label("A JSON object").fill('{"n": 1}')
    page.get_by_role("button", name="Enqueue").click()
    expect(page.get_by_role("heading", name="Job 3")).to_be_visible()


def test_a_job_s_timeline_its_progress_and_the_curves_are_read(
    visit: Visit, site: Site, sql: psycopg.Connection
) -> None:
    job = running(sql, "import")
    sql.execute(
        "select pgwake.fail_job(id, lease_id, 'busy', reason => 'exception',"
        " retry_in => '0') from pgwake.jobs_live"
    )
    sql.execute("select pgwake.claim_next_job('default', 'w2')")
    sql.execute(
        "select pgwake.record_step(id, lease_id, 'charge', '{\"paid\": 20}')"
        " from pgwake.jobs_live"
    )
    progress(sql, 3, 4)
    insert(sql, run_at="2100-01-01")
    visit.log_in(site.url, TOKEN)
    page = visit.page
    chart = page.get_by_role("img", name="Jobs not yet due")
    box = chart.bounding_box()
    assert box is not None
    page.mouse.move(box["x"] + box["width"] - 1, box["y"] + 10)
    value = page.locator("figure").filter(has_text="not yet due").locator(".note")
    expect(value).to_have_attribute("data-time", re.compile(":"))
    visit.goto(f"#/jobs/{job}")
    moments = page.get_by_role("region", name="Timeline").get_by_role("listitem")
    for moment, words in zip(
        moments.all(),
        ("created", "attempt 1 failed: exception", "attempt 2 started", "step charge"),
        strict=True,
    ):
        expect(moment).to_contain_text(words)
    expect(page.get_by_role("progressbar")).to_have_attribute("value", "3")
    expect(page.get_by_role("region", name="Progress")).to_have_count(0)
    expect(page.get_by_text("Policy: attempt 2")).to_be_hidden()
    heading = page.get_by_role("heading", name=f"Job {job}")
    expect(heading).to_be_focused()
    assert heading.evaluate("(it) => getComputedStyle(it).outlineStyle") == "none"
    result = moments.last.get_by_text('"paid"')
    expect(result).to_be_hidden()
    moments.last.get_by_text("Result").click()
    expect(result).to_be_visible()
