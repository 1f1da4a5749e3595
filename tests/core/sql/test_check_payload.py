"""A payload that the kind's workers do not take is refused where it is made."""

import io
import json
from collections.abc import Callable
from typing import Any, Literal

import psycopg
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from psycopg.types.json import Jsonb
from pydantic import BaseModel, ConfigDict, TypeAdapter, ValidationError

from support import Connection
from support.sql.helpers import call, insert, job, refused, status

Schema = dict[str, Any]

STRING: Schema = {"type": "string"}
NUMBER: Schema = {"type": "number"}
MAIL: Schema = {
    "type": "object",
    "properties": {"to": STRING, "subject": STRING, "copies": {"type": "integer"}},
    "required": ["to"],
    "additionalProperties": False,
}


async def declare(db: Connection, schema: Schema | None, name: str = "mail") -> None:
    await call(db, "declare_kinds", kinds={name: {"schema": schema}})


async def switch_on(db: Connection, name: str = "mail") -> None:
    """What an operator does."""
    await db.execute(
        "insert into pgwake.kinds (name, check_payload) values ($1, true)"
        " on conflict (name) do update set check_payload = true",
        name,
    )


async def problem(db: Connection, schema: Any, value: Any) -> str | None:
    """What is wrong with any value by any schema."""
    found = await db.fetchval(
        "select pgwake.payload_problem(s, $2::text::jsonb, s -> '$defs')"
        " from cast($1 as jsonb) as s",
        schema,
        json.dumps(value),  # not null for None
    )
    return None if found is None else str(found[0])


NESTED: Schema = {
    "properties": {"items": {"type": "array", "items": {"$ref": "#/$defs/Item"}}},
    "$defs": {
        "Item": {"properties": {"price": NUMBER}, "required": ["price"]},
        "Loop": {"$ref": "#/$defs/Loop"},
        "a.b/c": STRING,
    },
}

# A schema, what it takes, and what it does not, with what is said of that.
CASES: dict[str, tuple[Any, list[Any], list[tuple[Any, str]]]] = {
    "type string": (
        STRING,
        ["", "1"],
        [
            (1, "it must be a string, not a number"),
            (None, "it must be a string, not null"),
            ([], "it must be a string, not an array"),
            ({}, "it must be a string, not an object"),
            (True, "it must be a string, not a boolean"),
        ],
    ),
    "type number": (
        NUMBER,
        [0, 1.5, -1e300, 2**63],
        [("1", "it must be a number, not a string")],
    ),
    "type integer": (
        {"type": "integer"},
        [0, 1.0, -(2**70), 1e300],
        [
            (1.5, "it must be an integer, not a fraction"),
            ("1", "it must be an integer, not a string"),
            (True, "it must be an integer, not a boolean"),
        ],
    ),
    "type boolean": (
        {"type": "boolean"},
        [True, False],
        [(0, "it must be a boolean, not a number")],
    ),
    "type object": (
        {"type": "object"},
        [{}, {"a": 1}],
        [([], "it must be an object, not an array")],
    ),
    "type array": (
        {"type": "array"},
        [[], [1, "a"]],
        [({}, "it must be an array, not an object")],
    ),
    "type null": (
        {"type": "null"},
        [None],
        [(False, "it must be null, not a boolean"), ("null", "not a string")],
    ),
    "a list of types": (
        {"type": ["integer", "string", "null"]},
        [1, "a", None],
        [
            (1.5, "it must be an integer or a string or null, not a fraction"),
            ([], "it must be an integer or a string or null, not an array"),
        ],
    ),
    "enum": (
        {"enum": ["a", 1, None, [1], {"b": 2}]},
        ["a", 1, 1.0, None, [1], {"b": 2}],
        [("b", 'it must be one of "a", 1, null'), ([], "one of"), ({}, "one of")],
    ),
    "const": (
        {"const": {"a": 1}},
        [{"a": 1}],
        [({"a": 1, "b": 2}, 'it must be {"a": 1}'), (None, "must be")],
    ),
    "const null": ({"const": None}, [None], [(0, "it must be null")]),
    "required": (
        {"required": ["a", "b"]},
        [{"a": None, "b": 1, "c": 2}, [], "a", 1],
        [({"b": 1}, "a is missing"), ({"a": 1}, "b is missing")],
    ),
    "properties": (
        {"properties": {"a": STRING, "b": {"properties": {"c": NUMBER}}}},
        [{}, {"a": "x", "z": 1}, {"b": 1}, {"b": {"c": 1}}, []],
        [
            ({"a": 1}, "a must be a string, not a number"),
            ({"b": {"c": "x"}}, "b.c must be a number, not a string"),
        ],
    ),
    "a property that is forbidden": (
        {"properties": {"a": False, "b": True}},
        [{}, {"b": 1}],
        [({"a": 1}, "a is not allowed")],
    ),
    "no additional properties": (
        {"properties": {"to": {}}, "additionalProperties": False},
        [{}, {"to": 1}],
        [({"too": 1}, "too is unknown"), ({"to": 1, "": 1}, " is unknown")],
    ),
    "no properties at all": (
        {"additionalProperties": False},
        [{}, []],
        [({"a": 1}, "a is unknown")],
    ),
    "a schema of additional properties": (
        {"properties": {"a": STRING}, "additionalProperties": {"type": "integer"}},
        [{"a": "x", "b": 1}],
        [({"b": "x"}, "b must be an integer, not a string")],
    ),
    "additional properties beside patterns are not looked at": (
        {"patternProperties": {"^x": {}}, "additionalProperties": False},
        [{"x1": 1}, {"y": 1}],
        [],
    ),
    "items": (
        {"items": {"type": "integer"}},
        [[], [1, 2.0], {}, "a"],
        [([1, "x"], "1 must be an integer, not a string"), ([0.5], "0 must be")],
    ),
    "no items": ({"items": False}, [[], 1], [([1], "0 is not allowed")]),
    "items after a prefix are not looked at": (
        {"prefixItems": [STRING], "items": False},
        [["a"], ["a", 1], [1]],
        [],
    ),
    "$ref": (
        NESTED,
        [{"items": []}, {"items": [{"price": 1}, {"price": 1.5, "x": 1}]}, {}],
        [
            ({"items": [{"price": 1}, {}]}, "items.1.price is missing"),
            (
                {"items": [{"price": 1}, {"price": 1}, {"price": "1"}]},
                "items.2.price must be a number, not a string",
            ),
        ],
    ),
    "$ref to an odd name": (
        {**NESTED, "$ref": "#/$defs/a.b/c"},
        ["x"],
        [(1, "it must be a string, not a number")],
    ),
    "$ref to itself": ({**NESTED, "$ref": "#/$defs/Loop"}, [1, "x", {}], []),
    "$ref to nothing": ({**NESTED, "$ref": "#/$defs/None"}, [1, "x", {}], []),
    "$ref to elsewhere": ({"$ref": "https://example.org/a.json"}, [1, {}], []),
    "anyOf plain types": (
        {"anyOf": [{"type": "integer"}, {"type": "string", "format": "date"}]},
        [1, "x"],
        [(1.5, "it must be an integer or a string, not a fraction")],
    ),
    "what may be null": (
        {"anyOf": [{"$ref": "#/$defs/Item"}, {"type": "null"}], **NESTED},
        [None, {"price": 1, "items": []}],
        [
            ({"price": "x"}, "price must be a number, not a string"),
            ({"price": 1, "items": 1}, "items must be an array, not a number"),
        ],
    ),
    "anyOf several forms": (
        {"anyOf": [{"required": ["a"]}, {"required": ["b"]}]},
        [{"a": 1}, {"b": 1}, {"a": 1, "b": 1}],
        [({"c": 1}, "it fits none of its forms")],
    ),
    "anyOf beside others": (
        {"anyOf": [STRING, NUMBER], "enum": ["a", 1, True]},
        ["a", 1],
        [("b", "one of"), (True, "it must be a string or a number, not a boolean")],
    ),
    "oneOf is read as anyOf": (
        {"oneOf": [{"type": "integer"}, NUMBER]},
        [1, 1.5],
        [("x", "it must be an integer or a number, not a string")],
    ),
    "allOf": (
        {"allOf": [{"required": ["a"]}, {"properties": {"a": NUMBER}}]},
        [{"a": 1}],
        [({}, "a is missing"), ({"a": "x"}, "a must be a number")],
    ),
    "true": (True, [1, None, {}], []),
    "false": (False, [], [(1, "it is not allowed"), (None, "it is not allowed")]),
    "what it does not know passes": (
        {
            "type": "string",
            "minLength": 9,
            "pattern": "^x",
            "not": {"type": "string"},
            "format": "email",
        },
        ["a"],
        [],
    ),
    "what makes no sense passes": (
        {
            "type": "date",
            "enum": 1,
            "required": {"a": 1},
            "properties": [1],
            "items": 5,
            "anyOf": {},
            "allOf": 3,
            "$defs": [],
            "additionalProperties": "no",
        },
        [1, None, "x", [], [1], {}, {"a": 1}],
        [],
    ),
    "what makes no sense inside passes": (
        {
            "type": [],
            "required": [1, None],
            "properties": {"a": 1, "b": None, "c": {"type": [1]}},
            "anyOf": [],
            "allOf": [],
        },
        [1, {}, {"a": 1, "b": 1, "c": 1}],
        [],
    ),
    "an unknown type among known ones passes": (
        {"anyOf": [{"type": "date"}, STRING], "type": ["date", "string"]},
        [1, "x"],
        [],
    ),
    "a reference that is none passes": ({"$ref": 5, "type": "string"}, [1], []),
}


@pytest.mark.parametrize("case", CASES)
async def test_a_keyword_takes_what_it_says_and_names_what_it_does_not(
    db: Connection, case: str
) -> None:
    schema, good, bad = CASES[case]
    for value in good:
        assert await problem(db, schema, value) is None, value
    for value, message in bad:
        assert message in str(await problem(db, schema, value)), value


# The same once more in Python, to be compared with.

TYPES: dict[str, Callable[[Any], bool]] = {
    "string": lambda value: isinstance(value, str),
    "number": lambda value: type(value) in (int, float),
    "integer": lambda value: type(value) in (int, float) and value == int(value),
    "boolean": lambda value: isinstance(value, bool),
    "object": lambda value: isinstance(value, dict),
    "array": lambda value: isinstance(value, list),
    "null": lambda value: value is None,
}


def canonical(value: Any) -> str:
    """JSON that is equal for equal values: 1 is 1.0, but not true."""
    if type(value) is float and value == int(value):
        return str(int(value))
    if isinstance(value, list):
        return f"[{','.join(map(canonical, value))}]"
    if isinstance(value, dict):
        parts = sorted(f"{key!r}:{canonical(part)}" for key, part in value.items())
        return f"{{{','.join(parts)}}}"
    return json.dumps(value)


def takes(schema: Any, value: Any, defs: Schema) -> bool:
    """Whether a schema of the subset takes a value; as its specification says."""
    if isinstance(schema, bool):
        return schema
    if "$ref" in schema:
        return takes(defs[schema["$ref"].removeprefix("#/$defs/")], value, defs)
    types = schema.get("type", [])
    types = [types] if isinstance(types, str) else types
    checks = [not types or any(TYPES[name](value) for name in types)]
    if "enum" in schema:
        checks.append(canonical(value) in map(canonical, schema["enum"]))
    if "const" in schema:
        checks.append(canonical(value) == canonical(schema["const"]))
    if "anyOf" in schema:
        checks.append(any(takes(form, value, defs) for form in schema["anyOf"]))
    checks += [takes(form, value, defs) for form in schema.get("allOf", [])]
    if isinstance(value, dict):
        known = schema.get("properties", {})
        rest = schema.get("additionalProperties", True)
        checks += [name in value for name in schema.get("required", [])]
        checks += [takes(known.get(key, rest), value[key], defs) for key in value]
    if isinstance(value, list) and "items" in schema:
        checks += [takes(schema["items"], part, defs) for part in value]
    return all(checks)


NAMES = st.sampled_from(["a", "b", "$ref", "type"])
SCALARS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-2, 2),
    st.sampled_from([0.5, 1.0, -2.0]),
    st.sampled_from(["", "a", "null"]),
)
VALUES = st.recursive(
    SCALARS,
    lambda parts: st.one_of(
        st.lists(parts, max_size=3), st.dictionaries(NAMES, parts, max_size=3)
    ),
    max_leaves=8,
)
TYPE_NAMES = st.sampled_from(sorted(TYPES))


def keywords(parts: st.SearchStrategy[Any]) -> st.SearchStrategy[Schema]:
    """Schemas of up to three keywords: more would take hardly anything."""
    strategies: dict[str, st.SearchStrategy[Any]] = {
        "type": TYPE_NAMES | st.lists(TYPE_NAMES, min_size=1, max_size=3),
        "properties": st.dictionaries(NAMES, parts, max_size=3),
        "required": st.lists(NAMES, max_size=2, unique=True),
        "additionalProperties": parts,
        "items": parts,
        "enum": st.lists(VALUES, min_size=1, max_size=3),
        "const": VALUES,
        "anyOf": st.lists(parts, min_size=1, max_size=3),
        "allOf": st.lists(parts, min_size=1, max_size=2),
    }
    chosen = st.lists(
        st.sampled_from(sorted(strategies)), min_size=1, max_size=3, unique=True
    )
    return chosen.flatmap(
        lambda names: st.fixed_dictionaries({name: strategies[name] for name in names})
    )


LEAVES: st.SearchStrategy[Any] = st.one_of(
    st.booleans(),
    st.just({}),
    st.fixed_dictionaries({"type": TYPE_NAMES}),
    st.fixed_dictionaries({"$ref": st.sampled_from(["#/$defs/A", "#/$defs/B"])}),
)
SCHEMAS = st.recursive(keywords(LEAVES), keywords, max_leaves=8)
SAMPLES = st.one_of(
    VALUES,
    st.lists(VALUES, min_size=1, max_size=3),
    st.dictionaries(NAMES, VALUES, min_size=1, max_size=4),
)
DEFS = st.fixed_dictionaries(
    {"A": keywords(st.fixed_dictionaries({"type": TYPE_NAMES})), "B": st.just({})}
)


def test_it_takes_exactly_what_the_specification_takes(database: str) -> None:
    with psycopg.connect(database, autocommit=True) as db:

        @settings(
            max_examples=250,
            deadline=None,
            database=None,
            derandomize=True,
            suppress_health_check=list(HealthCheck),
        )
        @given(SCHEMAS, DEFS, st.lists(SAMPLES, min_size=6, max_size=6))
        def check(schema: Any, defs: Schema, values: list[Any]) -> None:
            found = db.execute(
                "select pgwake.payload_problem(%s, v, %s)"
                " from jsonb_array_elements(%s) with ordinality as u(v, n) order by n",
                [Jsonb(schema), Jsonb(defs), Jsonb(values)],
            ).fetchall()
            for value, (answer,) in zip(values, found, strict=True):
                assert (answer is None) == takes(schema, value, defs), (value, answer)

        check()


class Address(BaseModel):
    street: str
    number: int | None = None


class Item(BaseModel):
    model_config = ConfigDict(extra="forbid")

    sku: str
    price: float
    sizes: list[int] = []


class Order(BaseModel):
    model_config = ConfigDict(extra="forbid")

    customer: str
    state: Literal["new", "paid"] = "new"
    version: Literal[2] = 2
    note: str | None = None
    address: Address | None = None
    items: list[Item]
    labels: dict[str, int] = {}
    express: bool = False
    parent: "Order | None" = None


GOOD_ORDER: dict[str, Any] = {
    "customer": "Ada",
    "state": "paid",
    "version": 2,
    "note": None,
    "address": {"street": "x", "number": None, "floor": 3},
    "items": [{"sku": "a", "price": 1}, {"sku": "b", "price": 1.5, "sizes": [1, 2]}],
    "labels": {"a": 1},
    "express": True,
    "parent": {"customer": "Grace", "items": [], "parent": None},
}
BAD_ORDERS: list[tuple[dict[str, Any], str]] = [
    ({"customer": None}, "customer must be a string, not null"),
    ({"state": "sent"}, 'state must be one of "new", "paid"'),
    ({"version": 3}, "version must be 2"),
    ({"note": 1}, "note must be a string or null, not a number"),
    ({"address": {}}, "address.street is missing"),
    (
        {"address": {"street": "x", "number": "1 a"}},
        "address.number must be an integer",
    ),
    ({"items": {}}, "items must be an array, not an object"),
    ({"items": [{"sku": "a", "price": 1}, {"sku": "a"}]}, "items.1.price is missing"),
    ({"items": [{"sku": "a", "price": "x"}]}, "items.0.price must be a number"),
    (
        {"items": [{"sku": "a", "price": 1, "sizes": [1, 1.5]}]},
        "items.0.sizes.1 must be",
    ),
    ({"items": [{"sku": "a", "price": 1, "size": 1}]}, "items.0.size is unknown"),
    ({"labels": {"a": 1, "b": "x"}}, "labels.b must be an integer, not a string"),
    ({"express": "maybe"}, "express must be a boolean, not a string"),
    ({"customr": "x"}, "customr is unknown"),
    ({"parent": {"items": []}}, "parent.customer is missing"),
    ({"parent": {"customer": "x", "items": [{}]}}, "parent.items.0.sku is missing"),
]


async def test_what_a_model_of_pydantic_takes_is_taken(db: Connection) -> None:
    adapter = TypeAdapter(Order)
    await declare(db, adapter.json_schema(), "order")
    await switch_on(db, "order")
    for payload in (GOOD_ORDER, {"customer": "x", "items": []}):
        adapter.validate_python(payload)
        await insert(db, "order", payload=payload)


@pytest.mark.parametrize(("change", "message"), BAD_ORDERS)
async def test_what_a_model_of_pydantic_refuses_is_refused_by_the_fields_name(
    db: Connection, change: dict[str, Any], message: str
) -> None:
    adapter = TypeAdapter(Order)
    payload = {**GOOD_ORDER, **change}
    with pytest.raises(ValidationError):
        adapter.validate_python(payload)
    await declare(db, adapter.json_schema(), "order")
    await switch_on(db, "order")

    with refused("PW003") as caught:
        await insert(db, "order", payload=payload)
    assert str(caught.value).startswith(f"payload of kind order: {message}")


async def test_the_hint_lists_what_there_is(db: Connection) -> None:
    await declare(db, MAIL)
    hints = []
    for payload in ({"to": "a", "subjct": "x"}, {}, {"to": 1}):
        with refused("PW003") as caught:
            await call(db, "check_payload", kind="mail", payload=payload)
        hints.append(caught.value.hint)

    assert hints == [
        "Known fields are: copies, subject, to.",
        "Needed are: to.",
        "Send the JSON type that the kind's handler takes.",
    ]


async def test_an_operator_can_try_before_the_switch_is_set(db: Connection) -> None:
    await declare(db, MAIL)
    await insert(db, "mail", payload={"subjct": 1})
    bad = "select id from pgwake.jobs where pgwake.check_payload(kind, payload) is null"
    with refused("PW003"):
        await db.fetch(bad)

    await call(db, "check_payload", kind="mail", payload={"to": "a"})


async def test_a_kind_that_declares_nothing_takes_anything(db: Connection) -> None:
    await switch_on(db)
    schemas: list[Schema | None] = [None, {}]
    for schema in schemas:
        await declare(db, schema)
        await insert(db, "mail", payload={"x": 1})
        await call(db, "check_payload", kind="mail", payload={"x": 1})
    await call(db, "check_payload", kind="none", payload={"x": 1})


@pytest.mark.parametrize(("kind", "payload"), [(None, {}), ("mail", None)])
async def test_nothing_is_no_argument(
    db: Connection, kind: str | None, payload: Any
) -> None:
    with refused("PW003"):
        await call(db, "check_payload", kind=kind, payload=payload)


async def test_no_declaration_switches_the_check_on(db: Connection) -> None:
    await declare(db, MAIL)

    assert await insert(db, "mail", payload={"subjct": 1}) == 1


async def test_one_bad_row_refuses_its_statement_and_is_named(db: Connection) -> None:
    await declare(db, MAIL)
    await switch_on(db)
    with refused("PW003") as caught:
        await db.execute(
            "insert into pgwake.jobs (kind, payload)"
            " select 'mail', jsonb_build_object('to', case when n <> 700 then 'a' end)"
            " from generate_series(1, 1000) as n"
        )

    assert "to must be a string, not null" in str(caught.value)
    assert caught.value.detail == "row 700 of 1000"  # no payload goes into a log
    assert await db.fetchval("select count(*) from pgwake.jobs") == 0


async def test_copy_is_checked_too(db: Connection) -> None:
    await declare(db, MAIL)
    await switch_on(db)
    records = [("other", "{}"), ("mail", '{"to": "a"}'), ("mail", "{}")]

    async def copy(records: list[tuple[str, str]]) -> None:
        rows = "\n".join("\t".join(record) for record in records)
        await db.copy_to_table(
            "jobs",
            schema_name="pgwake",
            columns=["kind", "payload"],
            source=io.BytesIO(rows.encode()),
        )

    with refused("PW003"):
        await copy(records)
    await copy(records[:2])
    assert await db.fetchval("select count(*) from pgwake.jobs") == 2


async def test_other_kinds_of_the_statement_are_not_looked_at(db: Connection) -> None:
    await declare(db, MAIL)
    await switch_on(db)
    await declare(db, MAIL, "unchecked")
    await db.execute(
        "insert into pgwake.jobs (kind, payload)"
        """ values ('unchecked', '{}'), ('other', '{}'), ('mail', '{"to": "a"}')"""
    )


async def test_enqueue_is_checked_when_it_adds_and_when_it_replaces(
    db: Connection,
) -> None:
    await declare(db, MAIL)
    await switch_on(db)
    options = {"kind": "mail", "unique_key": "k", "on_conflict": "replace"}
    with refused("PW003"):
        await call(db, "enqueue", **options, payload={})
    job_id = await call(db, "enqueue", **options, payload={"to": "a"})
    with refused("PW003") as caught:
        await call(db, "enqueue", **options, payload={"to": 1})

    assert "payload of kind mail: to must be" in str(caught.value)
    assert (await job(db, job_id))["payload"] == {"to": "a"}
    await call(db, "enqueue", **options, payload={"to": "b"})
    assert (await job(db, job_id))["payload"] == {"to": "b"}


async def test_a_changed_schema_holds_at_once_for_new_jobs_only(db: Connection) -> None:
    await declare(db, MAIL)
    await switch_on(db)
    job_id = await insert(db, "mail", payload={"to": "a"})
    await declare(db, {**MAIL, "required": ["to", "subject"]})

    with refused("PW003"):
        await insert(db, "mail", payload={"to": "a"})
    assert await status(db, job_id) == "pending"


def deep(levels: int, end: Any) -> Any:
    for _ in range(levels):
        end = {"a": end}
    return end


async def test_what_is_nested_deeper_than_twenty_passes(db: Connection) -> None:
    tree = {"properties": {"a": {"$ref": "#/$defs/T"}, "b": STRING}}
    schema = {"$ref": "#/$defs/T", "$defs": {"T": tree}}

    assert await problem(db, schema, deep(19, {"b": 1})) is not None
    assert await problem(db, schema, deep(20, {"b": 1})) is None
    assert await problem(db, schema, deep(400, {"b": 1})) is None


async def test_a_name_of_any_length_is_clipped(db: Connection) -> None:
    schema = {"additionalProperties": False}
    message = await problem(db, schema, {"x" * 100_000: 1})

    assert message == "x" * 64 + " is unknown"
