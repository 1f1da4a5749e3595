"""Handlers and their arguments, without a worker: what a payload becomes."""

import functools
import inspect
from datetime import UTC, datetime
from typing import Annotated, Any, cast

import pytest
from pydantic import BaseModel, Field

from pgwake import ConfigurationError, Job, Registry
from pgwake.errors import InvalidPayloadError

JOB = cast("Job", object())


class Address(BaseModel):
    name: str
    host: str = "example.org"


def bind(function: Any, payload: str) -> dict[str, Any]:
    """Register a function and bind a payload to its signature."""
    registry = Registry()
    registry.job("kind")(function)
    handler = registry.get("kind")
    assert handler is not None
    return handler.signature.bind(payload, JOB)


def refusal(function: Any, payload: str) -> str:
    """What the refusal of a payload says."""
    with pytest.raises(InvalidPayloadError) as caught:
        bind(function, payload)
    return str(caught.value)


async def _two(to: str, copies: int) -> None: ...
async def _defaults(to: str = "me", tags: list[str] = []) -> None: ...  # noqa: B006
async def _visit(at: datetime, address: Address) -> None: ...
async def _any(thing) -> None: ...  # type: ignore[no-untyped-def]  # noqa: ANN001
async def _task(to: str, task: Job) -> None: ...
async def _texts(to: "str", task: "Job", address: "Address") -> None: ...
async def _rest(to: str, **rest: Any) -> None: ...
async def _job(job: Job, **rest: Any) -> None: ...


AT = datetime(2027, 1, 31, 8, tzinfo=UTC)


@pytest.mark.parametrize(
    ("function", "payload", "bound"),
    [
        (_two, '{"to": "a", "copies": 2}', {"to": "a", "copies": 2}),
        (_defaults, "{}", {"to": "me", "tags": []}),
        (
            _visit,  # annotations are what pydantic makes of them
            '{"at": "2027-01-31T08:00:00Z", "address": {"name": "a"}}',
            {"at": AT, "address": Address(name="a")},
        ),
        (_any, '{"thing": [1, null]}', {"thing": [1, None]}),
        (_task, '{"to": "a"}', {"to": "a", "task": JOB}),
        (
            _texts,
            '{"to": "a", "address": {"name": "b"}}',
            {"to": "a", "task": JOB, "address": Address(name="b")},
        ),
        (_rest, '{"to": "a", "x": 1, "y": null}', {"to": "a", "x": 1, "y": None}),
        (_job, '{"job": {"id": 1}}', {"job": JOB}),  # it can't pass for the job
    ],
)
def test_the_fields_of_a_payload_become_arguments(
    function: Any, payload: str, bound: dict[str, Any]
) -> None:
    assert bind(function, payload) == bound


def test_a_default_that_was_changed_is_not_seen_by_the_next_job() -> None:
    registry = Registry()

    @registry.job("kind")
    async def send(tags: list[str] = []) -> None: ...  # noqa: B006

    handler = registry.get("kind")
    assert handler is not None
    handler.signature.bind("{}", JOB)["tags"].append("mine")
    assert handler.signature.bind("{}", JOB) == {"tags": []}


@pytest.mark.parametrize(
    "name",
    ["copy", "schema", "json", "_id", "__x", "model_x", "model_config", "field_0"],
)
def test_a_parameter_may_have_a_name_that_pydantic_claims(name: str) -> None:
    names: dict[str, Any] = {}
    exec(f"async def run({name}: int, **rest: int) -> None: ...", names)  # noqa: S102

    payload = f'{{"{name}": 1, "field_1": 2, "validate": 3}}'
    assert bind(names["run"], payload) == {name: 1, "field_1": 2, "validate": 3}


def test_the_kind_itself_may_be_anything() -> None:
    registry = Registry()

    @registry.job("../x'; drop table canary; -- \N{PILE OF POO}")
    async def run(to: str) -> None: ...

    handler = registry.get(registry.kinds[0])
    assert handler is not None
    assert handler.signature.bind('{"to": "a"}', JOB) == {"to": "a"}


def test_partials_and_methods_are_handlers_too() -> None:
    class Mailer:
        async def send(self, to: str) -> None: ...

    async def post(host: str, to: str) -> None: ...

    assert bind(Mailer().send, '{"to": "a"}') == {"to": "a"}
    assert bind(functools.partial(post, "h"), '{"to": "a"}') == {"to": "a"}


@pytest.mark.parametrize(
    ("payload", "said"),
    [
        ('{"to": "a"}', "copies: Field required"),
        ('{"to": "a", "copies": 1, "cc": "b"}', "cc: Extra inputs are not permitted"),
        ('{"to": "a", "copies": "many"}', "copies: Input should be a valid integer"),
        ('{"to": null, "copies": 1}', "to: Input should be a valid string"),
    ],
)
def test_a_payload_that_does_not_fit_is_refused_with_the_field_named(
    payload: str, said: str
) -> None:
    assert said in refusal(_two, payload)


def test_a_refusal_names_the_place_within_a_field() -> None:
    async def visit(addresses: list[Address]) -> None: ...

    said = refusal(visit, '{"addresses": [{"name": "a"}, {"name": 1}]}')
    assert "addresses.1.name: Input should be a valid string" in said


def test_a_refusal_never_shows_the_payload() -> None:
    said = refusal(_two, '{"to": "a", "copies": "canary"}')
    assert "canary" not in said


def test_a_handler_without_parameters_takes_no_payload() -> None:
    async def run() -> None: ...

    assert bind(run, "{}") == {}
    assert "takes no arguments" in refusal(run, '{"to": "a"}')


async def _positional(to: str, /) -> None: ...
async def _any_number(*to: str) -> None: ...
async def _unread(to: "Nowhere") -> None: ...  # type: ignore[name-defined]  # noqa: F821
async def _unusable(to: Annotated[str, Field(pattern="(")]) -> None: ...


@pytest.mark.parametrize(
    ("function", "said"),
    [
        (_positional, "parameter to can't be given"),
        (_any_number, "parameter to can't be given"),
        (_unread, "its signature can't be read"),
        (_unusable, "its annotations can't be used"),
    ],
)
def test_a_signature_that_no_payload_fits_is_refused(function: Any, said: str) -> None:
    with pytest.raises(ConfigurationError, match=f"kind: {said}"):
        bind(function, "{}")


def test_two_handlers_for_a_kind_are_refused() -> None:
    registry = Registry()

    @registry.job("kind")
    async def first() -> None: ...

    with pytest.raises(ConfigurationError, match="'kind' has two handlers"):

        @registry.job("kind")
        async def second() -> None: ...


def test_the_same_handler_may_be_registered_again() -> None:
    registry = Registry()

    async def run() -> None: ...

    registry.job("kind")(run)
    registry.job("kind")(run)
    assert registry.kinds == ["kind"]


def test_a_decorated_function_can_be_called_as_before() -> None:
    def double(n: int, times: int = 2) -> int:
        """Doubles."""
        return n * times

    decorated = Registry().job("kind")(double)
    assert (decorated(3), decorated(n=3, times=3)) == (6, 9)
    assert (repr(decorated), decorated.__doc__) == ("<Task 'kind'>", "Doubles.")
    assert inspect.signature(decorated) == inspect.signature(double)


def test_a_function_may_have_several_kinds() -> None:
    registry = Registry()

    async def run() -> None: ...

    registry.job("a")(registry.job("b")(run))
    assert registry.kinds == ["a", "b"]
    assert all(h.function is run for h in map(registry.get, "ab") if h is not None)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"kind": ""}, "kind ''"),
        ({"kind": print}, r'@job\("print"\)'),
        ({"kind": 5}, "kind 5"),
        ({"kind": "x" * 129}, "kind 'xxx"),
        ({"kind": "\0"}, "kind '\\\\x00'"),
        ({"kind": "\ud800"}, "kind '\\\\ud800'"),
        ({"queue": ""}, "queue ''"),
        ({"max_attempts": 0}, "max_attempts"),
        ({"max_attempts": 10_001}, "max_attempts"),
        ({"timeout": 0}, "timeout"),
        ({"timeout": float("nan")}, "timeout"),
        ({"timeout": float("inf")}, "timeout"),
        ({"timeout": "30"}, "timeout is '30'"),
        ({"max_attempts": 2.5}, "max_attempts is 2.5"),
        ({"max_attempts": True}, "max_attempts is True"),
        ({"lease": 0.5}, "lease"),
        ({"priority": 101}, "priority"),
        ({"backoff_base": -1}, "backoff_base"),
        ({"backoff_cap": 1e10}, "backoff_cap"),
        ({"backoff_jitter": 1.1}, "backoff_jitter"),
    ],
)
def test_an_option_out_of_range_is_refused_by_name(
    options: dict[str, Any], said: str
) -> None:
    async def run() -> None: ...

    with pytest.raises(ConfigurationError, match=said):
        Registry().job(**{"kind": "kind", **options})(run)


def test_what_a_handler_declares_is_its_policy_and_the_schema_of_its_payload() -> None:
    handlers = Registry()

    @handlers.job("greet", max_attempts=3, timeout=1.5)
    async def greet(name: str, job: Job, loud: bool = False) -> None: ...

    assert handlers.declaration["greet"] == {
        "max_attempts": 3,
        "timeout": 1.5,
        "schema": {
            "title": "greet",
            "type": "object",
            "properties": {
                "name": {"title": "Name", "type": "string"},
                "loud": {"title": "Loud", "type": "boolean"},
            },
            "required": ["name"],
            "additionalProperties": False,
        },
    }


def test_a_type_that_json_has_no_word_for_declares_no_schema() -> None:
    handlers = Registry()

    @handlers.job("odd")
    async def odd(value: memoryview) -> None: ...

    assert handlers.declaration == {"odd": {}}
