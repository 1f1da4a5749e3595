import uuid
from typing import Any

import psycopg
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from support import Connection
from support.sql.helpers import call, job, pair, running

# Errors of one cause: what differs from job to job stands where the {} is.
TEMPLATES = [
    "ValueError: no such order: {}",
    "KeyError: {}",
    "TimeoutError: {} did not answer",
    "can't open {}, can't go on",
    "duplicate key: ({}) already exists",
    "{}",
]
SAME_CAUSE = [
    ("order 12 is gone", "order 98765 is gone"),
    ("took 1,234,567 bytes", "took 12 bytes"),
    ("at 0x7f8b1c2d3e4f>", "at 0x7ffe00112233>"),
    ("lag is -3.5e-07 s", "lag is 0.25 s"),
    ("at 2026-11-28T06:42:00.123Z", "at 2025-01-02T00:00:00Z"),
    ("at 2026-11-28 06:42:00+00:00", "at 2025-01-02 23:59:59+00:00"),
    ("10.0.0.1:5432 refused", "192.168.178.200:6432 refused"),
    ("fe80::1ff:fe23:4567:890a is down", "::1 is down"),
    ("no row 'it\\'s'", "no row 'x'"),
    ("no row 'it''s'", "no row 'x'"),
    ('no row "a \\" b"', 'no row "c"'),
    ("can't find 'a b' or 'c'", "can't find 'd' or 'e f'"),
    ("mail to a.b+c@example.org failed", "mail to d@mail.example.com failed"),
    ("GET https://a.example/b?c=d failed", "GET http://x.example/ failed"),
    ("no file /var/lib/a/b.txt", "no file /tmp/x"),
    ("no file C:\\Users\\a\\b.txt", "no file D:\\x"),
    ("charge ch_1NirD82eZvKYlo2CIvbtLWuy", "charge ch_3MmlLr4LkdIwHu7ix9snN0B15"),
    ("commit 9f86d081884c7d65 broke", "commit 2c26b46b68ffc68f broke"),
    ("id 550e8400-e29b-41d4-a716-446655440000", "id " + str(uuid.UUID(int=7))),
    ("not in [1, 2, 3]", "not in [4, 5]"),
    ("not in ('a', 'b', 'c')", "not in ('d')"),
    ("short\nline 3 of file x", "short\nanother"),
    ("\n  lead", "lead"),
]
OTHER_CAUSES = [
    "connection refused",
    "connection reset",
    "added a dead face",
    "added a bad decade",
    "KeyError: 'x'",
    "ValueError: 'x'",
    "can't read and can't write",
    "can't seek and can't write",
    "std::bad_alloc",
    "std::bad_cast",
    "no such table",
    "no such column",
    "expected an int, got a str",
    "expected a str, got an int",
    "read/write error",
    "read error",
    "",
]


async def fingerprint(db: Connection, message: str | None, kind: str = "k") -> Any:
    return await call(db, "error_fingerprint", kind=kind, message=message)


@pytest.mark.parametrize(("one", "other"), SAME_CAUSE)
async def test_what_differs_from_job_to_job_is_left_out(
    db: Connection, one: str, other: str
) -> None:
    assert await fingerprint(db, one) == await fingerprint(db, other)


async def test_errors_that_say_something_else_stay_apart(db: Connection) -> None:
    found = {text: await fingerprint(db, text) for text in OTHER_CAUSES}
    assert len(set(found.values())) == len(OTHER_CAUSES), found


async def test_the_same_error_of_another_kind_is_another(db: Connection) -> None:
    assert await fingerprint(db, "boom", "a") != await fingerprint(db, "boom", "b")


async def test_a_quote_that_was_cut_off_is_left_out_too(db: Connection) -> None:
    long, longer = ("no row '" + letter * 3000 for letter in "ab")
    assert await fingerprint(db, long) == await fingerprint(db, longer)


async def test_no_message_is_an_empty_one(db: Connection) -> None:
    held = await running(db, kind="k")
    await call(db, "fail_job", **pair(held), retryable=False)

    stored = (await job(db, held["id"]))["fingerprint"]
    assert stored == await fingerprint(db, "")
    assert stored == await fingerprint(db, None)


SHAPES = [
    st.uuids().map(str),
    st.integers(-(2**70), 2**70).map(str),
    st.floats(allow_nan=False, allow_infinity=False).map(repr),
    st.integers(0, 2**64).map(hex),
    st.binary(min_size=16, max_size=32).map(bytes.hex),
    st.ip_addresses(v=4).map(str),
    st.datetimes().map(str),
    st.text("abc xyz'", max_size=20).map(repr),
    st.text('abc xyz"', max_size=20).map(lambda text: repr("'" + text)),
    st.emails(domains=st.just("example.org")).map(lambda text: f'"{text}"'),
    st.from_regex(r"(/[a-z]{1,8}){1,5}", fullmatch=True),
]


@pytest.fixture
def plain(database: str) -> Any:
    with psycopg.connect(database, autocommit=True) as db:
        yield db


def plain_fingerprint(db: psycopg.Connection, message: str) -> str:
    row = db.execute("select pgwake.error_fingerprint('k', %s)", [message]).fetchone()
    assert row is not None
    found: str = row[0]
    return found


@settings(
    max_examples=300,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(
    template=st.sampled_from(TEMPLATES),
    values=st.sampled_from(SHAPES).flatmap(lambda shape: st.tuples(shape, shape)),
)
def test_any_two_values_of_one_shape_give_the_same_fingerprint(
    plain: psycopg.Connection, template: str, values: tuple[str, str]
) -> None:
    one, other = (template.format(value) for value in values)
    assert plain_fingerprint(plain, one) == plain_fingerprint(plain, other)


@settings(
    max_examples=300,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(
    message=st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]))
)
def test_any_text_has_one(plain: psycopg.Connection, message: str) -> None:
    assert len(plain_fingerprint(plain, message)) == 16
