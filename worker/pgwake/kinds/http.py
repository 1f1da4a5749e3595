"""Jobs that are done by an HTTP endpoint: the job is posted, the answer decides.

| answer | the job |
| --- | --- |
| 2xx | is completed, with the body as its result: JSON, or text |
| 429, 503 with Retry-After | is put off as long, from a second to a day: a snooze |
| 408, 409, 425, 429, 5xx, none | has failed this attempt; the next after the backoff |
| every other | is a dead letter at once |

307 and 308 are followed where redirects are allowed, to addresses that are.
"""

import asyncio
import base64
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any, Self

import httpcore
import httpx

from pgwake.address import AddressRule
from pgwake.errors import ConfigurationError
from pgwake.jobs.job import Job
from pgwake.jobs.outcomes import Discard, Retry, Snooze
from pgwake.jobs.shortage import no_descriptor_left, put_off
from pgwake.jsontext import dumps
from pgwake.kinds.dialer import AddressRefusedError, Dialer
from pgwake.kinds.result_body import MAX_BYTES, result_of
from pgwake.settings import Settings
from pgwake.signing import sign
from pgwake.tracing import tracing
from pgwake.version import __version__

CONNECT_SECONDS = 10.0
MAX_REDIRECTS = 5
MAX_URL = 2048  # characters, as the check of jobs.webhook
MAX_SNOOZE_SECONDS = 86_400.0
ERROR_BYTES = 1000  # of an answer that is no success
_RETRIED = (408, 409, 425, 429)


class HttpClient:
    """Posts messages, over connections that it keeps; one a process and rule.

    No proxy is used, since it would connect to what this process could not check.

    Args:
        settings: Time limit, secrets, and whether redirects are followed.
        rule: What may be connected to.
    """

    def __init__(self, settings: Settings, rule: AddressRule) -> None:
        self._seconds = settings.http_timeout
        self._follows = settings.http_redirects
        self._keys = settings.signing_keys
        # As many connections as there are jobs, which are as many as slots.
        self._pool = httpcore.AsyncConnectionPool(
            ssl_context=httpx.create_ssl_context(),
            max_connections=None,
            max_keepalive_connections=100,
            keepalive_expiry=30,
            network_backend=Dialer(rule),
        )

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._pool.aclose()

    async def post(self, url: str, message_id: str, body: bytes) -> Any:
        """Post a message of JSON; what it was answered, as a job's result.

        Args:
            url: An absolute URL of http or https.
            message_id: The same for each attempt; receivers know by it what they have.
            body: JSON.

        Raises:
            Snooze, Retry, Discard: As the table above says.
        """
        target = _parse(url)
        headers = {
            "content-type": "application/json",
            "user-agent": f"pgwake/{__version__}",
            "accept-encoding": "identity",
            "idempotency-key": f'"{message_id}"',
            # The receiver's clock is compared with this machine's, not the database's.
            **sign(self._keys, message_id, int(time.time()), body),
            **tracing.carrier(),
        }
        try:
            async with asyncio.timeout(self._seconds):
                return await self._follow(target, headers, body)
        except TimeoutError:
            told = f"{_show(target)}: no answer within {self._seconds:g} s"
            raise Retry(reason=told) from None
        except AddressRefusedError as error:
            raise Discard(f"{_show(target)}: {error}") from None
        except (
            httpcore.NetworkError,
            httpcore.ProtocolError,
            httpcore.TimeoutException,
        ) as error:
            # The name's look-up hides why it has failed, so it is found out by trying.
            if isinstance(error, httpcore.ConnectError) and no_descriptor_left():
                raise put_off(error) from None
            what = f"{type(error).__name__}: {error}".removesuffix(": ")
            raise Retry(reason=f"{_show(target)}: {what}") from None

    async def _follow(
        self, target: httpx.URL, headers: dict[str, str], body: bytes
    ) -> Any:
        for _ in range(MAX_REDIRECTS):
            async with self._posted(target, headers, body) as answer:
                if answer.status not in (307, 308) or not self._follows:
                    return await _judge(target, answer)
                target = _redirected(target, _header(answer, b"location"))
        raise Discard(f"{_show(target)}: more than {MAX_REDIRECTS} redirects")

    @asynccontextmanager
    async def _posted(
        self, target: httpx.URL, headers: dict[str, str], body: bytes
    ) -> AsyncIterator[httpcore.Response]:
        headers = headers | {"host": target.netloc.decode()}
        if target.userinfo:
            login = f"{target.username}:{target.password}".encode()
            headers["authorization"] = f"Basic {base64.b64encode(login).decode()}"
        async with self._pool.stream(
            "POST",
            httpcore.URL(
                scheme=target.raw_scheme,
                host=target.raw_host,
                port=target.port,
                target=target.raw_path,
            ),
            headers=list(headers.items()),
            content=body,
            extensions={"timeout": {"connect": CONNECT_SECONDS}},
        ) as answer:
            yield answer


class Endpoint:
    """The handler of a kind that is served at a URL."""

    def __init__(self, client: HttpClient, url: str) -> None:
        self._client = client
        self._url = url

    async def handle(self, /, job: Job, **_: Any) -> Any:
        """Post the job; a Standard Webhooks message with the job's id."""
        facts = dumps(
            {
                "id": job.id,
                "kind": job.kind,
                "queue": job.queue,
                "attempt": job.attempt,
                "max_attempts": job.max_attempts,
                "created_at": job.created_at,
            }
        )
        # As PostgreSQL wrote them: no number loses digits on the way.
        texts = f'"metadata":{job.metadata or "null"},"payload":{job.payload_text}'
        body = f"{facts[:-1]},{texts}}}".encode()
        return await self._client.post(self._url, str(job.id), body)


def host_of(url: str) -> str:
    """Return the host of a URL, as it is looked up.

    Raises:
        ConfigurationError: Nothing can be posted to it.
    """
    try:
        return _parse(url).raw_host.decode()
    except Discard as refused:
        raise ConfigurationError(str(refused)) from None


def _parse(url: str) -> httpx.URL:
    try:
        target = httpx.URL(_clear(url))
    except (httpx.InvalidURL, UnicodeError, ValueError):
        target = httpx.URL()
    if not _is_usable(target):
        raise Discard(
            "the URL can't be used: it must be http://host/... or https://host/..., "
            "with special characters as %40 and the like"
        )
    return target


def _clear(url: str) -> str:
    """Return a URL that every program reads alike.

    Raises:
        ValueError: It is too long, or has a backslash: in some programs' eyes that is a
            slash, and what stands before it the host.
    """
    if len(url) > MAX_URL or "\\" in url:
        raise ValueError(url)
    return url


def _is_usable(target: httpx.URL) -> bool:
    has_port = target.port is None or 1 <= target.port <= 65_535
    return target.scheme in ("http", "https") and bool(target.host) and has_port


def _show(target: httpx.URL) -> str:
    """A URL for people, without what may be a secret in it."""
    shown = target.copy_with(username=None, password=None, query=None, fragment=None)
    return str(shown)[:200]


def _header(answer: httpcore.Response, name: bytes) -> str | None:
    for key, value in answer.headers:
        if key.lower() == name:
            return value.decode("latin-1").strip()
    return None


def _redirected(target: httpx.URL, location: str | None) -> httpx.URL:
    try:
        new = target.join(_clear(location or ""))
    except (httpx.InvalidURL, UnicodeError, ValueError):
        new = httpx.URL()
    is_downgrade = target.scheme == "https" and new.scheme == "http"
    if not location or is_downgrade or not _is_usable(new):
        raise Discard(f"{_show(target)}: redirects to where nothing can be posted")
    return new


async def _judge(target: httpx.URL, answer: httpcore.Response) -> Any:
    """Return the result of a success, or raise what becomes of the job."""
    status = answer.status
    if 200 <= status <= 299:
        data = await _read(answer, MAX_BYTES)
        media_type = (_header(answer, b"content-type") or "").partition(";")[0].strip()
        is_json = media_type.lower().endswith(("/json", "+json"))
        return result_of(data, is_json=is_json)
    seconds = _retry_after(_header(answer, b"retry-after"))
    if status in (429, 503) and seconds is not None:
        raise Snooze(min(max(seconds, 1.0), MAX_SNOOZE_SECONDS))
    start = (await _read(answer, ERROR_BYTES))[:ERROR_BYTES].decode(errors="replace")
    if 300 <= status <= 399:
        start = "redirects are not followed"
    told = f"{_show(target)}: HTTP {status}: {start}".removesuffix(": ")
    if status in _RETRIED or 500 <= status <= 599:
        raise Retry(reason=told)
    raise Discard(told)


async def _read(answer: httpcore.Response, most: int) -> bytes:
    """Read a body, not much more than that of it; the rest is never received."""
    data = bytearray()
    async for chunk in answer.aiter_stream():
        data += chunk
        if len(data) > most:
            break
    return bytes(data)


def _retry_after(text: str | None) -> float | None:
    """Read seconds, or a date; None if it is neither."""
    if text is None:
        return None
    if text.isascii() and text.isdigit():
        return float(text[:10])
    try:
        at = parsedate_to_datetime(text)
    except (ValueError, OverflowError):
        return None
    at = at if at.tzinfo else at.replace(tzinfo=UTC)
    return (at - datetime.now(UTC)).total_seconds()
