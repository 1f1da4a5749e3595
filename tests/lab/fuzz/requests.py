"""The door of HTTP: requests as bytes, to a real server, made from its own document."""

import http.client
import json
import socket
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote
from urllib.request import Request as Question
from urllib.request import urlopen

from hypothesis import strategies as st

from . import values, verdict
from .stage import TOKEN, Stage

SECONDS = 20.0  # in which an answer has to come
# As http/README.md has them.
STATUSES = {400, 401, 403, 404, 405, 408, 409, 413, 415, 422, 429}
NOT_HTTP = (
    b"Invalid HTTP request received."  # the server's own; nothing of pgwake's ran
)

METHODS = ["GET", "POST", "HEAD", "PUT", "DELETE", "OPTIONS", "PATCH", "TRACE", "BREW"]
PATHS = [
    *("/", "/api", "/api/", "/api/jobs/", "/queues//push", "/queues/%00/push"),
    *("/api/jobs/%C0%80", "/api/../metrics", "/openapi.json", "/healthz", "/readyz"),
    *("/metrics", "//", "/%2e%2e/%2e%2e/etc/passwd", "/api/jobs/1;a=b", "/%FF", "*"),
    *("/page/../server.py", "http://elsewhere/api/jobs", "/favicon.ico", "/api/jobs#1"),
]
HEADERS = [
    *("Content-Type: text/plain", "Content-Type: application/json; charset=latin-1"),
    *("Content-Type: APPLICATION/JSON; charset=utf-8", "Content-Encoding: gzip"),
    *("Transfer-Encoding: gzip", "Expect: 100-continue", "Accept: text/html"),
    *("Last-Event-ID: x-99999999999999999999", "Cookie: a=b", "Range: bytes=0-1"),
    *("traceparent: 00-0-0-00", "tracestate: \xff", "traceparent: " + "a" * 5000),
    *("Upgrade: websocket", "Origin: http://evil", "X: " + "y" * 70_000, "Host: a, b"),
    *("Content-Length: -1", "Content-Length: 1\r\nContent-Length: 2", "no colon"),
    "Content-Length: 99999999999999999999",
]
AUTHORITIES = [
    *(
        f"Bearer {TOKEN}x",
        "Bearer",
        "Bearer ",
        "Basic YTpi",
        f"bearer  {TOKEN}",
        "\xff",
    ),
    f"Bearer {TOKEN} {TOKEN}",
]
JSON_TYPE = "Content-Type: application/json"


@dataclass(frozen=True, slots=True)
class Request:
    """A request, as it goes over the wire."""

    method: str
    target: str
    headers: Sequence[str]
    body: bytes

    def __str__(self) -> str:
        head = f"{self.method} {self.target!r:.2000} {list(self.headers)!r:.2000}"
        return f"{head}\n  {self.body!r:.800}"

    @property
    def has_own_frame(self) -> bool:
        """Whether it says itself where it ends, which need not be true."""
        return any(
            one.startswith(("Content-Length", "Transfer")) for one in self.headers
        )

    @property
    def wire(self) -> bytes:
        lines = [f"{self.method} {self.target} HTTP/1.1", "Host: pgwake", *self.headers]
        if not self.has_own_frame:
            lines.append(f"Content-Length: {len(self.body)}")
        return "\r\n".join([*lines, "", ""]).encode("latin-1", "replace") + self.body


@dataclass(frozen=True, slots=True)
class Operation:
    """An operation of /openapi.json: its path, and what its fields are called."""

    method: str
    path: str
    parameters: Sequence[str]
    fields: Sequence[str]


def _quoted(text: str) -> str:
    return quote(text.encode("utf-8", "surrogatepass"), safe="")


BYTES = st.one_of(
    st.binary(max_size=20),
    values.JSON.map(lambda text: text.encode("utf-8", "surrogatepass")),
)
VALUES = st.one_of(
    st.integers(1, 200).map(str),
    values.NAME,
    values.ID,
    values.TEXT.filter(lambda text: len(text) < 9000),
    values.INTEGER,
    values.TIME,
)


@st.composite
def _requests(draw: st.DrawFn, operations: Sequence[Operation]) -> Request:
    operation = draw(st.sampled_from(operations))
    path = operation.path
    while "{" in path:
        before, _, rest = path.partition("{")
        name, _, after = rest.partition("}")
        value = draw(values.ID if name == "id" and draw(st.booleans()) else VALUES)
        path = before + _quoted(value) + after
    if draw(values.rarely(10)):
        path = draw(st.sampled_from(PATHS))
    names = st.sampled_from([*operation.parameters, "unknown"])
    query = draw(st.lists(st.tuples(names, VALUES), max_size=3))
    if query:
        path += "?" + "&".join(f"{name}={_quoted(value)}" for name, value in query)
    if draw(values.rarely(30)):
        path += draw(st.sampled_from(["?%FF", "?&=&", "?a=%C0%80", "?" + "q" * 9000]))
    method = draw(
        values.mostly(st.just(operation.method), st.sampled_from(METHODS), 10)
    )
    headers = [f"Authorization: Bearer {TOKEN}", JSON_TYPE]
    if draw(values.rarely(15)):
        authority: str = draw(st.sampled_from(AUTHORITIES))
        headers[0] = f"Authorization: {authority}"
    if draw(values.rarely(20)):
        del headers[draw(st.integers(0, 1))]
    if draw(values.rarely(15)):
        headers.append(draw(st.sampled_from(HEADERS)))
    body = b""
    if operation.fields and not draw(values.rarely(10)):
        body = draw(_bodies(operation.fields)).encode("utf-8", "surrogatepass")
    if draw(values.rarely(30)):
        body = draw(BYTES)
    return Request(method, path, headers, body)


def _bodies(fields: Sequence[str]) -> values.Text:
    """What an operation takes, or nearly: one job, many, what it has for fields."""
    item = st.one_of(values.NAME, st.integers(-1, 101), values.VALUE, values.OBJECT)
    one = st.dictionaries(st.sampled_from(fields), item, max_size=4)
    job = st.fixed_dictionaries({"kind": values.NAME, "payload": values.OBJECT})
    return st.one_of(
        one.map(values.dumped),
        job.map(values.dumped),
        st.builds(lambda job, more: values.dumped({**job, **more}), job, one),
        st.builds(
            lambda jobs: values.dumped({"jobs": jobs}),
            st.lists(st.one_of(job, one), max_size=3),
        ),
        values.JSON,
    )


class Requests:
    """The API, health and the page, as anybody may ask."""

    name = "http"

    def __init__(self, stage: Stage) -> None:
        self._address = ("127.0.0.1", stage.port)
        self._connection: socket.socket | None = None
        url = f"http://127.0.0.1:{stage.port}/openapi.json"
        question = Question(url, headers={"Authorization": f"Bearer {TOKEN}"})
        with urlopen(question, timeout=SECONDS) as answer:  # noqa: S310, a constant
            document = json.load(answer)
        operations = [
            Operation(
                method.upper(),
                path,
                [one["name"] for one in told.get("parameters", ())],
                list(_fields(told.get("requestBody"), document)),
            )
            for path, methods in document["paths"].items()
            for method, told in methods.items()
        ]
        assert len(operations) > 10, "the document tells of no operations"
        self.inputs = _requests(operations)

    def put(self, request: Request) -> str:
        """Ask; the status of the answer."""
        fresh = self._connection is None
        try:
            answer = self._ask(request)
        except (ConnectionError, http.client.BadStatusLine):
            if request.has_own_frame:  # it was waited for the rest of it
                self.close()
                return "ended early"
            if fresh:
                verdict.fault("no answer", request)
            self.close()  # the one before had been the connection's last
            return self.put(request)
        except TimeoutError:
            verdict.fault("no answer in time", request)
        status, media_type, body = answer
        if status < 400:
            return verdict.ACCEPTED
        if status == 400 and body == NOT_HTTP:
            return "400 by the server"
        if status not in STATUSES:
            verdict.fault(f"status {status}", body[:1000])
        if request.method != "HEAD":
            _check(status, media_type, body)
        return str(status)

    def _ask(self, request: Request) -> tuple[int, str, bytes]:
        if self._connection is None:
            self._connection = socket.create_connection(self._address, SECONDS)
        self._connection.sendall(request.wire)
        if request.has_own_frame:
            with suppress(OSError):  # the server has ended it already
                self._connection.shutdown(socket.SHUT_WR)
        answer = http.client.HTTPResponse(self._connection, method=request.method)
        answer.begin()
        media_type = answer.headers.get_content_type()
        if media_type == "text/event-stream":  # it does not end
            self.close()
            return answer.status, media_type, b""
        body = answer.read()
        if answer.will_close:
            self.close()
        return answer.status, media_type, body

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None


def _check(status: int, media_type: str, body: bytes) -> None:
    """See that an error is a problem of RFC 9457, as http/README.md promises."""
    if media_type != "application/problem+json":
        verdict.fault(f"status {status} as {media_type}", body[:1000])
    told = json.loads(body)
    if told.get("status") != status or not (told.get("title") and told.get("detail")):
        verdict.fault(f"status {status} is no whole problem", told)


def _fields(body: Any, document: Any) -> "list[str]":
    """The names of the fields that a body may have, however deep."""
    found: dict[str, None] = {}
    left = [body]
    seen: set[str] = set()
    while left:
        match left.pop():
            case {"$ref": str(reference)} if reference not in seen:
                seen.add(reference)
                target = document
                for part in reference.removeprefix("#/").split("/"):
                    target = target[part]
                left.append(target)
            case dict(one):
                found.update(dict.fromkeys(one.get("properties", ())))
                left.extend(one.values())
            case list(many):
                left.extend(many)
    return list(found)
