import json
from typing import Any

import psycopg
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

# The examples of RFC 7396, appendix A: original, patch, result.
EXAMPLES: list[tuple[Any, Any, Any]] = [
    ({"a": "b"}, {"a": "c"}, {"a": "c"}),
    ({"a": "b"}, {"b": "c"}, {"a": "b", "b": "c"}),
    ({"a": "b"}, {"a": None}, {}),
    ({"a": "b", "b": "c"}, {"a": None}, {"b": "c"}),
    ({"a": ["b"]}, {"a": "c"}, {"a": "c"}),
    ({"a": "c"}, {"a": ["b"]}, {"a": ["b"]}),
    ({"a": {"b": "c"}}, {"a": {"b": "d", "c": None}}, {"a": {"b": "d"}}),
    ({"a": [{"b": "c"}]}, {"a": [1]}, {"a": [1]}),
    (["a", "b"], ["c", "d"], ["c", "d"]),
    ({"a": "b"}, ["c"], ["c"]),
    ({"a": "foo"}, None, None),
    ({"a": "foo"}, "bar", "bar"),
    ({"e": None}, {"a": 1}, {"e": None, "a": 1}),
    ([1, 2], {"a": "b", "c": None}, {"a": "b"}),
    ({}, {"a": {"bb": {"ccc": None}}}, {"a": {"bb": {}}}),
]

JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-9, 9) | st.text("ab", max_size=2),
    lambda inner: (
        st.lists(inner, max_size=2) | st.dictionaries(st.sampled_from("abc"), inner)
    ),
    max_leaves=12,
)


def by_the_book(target: Any, patch: Any) -> Any:
    """The pseudo code of RFC 7396, section 2."""
    if not isinstance(patch, dict):
        return patch
    merged = dict(target) if isinstance(target, dict) else {}
    for name, value in patch.items():
        if value is None:
            merged.pop(name, None)
        else:
            merged[name] = by_the_book(merged.get(name), value)
    return merged


@pytest.fixture
def plain(database: str) -> Any:
    with psycopg.connect(database, autocommit=True) as db:
        yield db


def merged(db: psycopg.Connection, target: Any, patch: Any) -> Any:
    row = db.execute(
        "select pgwake.merge_patch(%s::jsonb, %s::jsonb)::text",
        [json.dumps(target), json.dumps(patch)],
    ).fetchone()
    assert row is not None
    return json.loads(row[0])


@pytest.mark.parametrize(("target", "patch", "result"), EXAMPLES)
def test_the_examples_of_the_standard(
    plain: psycopg.Connection, target: Any, patch: Any, result: Any
) -> None:
    assert merged(plain, target, patch) == result


@settings(
    max_examples=300,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(target=JSON, patch=JSON)
def test_it_is_as_the_standard_has_it(
    plain: psycopg.Connection, target: Any, patch: Any
) -> None:
    assert merged(plain, target, patch) == by_the_book(target, patch)


def test_no_patch_changes_nothing(plain: psycopg.Connection) -> None:
    row = plain.execute("select pgwake.merge_patch('{\"a\": 1}', null)").fetchone()
    assert row == ({"a": 1},)
