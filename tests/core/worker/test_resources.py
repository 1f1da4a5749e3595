"""Resources and middleware as they are registered: what is accepted, and told."""

from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from typing import Annotated, Any, NewType, Protocol, cast

import pytest

from pgwake import ConfigurationError, Job, Registry, injected
from pgwake.errors import InvalidPayloadError
from support.worker import shared_handlers

JOB = cast("Job", object())
ApiKey = NewType("ApiKey", str)


class Pool: ...


class Mailer(Protocol):
    def send(self, to: str) -> None: ...


@dataclass
class Clients:
    pool: Pool


@dataclass
class Options:
    retries: int


Replica = Annotated[Pool, "replica"]


def pool() -> Iterator[Pool]:
    yield Pool()


async def replica() -> AsyncIterator[Replica]:
    yield Pool()


async def clients(pool: Pool) -> AsyncIterator[Clients]:
    yield Clients(pool)


def options() -> Options:
    return Options(3)


def api_key() -> ApiKey:
    return ApiKey("x")


def mailer() -> Mailer:
    raise NotImplementedError


@contextmanager
def decorated() -> Iterator[Pool]:
    yield Pool()


@asynccontextmanager
async def decorated_async() -> AsyncIterator[Pool]:
    yield Pool()


def hook() -> None: ...


async def needs_a_hook(clients: Clients) -> AsyncIterator[None]:
    yield


def opened(registry: Registry) -> list[str]:
    """The functions that a worker opens, in order."""
    return [one.function.__name__ for one in registry.worker_resources()]


def refusal(call: Callable[[], object]) -> str:
    with pytest.raises(ConfigurationError) as caught:
        call()
    return str(caught.value)


def with_handler(function: Any, *resources: Any, **options: Any) -> Registry:
    """A registry with a handler, and then resources."""
    registry = Registry()
    registry.job("kind", **options)(function)
    for one in resources:
        registry.resource(one)
    return registry


def test_an_annotation_says_what_is_a_resource_and_the_rest_is_the_payload() -> None:
    async def run(
        to: str,
        pool: Pool,
        job: Job,
        other: Replica,
        clients: Clients,
        mailer: Mailer,
        copies: int = 1,
        options: Options = injected,
        key: ApiKey = injected,
    ) -> None: ...

    # In whatever order they are registered, and where a producer has none of them.
    for registry in (
        with_handler(run),
        with_handler(run, pool, replica, clients, options, api_key, mailer),
    ):
        handler = registry.get("kind")
        assert handler is not None
        resources = {
            "pool": Pool,
            "other": Replica,
            "clients": Clients,
            "mailer": Mailer,
            "options": Options,
            "key": ApiKey,
        }
        assert handler.signature.resources == resources
        schema = cast("Any", handler.signature.schema)
        assert schema["properties"].keys() == {"to", "copies"}
        assert handler.signature.payload("a") == {"to": "a"}
        values = {type_: name for name, type_ in resources.items()}
        bound = handler.signature.bind('{"to": "a"}', JOB, values)
        assert bound == {
            "to": "a",
            "copies": 1,
            "job": JOB,
            **{n: n for n in resources},
        }
        with pytest.raises(InvalidPayloadError, match="pool"):
            handler.signature.bind('{"to": "a", "pool": 1}', JOB, values)
    assert repr(injected) == "injected"
    with pytest.raises(AttributeError, match="a worker gives this parameter"):
        injected.execute("select 1")


def test_what_a_payload_may_have_is_a_resource_once_that_is_registered() -> None:
    async def run(options: Options) -> None: ...

    registry = Registry()
    registry.resource(options)
    registry.job("kind")(run)
    assert registry.get("kind").signature.resources == {"options": Options}  # type: ignore[union-attr]
    said = refusal(lambda: with_handler(run, options))
    assert "kind takes Options from its payload" in said
    assert "options before, or give the parameter the default pgwake.injected" in said


def test_resources_are_opened_after_those_that_they_need() -> None:
    async def run(clients: Clients) -> None: ...

    assert opened(with_handler(run, needs_a_hook, clients, hook, pool)) == [
        *("pool", "clients", "needs_a_hook", "hook")
    ]


def test_what_only_processes_need_is_not_opened_in_the_worker() -> None:
    shared = shared_handlers
    resources = (shared.model, shared.plain_hook, shared.pool, shared.hook)
    registry = with_handler(shared.run_apart.function, *resources, process=True)
    assert opened(registry) == ["plain_hook", "pool", "hook"]
    located = [one.name for one in registry.child_parts.resources]
    assert located == ["model", "plain_hook"]
    registry.check()


@pytest.mark.parametrize("function", [decorated, decorated_async])
def test_context_managers_are_resources_too(function: Any) -> None:
    async def run(pool: Pool) -> None: ...

    assert opened(with_handler(run, function, function)) == [function.__name__]


async def run_pool(pool: Pool) -> None: ...
async def run_union(pool: Pool | None = None) -> None: ...
async def run_bare(pool=injected) -> None: ...  # type: ignore[no-untyped-def] # noqa: ANN001
async def run_jobs(jobs: list[Job], pool: Pool) -> None: ...
async def run_replica(pool: Replica) -> None: ...


def untyped():  # type: ignore[no-untyped-def]  # noqa: ANN201
    yield Pool()


def typed_wrongly() -> Pool:  # type: ignore[misc]
    yield Pool()


def a_string() -> str:
    return ""


def a_list() -> Iterator[list[Pool]]:
    yield []


def either() -> Pool | Options:
    return Pool()


def with_job(job: Job) -> Iterator[Pool]:
    yield Pool()


def one_of_two(other: Options) -> Pool:
    return other  # type: ignore[return-value]


def two_of_two(other: Pool) -> Options:
    return other  # type: ignore[return-value]


async def asks() -> Awaitable[None]: ...  # type: ignore[empty-body]


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: with_handler(run_pool).check(), "kind: no resource gives .*Pool"),
        (lambda: with_handler(run_pool, replica).check(), "There are .*'replica'"),
        (lambda: with_handler(run_jobs, batch=2).check(), "no resource gives .*Pool"),
        (lambda: with_handler(run_pool, clients).check(), "gives .*Pool for pool"),
        (lambda: with_handler(run_pool, pool, decorated), 'Annotated\\[..., "name"\\]'),
        (lambda: with_handler(run_bare), "annotate pool with the type"),
        (lambda: with_handler(run_pool, untyped), "say what it gives"),
        (lambda: with_handler(run_pool, typed_wrongly), "say what it gives"),
        (lambda: with_handler(run_pool, a_string), "no type of its own"),
        (lambda: with_handler(run_pool, a_list), "no type of its own"),
        (lambda: with_handler(run_pool, either), "no type of its own"),
        (lambda: with_handler(run_pool, with_job), "takes nothing else"),
        (
            lambda: with_handler(run_pool, one_of_two, two_of_two).check(),
            "need each other: .*one_of_two -> .*two_of_two -> .*one_of_two",
        ),
    ],
)
def test_a_resource_that_can_not_be_one_says_what_to_do(
    make: Callable[[], object], said: str
) -> None:
    with pytest.raises(ConfigurationError, match=said):
        make()


def test_a_parameter_that_may_be_a_resource_or_not_is_refused() -> None:
    registry = Registry()
    registry.resource(pool)
    said = refusal(lambda: registry.job("kind")(run_union))
    assert "pool gets Pool if it is annotated with that alone" in said


def test_a_process_that_can_not_have_a_resource_is_refused_before_the_first_job() -> (
    None
):
    def nested(pool: Pool) -> Iterator[None]:
        yield

    apart, model = shared_handlers.run_apart.function, shared_handlers.model
    registry = with_handler(apart, process=True)
    assert "no resource gives" in refusal(registry.check)

    async def async_model() -> AsyncIterator[shared_handlers.Model]:
        yield shared_handlers.Model()

    registry = with_handler(apart, async_model, process=True)
    assert "is async, and processes of process=True" in refusal(registry.check)

    registry = with_handler(apart, model, pool, nested, process=True)
    assert "is not at the top of its module" in refusal(registry.check)


def no_generator(job: Job) -> None: ...
def takes_job(job: Job) -> Iterator[None]:
    yield


def takes_untyped(job) -> Iterator[None]:  # type: ignore[no-untyped-def]  # noqa: ANN001
    yield


def takes_pool(jobs: list[Job], pool: Pool) -> Iterator[None]:
    yield


@pytest.mark.parametrize(
    ("function", "said"),
    [
        (no_generator, "a function with one yield"),
        (takes_untyped, "annotate job with Job, list"),
        (takes_pool, "takes_pool: no resource gives .*Pool for pool"),
        (takes_job, "takes a Job, and kind many jobs a call: let it take list"),
    ],
)
def test_middleware_that_can_not_be_one_says_what_to_do(
    function: Any, said: str
) -> None:
    async def run(jobs: list[Job]) -> None: ...

    def register_and_check() -> None:
        registry = with_handler(run, batch=2)
        registry.middleware(function)
        registry.check()

    with pytest.raises(ConfigurationError, match=said):
        register_and_check()
