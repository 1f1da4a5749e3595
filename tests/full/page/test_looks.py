"""Legible and operable on a phone and on a desk, by day and by night, for everybody."""

import re
from typing import Any

import psycopg
import pytest
from playwright.sync_api import expect

from full.page.browsing import Visit
from full.page.queueing import failed, insert, insert_many, progress, running
from full.page.serving import TOKEN, Site

# Of every text that is shown: its contrast with what is behind it, as WCAG 2.2 counts.
CONTRAST = """() => {
  const canvas = new OffscreenCanvas(1, 1).getContext('2d', {willReadFrequently: true});
  const rgba = (color) => {
    canvas.clearRect(0, 0, 1, 1);
    canvas.fillStyle = color;
    canvas.fillRect(0, 0, 1, 1);
    return [...canvas.getImageData(0, 0, 1, 1).data];
  };
  const behind = (element) => {
    for (let at = element; at; at = at.parentElement) {
      const [r, g, b, alpha] = rgba(getComputedStyle(at).backgroundColor);
      if (alpha > 250) return [r, g, b];
    }
    return [255, 255, 255];
  };
  const luminance = (color) => color.slice(0, 3)
    .map((part) => part / 255)
    .map((part) => part <= 0.04045 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4)
    .reduce((sum, part, n) => sum + part * [0.2126, 0.7152, 0.0722][n], 0);
  const low = [];
  let seen = 0;
  for (const element of document.querySelectorAll('body *')) {
    const has_text = [...element.childNodes]
      .some((node) => node.nodeType === 3 && node.data.trim());
    if (!has_text && !element.matches('input, select')) continue;
    if (!element.checkVisibility()) continue;
    seen += 1;
    const style = getComputedStyle(element);
    const [one, other] = [luminance(rgba(style.color)), luminance(behind(element))];
    const ratio = (Math.max(one, other) + 0.05) / (Math.min(one, other) + 0.05);
    const isLarge = parseFloat(style.fontSize) >= 24;
    if (ratio < (isLarge ? 3 : 4.5)) low.push(`${element.textContent}: ${ratio}`);
  }
  return [seen, low];
}"""
NAMELESS = re.compile(
    r"^\s*- (button|link|textbox|searchbox|combobox|checkbox|table|img|heading"
    r"|dialog|navigation|progressbar)(?! \")",
    re.MULTILINE,
)
VIEWS = (
    "#/",
    "#/queues",
    "#/running",
    "#/failed",
    "#/jobs",
    "#/jobs/1",
    "#/schedules",
    "#/kinds",
    "#/enqueue?kind=send",
    "#/schedule?kind=send",
    "#/workers",
)


@pytest.fixture
def full(sql: psycopg.Connection) -> None:
    """Something in every view."""
    failed(sql, "send", "could not connect to mail.example.org, port 25")
    running(sql, "import", queue="imports")
    progress(sql, 3, 4)
    insert_many(sql, 12, "draw", queue="images")
    insert(sql, "later", run_at="2100-01-01")
    sql.execute(
        "select pgwake.report_worker('host:1:abc', 'host', 1, array['default'],"
        " array['send'], '0.1')"
    )
    sql.execute("select pgwake.pause_queue('images')")
    sql.execute("select pgwake.schedule('nightly', '@daily', 'send')")


def check(visit: Visit, width: int) -> None:
    page = visit.page
    seen, low = page.evaluate(CONTRAST)
    assert seen > 5
    assert low == []
    needed: Any = page.evaluate("document.documentElement.scrollWidth")
    assert needed <= width, f"{page.url} is {needed} px wide"
    snapshot = page.locator("body").aria_snapshot()
    assert NAMELESS.findall(snapshot) == [], snapshot
    assert page.locator("h1").count() == 1


@pytest.mark.parametrize("width", [360, 1280])
@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.usefixtures("full", "scheme")
def test_every_view_is_legible_named_and_no_wider_than_the_screen(
    visit: Visit, site: Site, width: int
) -> None:
    visit.open(site.url)
    check(visit, width)
    visit.log_in(site.url, TOKEN)
    for view in VIEWS:
        visit.goto(view)
        expect(visit.page.locator("main")).not_to_be_empty()
        check(visit, width)
    visit.goto("#/")
    visit.page.get_by_role("button", name="Pause default").click()
    expect(visit.page.get_by_role("dialog")).to_be_visible()
    check(visit, width)


@pytest.mark.usefixtures("full")
def test_tables_are_tables_with_captions_and_headers(visit: Visit, site: Site) -> None:
    visit.log_in(site.url, TOKEN)
    for view, caption in (
        ("#/", "Queues"),
        ("#/queues", "Queues"),
        ("#/running", "Running jobs"),
        ("#/failed", "Failed jobs, by reason"),
        ("#/jobs", "Jobs, newest first"),
        ("#/workers", "Workers"),
    ):
        visit.goto(view)
        table = visit.page.get_by_role("table", name=caption)
        assert table.locator("thead th[scope=col]").count() > 5
        rows = table.locator("tbody tr").count()
        assert rows > 0
        assert table.locator("tbody th[scope=row]").count() == rows


@pytest.mark.parametrize("width", [360])
@pytest.mark.usefixtures("full")
def test_on_a_phone_a_row_is_a_card_and_a_row_still(
    visit: Visit, site: Site, width: int
) -> None:
    visit.log_in(site.url, TOKEN)
    page = visit.page
    row = page.get_by_role("row").filter(has_text="images")
    expect(row.get_by_role("button", name="Resume images")).to_be_visible()
    box = row.bounding_box()
    assert box is not None
    assert box["height"] > 100
    assert box["width"] <= width
    expect(row.get_by_role("rowheader", name="images")).to_be_visible()
