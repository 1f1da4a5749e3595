"""The status page: its files, the same for everybody, without any data."""

from collections.abc import Sequence
from hashlib import sha256
from importlib.resources import files

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

INDEX = "index.html"
FILES = (
    INDEX,
    "api.js",
    "bulk.js",
    "dialog.js",
    "dom.js",
    "enqueue.js",
    "failed.js",
    "fields.js",
    "filters.js",
    "findings.js",
    "format.js",
    "icon.svg",
    "job.js",
    "jobs.js",
    "json.js",
    "kinds.js",
    "live.js",
    "main.js",
    "overview.js",
    "page.css",
    "pause.js",
    "queues.js",
    "schedules.js",
    "sparkline.js",
    "table.js",
    "workers.js",
)
# The host's own table of types can say anything.
TYPES = {
    "css": "text/css",
    "html": "text/html",
    "js": "text/javascript",
    "svg": "image/svg+xml",
}
# The last two: text can't become HTML, not even by mistake.
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "
    "img-src 'self' data:; base-uri 'none'; form-action 'none'; "
    "frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'"
)


def page_routes() -> Sequence[Route]:
    """Return the page's routes: / and /page/NAME."""
    folder = files("pgwake.http") / "page"
    contents = {name: (folder / name).read_bytes() for name in FILES}
    return [
        _route("/" if name == INDEX else f"/page/{name}", name, content)
        for name, content in contents.items()
    ]


def _route(path: str, name: str, content: bytes) -> Route:
    media_type = TYPES[name.rpartition(".")[2]]
    headers = {
        "ETag": f'"{sha256(content).hexdigest()[:32]}"',
        "Cache-Control": "no-cache",  # that is: ask whether it is still the same
        "Content-Security-Policy": POLICY,
        "Referrer-Policy": "no-referrer",
        "X-Content-Type-Options": "nosniff",
    }

    async def show(request: Request) -> Response:
        known = request.headers.get("If-None-Match", "")
        if headers["ETag"] in known or known == "*":
            return Response(status_code=304, headers=headers)
        return Response(content, media_type=media_type, headers=headers)

    return Route(path, show)
