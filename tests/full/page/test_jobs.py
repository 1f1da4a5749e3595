"""The list of jobs, and one job."""

import psycopg
from playwright.sync_api import expect

from full.page.browsing import Visit
from full.page.queueing import completed, failed, insert, insert_many, running, status
from full.page.serving import TOKEN, Site


def test_filters_stand_in_the_address_so_that_back_undoes_them(
    visit: Visit, site: Site, sql: psycopg.Connection
) -> None:
    insert_many(sql, 3, "send", queue="email")
    insert_many(sql, 2, "draw", queue="images")
    failed(sql, "draw", queue="broken")
    visit.log_in(site.url, TOKEN)
    page = visit.page
    visit.goto("#/jobs")
    rows = page.locator("tbody tr")
    expect(rows).to_have_count(6)

    page.get_by_label("Kind").fill("draw")
    page.keyboard.press("Enter")
    expect(rows).to_have_count(3)
    expect(page.get_by_label("Kind")).to_be_focused()
    page.get_by_label("Status").select_option("pending")
    expect(rows).to_have_count(2)
    assert page.url.endswith("#/jobs?status=pending&kind=draw")
    page.go_back()
    expect(rows).to_have_count(3)
    expect(page.get_by_label("Status")).to_have_value("")
    page.get_by_role("link", name="Clear").click()
    expect(rows).to_have_count(6)
    page.get_by_label("Queue").fill("email")
    page.get_by_role("button", name="Filter").click()
    expect(rows).to_have_count(3)
    later = insert(sql, "send", run_at="2100-01-01")
    again = insert(sql, "send", queue="email", priority=9)
    sql.execute(
        "select pgwake.fail_job(id, lease_id, 'busy', retry_in => '1 hour')"
        " from pgwake.claim_next_job('email', 'w')"
    )
    for status_, job in (("scheduled", later), ("retrying", again)):
        visit.goto(f"#/jobs?status={status_}")
        expect(rows).to_have_count(1)
        expect(rows.first).to_contain_text(str(job))


def test_a_hundred_thousand_jobs_are_paged_through(
    visit: Visit, site: Site, sql: psycopg.Connection
) -> None:
    insert_many(sql, 100_000)
    visit.log_in(site.url, TOKEN)
    page = visit.page
    pending = page.get_by_role("row").filter(has_text="default").get_by_role("cell")
    expect(pending.first).to_have_text("100,000")
    visit.goto("#/jobs")
    first = page.locator("tbody th").first
    expect(first).to_have_text("100000")
    page.get_by_role("link", name="Older").click()
    expect(first).to_have_text("99950")
    page.get_by_role("link", name="Older").click()
    expect(first).to_have_text("99900")
    page.go_back()
    expect(first).to_have_text("99950")
    page.get_by_role("link", name="Newest").click()
    expect(first).to_have_text("100000")


def test_a_job_is_found_by_its_id(
    visit: Visit, site: Site, sql: psycopg.Connection
) -> None:
    visit.expected = "404"
    insert(sql)
    visit.log_in(site.url, TOKEN)
    page = visit.page
    visit.goto("#/jobs")
    page.get_by_label("Job id").fill("1")
    page.get_by_role("button", name="Go").click()
    expect(page.get_by_role("heading", name="Job 1")).to_be_focused()
    expect(page.get_by_text("hello in default")).to_be_visible()
    visit.goto("#/jobs/99999999999999")
    expect(page.get_by_text("There is no such job.")).to_be_visible()
    visit.goto("#/nowhere")
    expect(page.get_by_text("There is nothing at this address.")).to_be_visible()


def test_a_failed_job_shows_its_attempts_and_is_retried(
    visit: Visit, site: Site, sql: psycopg.Connection
) -> None:
    job = failed(sql, "send", "no such user")
    visit.log_in(site.url, TOKEN)
    page = visit.page
    visit.goto(f"#/jobs/{job}")
    attempts = page.get_by_role("region", name="Failed attempts")
    expect(attempts.get_by_text("no such user")).to_be_visible()
    expect(attempts.get_by_text("ValueError: boom")).to_be_visible()
    why = page.get_by_role("region", name="Why")
    expect(why).to_contain_text("It failed for good")
    expect(why).not_to_contain_text("select pgwake")  # the button does it
    expect(page.get_by_role("region").first).to_contain_text("no such user")
    details = page.get_by_role("region", name="Details")
    expect(details).to_contain_text("Ran for")
    expect(details.get_by_text("Backoff base")).to_be_hidden()

    page.get_by_role("button", name="Retry job").click()
    page.get_by_role("dialog").get_by_role("button", name="Retry job").click()
    expect(page.get_by_role("log")).to_contain_text(f"Job {job} is pending again.")
    expect(page.get_by_role("button", name="Retry job")).to_have_count(0)
    expect(why).to_contain_text("is pending")
    assert status(sql, job) == "pending"


def test_a_pending_job_is_cancelled_and_a_running_one_is_asked_to_stop(
    visit: Visit, site: Site, sql: psycopg.Connection
) -> None:
    working = running(sql)
    idle = insert(sql)
    visit.log_in(site.url, TOKEN)
    page = visit.page
    for job, said in (
        (idle, f"Cancelled job {idle}."),
        (working, f"Asked the worker of job {working} to stop it."),
    ):
        visit.goto(f"#/jobs/{job}")
        page.get_by_role("button", name="Cancel job").click()
        page.get_by_role("dialog").get_by_role("button", name="Cancel job").click()
        expect(page.get_by_role("log")).to_contain_text(said)
    assert status(sql, idle) == "cancelled"
    assert status(sql, working) == "running"


def test_a_job_that_is_not_due_is_run_now(
    visit: Visit, site: Site, sql: psycopg.Connection
) -> None:
    job = insert(sql, run_at="2199-01-01Z")
    visit.log_in(site.url, TOKEN)
    page = visit.page
    visit.goto(f"#/jobs/{job}")
    page.get_by_role("button", name="Run now").click()
    page.get_by_role("dialog").get_by_role("button", name="Run now").click()
    expect(page.get_by_role("log")).to_contain_text(f"Job {job} is due now.")
    expect(page.get_by_role("button", name="Run now")).to_have_count(0)
    due = "select run_at <= now() from pgwake.jobs where id = %s"
    assert sql.execute(due, [job]).fetchone() == (True,)


def test_what_the_server_refuses_is_said_with_what_to_do(
    visit: Visit, site: Site, sql: psycopg.Connection
) -> None:
    visit.expected = "409|422"
    job = failed(sql, "send", unique_key="once")
    visit.log_in(site.url, TOKEN)
    page = visit.page
    visit.goto(f"#/jobs/{job}")
    insert(sql, "send", unique_key="once")
    page.get_by_role("button", name="Retry job").click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_role("button", name="Retry job").click()
    refusal = dialog.get_by_role("alert")
    expect(refusal).to_contain_text("has the unique key")
    expect(refusal).to_contain_text("That job does the work now")
    page.keyboard.press("Escape")
    expect(dialog).to_have_count(0)
    # A filter that no job can have is refused, and said so.
    visit.goto(f"#/jobs?kind={'k' * 200}")
    expect(page.get_by_role("alert")).to_contain_text("128")


def test_what_a_job_carries_is_shown(
    visit: Visit, site: Site, sql: psycopg.Connection
) -> None:
    done = completed(sql, "done", {"rows": 12})
    parent = insert(sql)
    child = "select pgwake.enqueue('child', depends_on => array[%s]::bigint[])"
    sql.execute(child, [parent])
    visit.log_in(site.url, TOKEN)
    page = visit.page
    visit.goto(f"#/jobs/{parent + 1}")
    expect(page.get_by_role("region", name="Why")).to_contain_text("is waiting")
    page.get_by_role("region", name="Details").get_by_role(
        "link", name=str(parent), exact=True
    ).click()
    expect(page.get_by_role("heading", name=f"Job {parent}")).to_be_visible()
    visit.goto(f"#/jobs/{done}")
    result = page.get_by_role("region", name="Result").locator("pre")
    expect(result).to_have_text('{\n  "rows": 12\n}')
    when = page.get_by_role("region", name="Details").locator("time").first
    assert "UTC" in str(when.get_attribute("title")) or "GMT" in str(
        when.get_attribute("title")
    )
