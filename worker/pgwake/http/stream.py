"""GET /api/events: the fan-out's events as server-sent events."""

from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from pgwake.http import problems
from pgwake.http.api.queues import QueueFilter
from pgwake.http.events import MAX_CLIENTS, EventFanout
from pgwake.http.operation import read_parameters
from pgwake.http.problems import ProblemError
from pgwake.http.token import guarded

PATH = "/api/events"
MEDIA_TYPE = "text/event-stream"
# A proxy that gathers what it passes on would hold the events back.
_HEADERS = {**problems.HEADERS, "X-Accel-Buffering": "no"}


class EventStream(StreamingResponse):
    """The answer to one client, until it is gone, or the process ends."""

    def __init__(
        self, fanout: EventFanout, queue: str | None, last_id: str | None
    ) -> None:
        super().__init__(fanout.follow(queue, last_id), 200, _HEADERS, MEDIA_TYPE)
        self._fanout = fanout

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send, and be counted meanwhile."""
        with self._fanout.client():
            await super().__call__(scope, receive, send)


def route(fanout: EventFanout, token: bytes) -> Route:
    """Return the route of the stream, for who has the token."""

    async def show(request: Request) -> Response:
        try:
            parameters = read_parameters(QueueFilter, request)
            if request.method == "HEAD":
                return Response(None, 200, _HEADERS, MEDIA_TYPE)
            if fanout.is_full:
                raise problems.unavailable(
                    f"{MAX_CLIENTS} clients follow this process's events already",
                    "Poll, or follow another process.",
                )
        except ProblemError as problem:
            return problems.answer(problem)
        last_id = request.headers.get("Last-Event-ID")
        return EventStream(fanout, parameters.queue, last_id)

    return Route(PATH, guarded(token, show), methods=["GET"])
