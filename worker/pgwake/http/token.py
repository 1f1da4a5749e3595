"""The token that opens the API: Authorization: Bearer TOKEN, RFC 6750."""

from collections.abc import Awaitable, Callable
from secrets import compare_digest

from starlette.requests import Request
from starlette.responses import Response

from pgwake.http.problems import ProblemError, answer

Handler = Callable[[Request], Awaitable[Response]]


def guarded(token: bytes, handler: Handler) -> Handler:
    """Return a handler that asks for the token before anything else."""

    async def ask(request: Request) -> Response:
        given = request.headers.get("Authorization", "").encode("latin-1")
        scheme, _, found = given.partition(b" ")
        if scheme.lower() == b"bearer" and compare_digest(found.strip(), token):
            return await handler(request)
        challenge = 'Bearer realm="pgwake"'
        if given:
            challenge += ', error="invalid_token"'
        return answer(
            ProblemError(
                401,
                "the token is wrong" if given else "there is no token",
                "Send the header Authorization: Bearer TOKEN, with the service's "
                "PGWAKE_API_TOKEN.",
                headers={"WWW-Authenticate": challenge},
            )
        )

    return ask
