"""No annotation keeps a worker from starting, or the rest of what it declares away."""

from typing import Annotated, Any

import pytest
from pydantic import (
    BaseModel,
    BeforeValidator,
    Field,
    GetJsonSchemaHandler,
    PlainSerializer,
)

from pgwake import ConfigurationError, Registry
from pgwake.jobs.signature import Signature
from support import Connection
from support.sql.helpers import insert
from support.worker.helpers import embedded, ended


class Opaque:
    pass


class Broken:
    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: Any) -> Any:
        return handler(str)

    @classmethod
    def __get_pydantic_json_schema__(
        cls, schema: Any, handler: GetJsonSchemaHandler
    ) -> Any:
        raise RuntimeError


class Defaults(BaseModel):
    model_config = {"arbitrary_types_allowed": True}

    opaque: Any = Opaque()


class Unstorable(BaseModel):
    number: float = float("nan")
    text: Annotated[str, PlainSerializer(str)] = "\0"


Large = Annotated[int, Field(description="x" * 50_000)]


async def opaque(value: Annotated[Opaque, BeforeValidator(str)]) -> None: ...


async def choice(value: int | Opaque) -> None: ...


async def broken(value: Broken) -> None: ...


async def unstorable(value: Unstorable) -> None: ...


async def large(value: Large) -> None: ...


@pytest.mark.parametrize("function", [opaque, choice, broken, unstorable, large])
def test_what_has_no_whole_schema_that_can_be_stored_has_none(function: Any) -> None:
    assert Signature.of("kind", function).schema is None


def test_a_default_that_is_no_json_is_left_out_without_a_warning() -> None:
    async def run(value: Defaults) -> None: ...

    assert Signature.of("kind", run).schema is not None


async def test_a_kind_without_a_schema_keeps_nothing_from_the_others(
    connection: Connection, database: str
) -> None:
    registry = Registry()
    registry.job("unstorable", max_attempts=2)(unstorable)
    registry.job("large", max_attempts=3, backoff_cap=360 * 86_400)(large)

    @registry.job("good", max_attempts=1)
    async def good() -> None:
        raise ValueError

    async with embedded(database, registry):
        job_id = await insert(connection, "good")
        row = await ended(connection, job_id)
    attempts = await connection.fetch(
        "select name, declared_max_attempts from pgwake.kinds order by name"
    )

    assert (row["status"], row["attempt"]) == ("failed", 1)
    assert list(map(tuple, attempts)) == [("good", 1), ("large", 3), ("unstorable", 2)]


def test_no_delay_is_longer_than_the_database_takes() -> None:
    with pytest.raises(ConfigurationError, match="backoff_cap"):
        Registry().job("kind", backoff_cap=361 * 86_400)
