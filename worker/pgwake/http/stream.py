"""GET /api/events: the hub's events as server-sent events."""

from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.types import Receive, Scope, Send

from pgwake.http.events import MAX_CLIENTS, MAX_NAME, Hub
from pgwake.http.problems import HEADERS, ProblemError, field_problem

RETRY_SECONDS = 10
# Not gathered by a proxy, which would hold events back.
_HEADERS = {**HEADERS, "X-Accel-Buffering": "no"}


async def show_events(hub: Hub, request: Request) -> Response:
    """Answer with a stream that ends with its client, or with the process.

    Raises:
        ProblemError: 422 for a queue that none is called, 503 for too many clients.
    """
    queue = request.query_params.get("queue")
    if queue is not None and not 1 <= len(queue.encode()) <= MAX_NAME:
        raise field_problem([("queue", f"a queue's name has 1 to {MAX_NAME} bytes")])
    if request.method == "HEAD":
        return Response(None, 200, _HEADERS, EventStream.media_type)
    if hub.is_full:
        raise ProblemError(
            503,
            f"{MAX_CLIENTS} clients follow the events of this process already",
            "Poll, or ask another process.",
            headers={"Retry-After": str(RETRY_SECONDS)},
        )
    return EventStream(hub, queue, request.headers.get("Last-Event-ID"))


class EventStream(StreamingResponse):
    """The answer to one client."""

    media_type = "text/event-stream"

    def __init__(self, hub: Hub, queue: str | None, last_id: str | None) -> None:
        super().__init__(hub.follow(queue, last_id), headers=_HEADERS)
        self._hub = hub

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send until the client or the hub is gone."""
        with self._hub.client():
            await super().__call__(scope, receive, send)
