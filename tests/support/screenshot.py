"""The picture of the status page: python -m tests.support.screenshot takes it anew.

Starts a PostgreSQL and a worker with made-up jobs, keeps both busy for a while, so that
the page has something to show, and writes deploy/status-page.png.
"""

import asyncio
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from urllib.request import urlopen

import psycopg
from playwright.sync_api import expect, sync_playwright

from pgwake.database.embedded import EmbeddedServer, free_port
from pgwake.database.install import install

CHECKOUT = Path(__file__).resolve().parents[2]
PICTURE = CHECKOUT / "deploy" / "status-page.png"
TOKEN = "a-token-of-the-picture"  # noqa: S105, for a server that lives as long
SECONDS = 100  # ten samples of the history
HANDLERS = """\
import asyncio
import random

from pgwake import Job, job


@job("send_email", queue="email")
async def send_email(to: str) -> str:
    await asyncio.sleep(random.uniform(0.05, 0.4))
    if to.startswith("9"):
        raise ConnectionError("the mail server does not answer")
    return f"sent to {to}"


@job("resize", queue="images", max_attempts=1)
async def resize(number: int, job: Job) -> None:
    await asyncio.sleep(random.uniform(0.5, 2))
    if number % 40 == 7:
        raise ValueError(f"image {number} is no picture")


@job("report", queue="reports")
async def report(job: Job) -> None:
    for done in range(300):
        job.report_progress({"done": done, "of": 300})
        await asyncio.sleep(1)
"""
BEGIN = """
insert into pgwake.jobs (queue, kind)
select 'reports', 'report' from generate_series(1, 3);
insert into pgwake.jobs (queue, kind, run_at)
select 'reports', 'report', now() + interval '1 hour' from generate_series(1, 12);
insert into pgwake.queues (name) values ('newsletter');
insert into pgwake.jobs (queue, kind)
select 'newsletter', 'send' from generate_series(1, 40);
select pgwake.pause_queue('newsletter');
"""
# What comes in each second.
SECOND = """
insert into pgwake.jobs (queue, kind, payload)
select 'email', 'send_email',
  jsonb_build_object('to', (1000 * random())::int || '@example.org')
from generate_series(1, (8 + 10 * random())::int);
insert into pgwake.jobs (queue, kind, payload)
select 'images', 'resize', jsonb_build_object('number', (1000 * random())::int)
from generate_series(1, (2 + 3 * random())::int);
"""


def serve(url: str, folder: Path, port: int) -> "subprocess.Popen[bytes]":
    """Start a worker that serves the page; wait until it is ready."""
    (folder / "picture.py").write_text(HANDLERS)
    words = [sys.executable, "-m", "pgwake", "run", "--import", "picture"]
    words += ["--queue", "email:10", "--queue", "images:5", "--queue", "reports:3"]
    worker = subprocess.Popen(
        words,
        cwd=folder,
        stderr=subprocess.DEVNULL,
        env={
            **os.environ,
            "PGWAKE_DATABASE_URL": url,
            "PGWAKE_API_TOKEN": TOKEN,
            "PGWAKE_HTTP_HOST": "127.0.0.1",
            "PGWAKE_HTTP_PORT": str(port),
        },
    )
    while True:
        try:
            with urlopen(f"http://127.0.0.1:{port}/readyz"):
                return worker
        except OSError:
            assert worker.poll() is None, "the worker has ended"
            time.sleep(0.2)


def take(port: int) -> None:
    """Log in as a visitor does, and take the picture."""
    found = subprocess.run(
        [CHECKOUT / "tests" / "unpack", "chromium"],
        check=True,
        capture_output=True,
        text=True,
    )
    program = Path(found.stdout.strip()) / "chromium"
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=program, args=["--no-sandbox", "--disable-gpu"]
        )
        page = browser.new_page(
            viewport={"width": 1280, "height": 640}, color_scheme="light"
        )
        page.goto(f"http://127.0.0.1:{port}/")
        page.get_by_label("Token").fill(TOKEN)
        page.get_by_role("button", name="Log in").click()
        expect(page.get_by_role("table", name="Queues")).to_be_visible()
        expect(page.locator("main[aria-busy]")).to_have_count(0)
        page.screenshot(path=PICTURE)
        browser.close()


def main() -> None:
    """Take the picture."""
    with EmbeddedServer() as server, tempfile.TemporaryDirectory() as folder:
        asyncio.run(install(server.url))
        port = free_port()
        worker = serve(server.url, Path(folder), port)
        try:
            with psycopg.connect(server.url, autocommit=True) as connection:
                connection.execute(BEGIN)
                for _ in range(SECONDS):
                    connection.execute(SECOND)
                    time.sleep(1)
            take(port)
        finally:
            worker.terminate()
            worker.wait()
    size = PICTURE.stat().st_size
    print(f"{PICTURE.relative_to(CHECKOUT)}: {size // 1000} kB")  # noqa: T201


if __name__ == "__main__":
    main()
