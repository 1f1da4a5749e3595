"""Jobs that are posted to a URL: each answer, and what becomes of the job."""

import asyncio
import base64
import hashlib
import hmac
import json
import time
from collections.abc import AsyncIterator, Iterator
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from pathlib import Path
from typing import Any

import pytest
from starlette.requests import Request
from starlette.responses import Response

from pgwake import Discard, Retry, Settings, Snooze, __version__
from pgwake.address import AddressRule
from pgwake.kinds.http import HttpClient
from support import Connection, free_port
from support.sql.helpers import call, insert
from support.worker import certificate
from support.worker.helpers import ended, in_status, reasons
from support.worker.processes import StartProcess
from support.worker.receiver import Receiver

SECRETS = [base64.b64encode(bytes([n]) * 32).decode() for n in (1, 2)]
ANYWHERE = AddressRule(allows_private=True)


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    with Receiver().serve() as receiver:
        yield receiver


@pytest.fixture
async def client() -> AsyncIterator[HttpClient]:
    async with HttpClient(Settings.load(), ANYWHERE) as client:
        yield client


async def post(url: str, rule: AddressRule = ANYWHERE, **settings: Any) -> Any:
    """Post with a client of its own."""
    async with HttpClient(Settings.load(**settings), rule) as client:
        return await client.post(url, "7", b"{}")


async def test_any_success_completes(receiver: Receiver, client: HttpClient) -> None:
    for status in (200, 201, 202, 204, 299):
        assert await client.post(receiver.answer("/", status), "7", b"{}") is None


BODIES: list[tuple[bytes | str, str, object]] = [
    ('{"a": [1, null]}', "application/json", {"a": [1, None]}),
    ("42", "application/problem+json; charset=utf-8", 42),
    ("null", "application/json", None),
    (" \n", "application/json", None),
    ("42", "text/plain", "42"),
    ("Grüße\0", "text/plain; charset=utf-8", "Grüße\N{REPLACEMENT CHARACTER}"),
    (b"\xff\xfe", "application/octet-stream", "\N{REPLACEMENT CHARACTER}" * 2),
    # What is no JSON, or none that PostgreSQL takes, is kept as text.
    ("{oops", "application/json", "{oops"),
    ("NaN", "application/json", "NaN"),
    ('"\\u0000"', "application/json", '"\\u0000"'),
    ('"\\ud800"', "application/json", '"\\ud800"'),
    ("[" * 100_000, "application/json", "[" * 100_000),
    ("1" * 10_000, "application/json", "1" * 10_000),
]


async def test_the_body_is_the_result(receiver: Receiver, client: HttpClient) -> None:
    for body, media_type, result in BODIES:
        url = receiver.answer("/", 200, body, media_type)
        assert await client.post(url, "7", b"{}") == result, body[:20]


async def test_a_body_without_end_is_cut_and_its_connection_closed(
    receiver: Receiver, client: HttpClient
) -> None:
    result = await client.post(receiver.flood("/"), "7", b"{}")

    assert set(result) == {"x"}
    assert 2**20 - 10 < len(f'"{result}"') <= 2**20
    await receiver.has_closed("/")


async def test_of_json_that_is_too_large_the_beginning_is_kept_as_text(
    receiver: Receiver, client: HttpClient
) -> None:
    # 600 kB as they are sent, more than a mebibyte as jsonb prints them.
    body = "[" + "1," * 300_000 + "1]"
    url = receiver.answer("/", 200, body, "application/json")
    assert await client.post(url, "7", b"{}") == [1] * 300_001
    body = "[" + "1," * 400_000 + "1]"
    url = receiver.answer("/", 200, body, "application/json")
    assert await client.post(url, "7", b"{}") == body


async def test_what_may_pass_is_tried_again(
    receiver: Receiver, client: HttpClient
) -> None:
    for status in (408, 409, 425, 429, 500, 502, 503, 504, 599):
        url = receiver.answer("/a", status, "busy, sorry")
        with pytest.raises(
            Retry, match=rf"{url}: HTTP {status}: busy, sorry"
        ) as caught:
            await client.post(f"{url}?token=secret", "7", b"{}")
        assert caught.value.delay is None
        assert "secret" not in str(caught.value)


async def test_what_will_not_pass_is_a_dead_letter(
    receiver: Receiver, client: HttpClient
) -> None:
    for status in (400, 401, 403, 404, 405, 410, 413, 422, 451, 499):
        url = receiver.answer("/a", status, "no such user", retry_after="5")
        with pytest.raises(Discard, match=rf"{url}: HTTP {status}: no such user"):
            await client.post(url, "7", b"{}")


@pytest.mark.parametrize("status", [429, 503])
async def test_retry_after_puts_the_job_off(
    receiver: Receiver, client: HttpClient, status: int
) -> None:
    in_an_hour = format_datetime(datetime.now(UTC) + timedelta(hours=1), usegmt=True)
    for retry_after, least, most in (
        ("90", 90, 90),
        ("0", 1, 1),
        ("99999999999999999999", 86_400, 86_400),
        ("Wed, 21 Oct 2015 07:28:00 GMT", 1, 1),
        ("Sun, 06 Nov 9994 08:49:37 GMT", 86_400, 86_400),
        (in_an_hour, 3300, 3600),
    ):
        url = receiver.answer("/", status, retry_after=retry_after)
        with pytest.raises(Snooze) as caught:
            await client.post(url, "7", b"{}")
        assert least <= caught.value.delay.total_seconds() <= most


async def test_a_retry_after_that_says_nothing_is_none(
    receiver: Receiver, client: HttpClient
) -> None:
    too_late = "Sun, 06 Nov 2020 99999999999:00:00 GMT"
    left = iter(["soon", "-5", "1.5", "", "٣", too_late])

    async def answer(_: Request) -> Response:
        answer = Response(status_code=503)
        answer.raw_headers.append((b"retry-after", next(left).encode()))
        return answer

    url = receiver.answer_by("/", answer)
    for _ in range(6):
        with pytest.raises(Retry):
            await client.post(url, "7", b"{}")


async def test_redirects_are_refused(receiver: Receiver, client: HttpClient) -> None:
    for status in (300, 301, 302, 303, 304, 307, 308):
        url = receiver.answer("/", status, location=receiver.answer("/there"))
        with pytest.raises(Discard, match=f"HTTP {status}: redirects are not followed"):
            await client.post(url, "7", b"{}")
    assert {post.path for post in receiver.posted} == {"/"}


@pytest.mark.parametrize("status", [307, 308])
async def test_redirects_that_keep_the_post_are_followed_where_they_are_allowed(
    receiver: Receiver, status: int
) -> None:
    receiver.answer("/there", 200, "here")
    url = receiver.answer("/", status, location="/there")

    assert await post(url, http_redirects=True) == "here"
    assert [(p.path, p.body) for p in receiver.posted] == [
        ("/", b"{}"),
        ("/there", b"{}"),
    ]


async def test_redirects_that_would_become_a_get_are_never_followed(
    receiver: Receiver,
) -> None:
    for status in (301, 302, 303):
        url = receiver.answer("/", status, location="/there")
        with pytest.raises(Discard, match="not followed"):
            await post(url, http_redirects=True)


async def test_a_redirect_to_where_nothing_can_be_posted_is_refused(
    receiver: Receiver,
) -> None:
    for location in ("", "ftp://127.0.0.1/", "mailto:a@b", "http://a:0/"):
        url = receiver.answer("/", 307, location=location)
        with pytest.raises(Discard, match="nothing can be posted"):
            await post(url, http_redirects=True)


async def test_redirects_in_a_circle_are_left(receiver: Receiver) -> None:
    with pytest.raises(Discard, match="more than 5 redirects"):
        await post(receiver.answer("/", 308, location="/"), http_redirects=True)


async def test_a_redirect_goes_where_the_rule_allows_only() -> None:
    inside = Receiver("localhost")
    with Receiver().serve() as outside, inside.serve():
        url = outside.answer("/", 307, location=inside.url)
        with pytest.raises(Discard, match="localhost has no public address"):
            await post(url, AddressRule.parse([], ["127.0.0.1"]), http_redirects=True)
    assert inside.posted == []


async def test_an_endpoint_that_does_not_answer_in_time_is_given_up(
    receiver: Receiver,
) -> None:
    url = receiver.hang("/")
    with pytest.raises(Retry, match=r"no answer within 0\.2 s"):
        await post(url, http_timeout=0.2)
    await receiver.has_closed("/")


async def test_a_cancelled_post_closes_its_connection(
    receiver: Receiver, client: HttpClient
) -> None:
    task = asyncio.create_task(client.post(receiver.hang("/"), "7", b"{}"))
    await receiver.has_posts()
    task.cancel()

    with pytest.raises(asyncio.CancelledError):
        await task
    await receiver.has_closed("/")


async def test_an_endpoint_that_is_not_there_is_tried_again(client: HttpClient) -> None:
    with pytest.raises(Retry, match="ConnectError"):
        await client.post(f"http://127.0.0.1:{free_port()}/", "7", b"{}")
    with pytest.raises(Retry, match=r"no-such-host\.invalid"):
        await client.post("http://no-such-host.invalid/", "7", b"{}")


async def test_a_certificate_that_nobody_vouches_for_is_refused(tmp_path: Path) -> None:
    receiver = Receiver("localhost")
    with (
        receiver.serve(certificate=certificate.write(tmp_path / "pem")),
        pytest.raises(Retry, match="CERTIFICATE_VERIFY_FAILED"),
    ):
        await post(f"https://localhost:{receiver.port}/")
    assert receiver.posted == []


async def test_a_certificate_is_checked_for_the_name_not_for_the_address(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pem = certificate.write(tmp_path / "pem")
    monkeypatch.setenv("SSL_CERT_FILE", str(pem))
    receiver = Receiver("localhost")
    with receiver.serve(certificate=pem):
        await post(f"https://localhost:{receiver.port}/")
        with pytest.raises(Retry, match="CERTIFICATE_VERIFY_FAILED"):
            await post(f"https://127.0.0.1:{receiver.port}/")
    assert len(receiver.posted) == 1


async def test_a_redirect_from_https_to_http_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, receiver: Receiver
) -> None:
    pem = certificate.write(tmp_path / "pem")
    monkeypatch.setenv("SSL_CERT_FILE", str(pem))
    secure = Receiver("localhost")
    secure.answer("/", 307, location=receiver.url)
    with (
        secure.serve(certificate=pem),
        pytest.raises(Discard, match="nothing can be posted"),
    ):
        await post(f"https://localhost:{secure.port}/", http_redirects=True)
    assert receiver.posted == []


async def test_an_endpoint_that_speaks_no_http_is_tried_again(
    client: HttpClient,
) -> None:
    async def speak(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"{}")
        writer.write(b"220 mail.example ESMTP\r\n")
        writer.close()

    async with await asyncio.start_server(speak, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        with pytest.raises(Retry, match="ProtocolError"):
            await client.post(f"http://127.0.0.1:{port}/", "7", b"{}")


async def test_a_url_that_cannot_be_meant_is_a_dead_letter(client: HttpClient) -> None:
    for url in (
        *("", "nonsense", "ftp://a.example/", "file:///etc/passwd", "http://"),
        "http://a.example:99999/",
        "http://a.example/\r\nX-Injected: yes",
        "http://a.example\r\n/",
        "http://\u2100.example/",
    ):
        with pytest.raises(Discard):
            await client.post(url, "7", b"{}")


async def test_a_connection_is_used_again(
    receiver: Receiver, client: HttpClient
) -> None:
    ports = set()

    async def answer(request: Request) -> Response:
        assert request.client is not None
        ports.add(request.client.port)
        return Response()

    url = receiver.answer_by("/", answer)
    for _ in range(3):
        await client.post(url, "7", b"{}")
    assert len(ports) == 1


async def test_a_user_in_the_url_is_sent_as_basic_auth_and_never_shown(
    receiver: Receiver, client: HttpClient
) -> None:
    receiver.answer("/", 404)
    with pytest.raises(Discard) as caught:
        await client.post(f"http://me:p%40ss@127.0.0.1:{receiver.port}/", "7", b"{}")

    login = base64.b64encode(b"me:p@ss").decode()
    assert receiver.posted[0].headers["authorization"] == f"Basic {login}"
    assert receiver.posted[0].headers["host"] == f"127.0.0.1:{receiver.port}"
    assert "ss" not in str(caught.value).split("HTTP")[0].replace("http", "")


async def test_what_is_posted_is_signed_by_each_secret(receiver: Receiver) -> None:
    await post(receiver.url, signing_secret=f"whsec_{SECRETS[0]}, {SECRETS[1]}")

    headers = receiver.posted[0].headers
    signed = f"7.{headers['webhook-timestamp']}.{{}}".encode()
    expected = [
        "v1,"
        + base64.b64encode(
            hmac.new(base64.b64decode(secret), signed, hashlib.sha256).digest()
        ).decode()
        for secret in SECRETS
    ]
    assert headers["webhook-signature"].split(" ") == expected
    assert headers["webhook-id"] == "7"
    assert abs(int(headers["webhook-timestamp"]) - time.time()) < 60


async def test_a_known_signature_is_made() -> None:
    """The example of the specification's own libraries."""
    from pgwake.signing import parse_secrets, sign  # noqa: PLC0415

    headers = sign(
        parse_secrets("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"),
        "msg_p5jXN8AQM9LWM0D4loKWxJek",
        1614265330,
        b'{"test": 2432232314}',
    )
    assert (
        headers["webhook-signature"]
        == "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="
    )


async def test_without_a_secret_nothing_is_signed(receiver: Receiver) -> None:
    await post(receiver.url)
    assert "webhook-signature" not in receiver.posted[0].headers


async def test_a_worker_without_python_posts_jobs_as_they_are(
    start_worker: StartProcess, connection: Connection, receiver: Receiver
) -> None:
    url = receiver.answer("/mail", 200, '{"sent": 2}', "application/json")
    await start_worker("--http", f"mail={url}", imports="")
    hostile = {
        "to": "a'; drop table x; --\r\nX-Injected: yes",
        "exact": 12345678901234567890123,
        "self": 1,
        "job": "2",
    }
    job_id = await insert(
        connection, "mail", payload=hostile, metadata={"trace": "\r\n"}, max_attempts=3
    )
    row = await ended(connection, job_id)

    assert (row["status"], row["result"]) == ("completed", {"sent": 2})
    (post,) = receiver.posted
    assert json.loads(post.body) == {
        "id": job_id,
        "kind": "mail",
        "queue": "default",
        "attempt": 1,
        "max_attempts": 3,
        "created_at": row["created_at"].isoformat().replace("+00:00", "Z"),
        "payload": hostile,
        "metadata": {"trace": "\r\n"},
    }
    assert b"12345678901234567890123" in post.body
    assert post.headers["content-type"] == "application/json"
    assert post.headers["user-agent"] == f"pgwake/{__version__}"
    assert post.headers["idempotency-key"] == f'"{job_id}"'
    assert "x-injected" not in post.headers
    kinds = await connection.fetch("select name from pgwake.list_kinds()")
    assert [row["name"] for row in kinds] == ["mail"]


async def test_the_answer_decides_what_becomes_of_the_job(
    start_worker: StartProcess, connection: Connection, receiver: Receiver
) -> None:
    urls = {
        "gone": receiver.answer("/gone", 410, "deleted"),
        "busy": receiver.answer("/busy", 503, "later"),
        "full": receiver.answer("/full", 429, retry_after="3600"),
    }
    await start_worker(imports="", http_handlers=json.dumps(urls))
    gone = await insert(connection, "gone")
    busy = await insert(connection, "busy", max_attempts=2)
    full = await insert(connection, "full")

    row = await ended(connection, gone)
    assert (row["status"], row["attempt"]) == ("failed", 1)
    assert row["errors"][-1]["message"] == f"{urls['gone']}: HTTP 410: deleted"
    assert reasons(row) == ["discarded"]
    row = await ended(connection, busy)
    assert (row["status"], row["attempt"]) == ("failed", 2)
    assert reasons(row) == ["failed", "failed"]
    row = await in_status(connection, full, "pending")
    assert row["attempt"] == 0
    assert row["run_at"] - row["created_at"] > timedelta(minutes=59)


async def test_a_job_that_is_cancelled_or_over_its_time_lets_go_of_its_endpoint(
    start_worker: StartProcess, connection: Connection, receiver: Receiver
) -> None:
    await connection.execute(
        "insert into pgwake.kinds (name, timeout, max_attempts)"
        " values ('slow', '500 ms', 1)"
    )
    flags = (
        f"--http=slow={receiver.hang('/a')}",
        f"--http=slower={receiver.hang('/b')}",
    )
    await start_worker(*flags, imports="")
    row = await ended(connection, await insert(connection, "slow"))
    assert reasons(row) == ["timeout"]
    await receiver.has_closed("/a")

    job_id = await insert(connection, "slower")
    await receiver.has_posts(2)
    await call(connection, "cancel_job", job_id=job_id)
    assert (await ended(connection, job_id))["status"] == "cancelled"
    await receiver.has_closed("/b")


async def test_a_named_host_may_be_private(
    start_worker: StartProcess, connection: Connection
) -> None:
    with Receiver("localhost").serve() as receiver:
        await start_worker("--http", f"mail={receiver.url}", imports="")
        row = await ended(connection, await insert(connection, "mail"))
    assert row["status"] == "completed"
