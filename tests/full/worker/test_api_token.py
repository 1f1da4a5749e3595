"""Who may ask the HTTP API: whoever has the token, and nobody where there is none."""

from pgwake.http.api_routes import OPERATIONS
from support.worker.api import TOKEN, problem, serving

PUBLIC = ("/metrics", "/healthz", "/readyz")
ADDRESSES = [
    (operation.method, operation.path.replace("{name}", "q").replace("{id}", "1"))
    for operation in OPERATIONS
] + [("GET", "/openapi.json")]


async def test_without_a_token_nothing_answers_but_metrics_and_health(
    database: str,
) -> None:
    async with serving(database, api_token=None) as api:
        for path in PUBLIC:
            assert (await api.get(path)).status_code in (200, 503)  # not yet ready
        for method, path in ADDRESSES:
            found = problem(await api.request(method, path), 404)
            assert "PGWAKE_API_TOKEN" in found["hint"]


async def test_without_the_right_token_nothing_is_told(database: str) -> None:
    wrong = (
        "Bearer",
        f"Bearer {TOKEN}x",
        f"Bearer {TOKEN[:-1]}",
        f"Basic {TOKEN}",
        TOKEN,
        "Bearer \xfc\xff",
    )
    async with serving(database) as api:
        del api.headers["Authorization"]
        for given in (None, *wrong):
            headers = [] if given is None else [(b"Authorization", given.encode("l1"))]
            for method, path in ADDRESSES:
                answer = await api.request(method, path, headers=headers)
                problem(answer, 401)
                challenge = answer.headers["www-authenticate"]
                assert challenge.startswith('Bearer realm="pgwake"')
                assert ('error="invalid_token"' in challenge) == (given is not None)
        for path in PUBLIC:
            assert (await api.get(path)).status_code in (200, 503)  # not yet ready


async def test_the_scheme_may_be_written_in_any_case(database: str) -> None:
    async with serving(database) as api:
        headers = {"Authorization": f"bearer  {TOKEN}"}
        assert (await api.get("/api/workers", headers=headers)).status_code == 200


async def test_the_token_is_asked_for_before_anything_else(database: str) -> None:
    async with serving(database) as api:
        del api.headers["Authorization"]
        problem(await api.get("/api/jobs?limit=0"), 401)
        problem(await api.post("/queues/q/push", content=b"x" * 2_000_000), 401)
