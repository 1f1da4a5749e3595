"""What is put in: values of each type, good, at the edge and bad, as text."""

import json
from datetime import UTC, datetime
from typing import Any, TypeAlias, TypeVar

from hypothesis import strategies as st

T = TypeVar("T")
U = TypeVar("U")
Text: TypeAlias = "st.SearchStrategy[str]"

MIB = 1048576
HOSTILE = [
    "",
    " ",
    "a\0b",
    "\ud800",
    "\udcff",
    "\x1b[2J\x1b]0;title\x07",
    "\N{RIGHT-TO-LEFT OVERRIDE}reversed",
    "line\r\nfeed\ttab",
    "\x7f\x9b31m\u2028\ufeff\uffff",
    "caf\u00e9",
    "cafe\u0301",
    "\N{ELEPHANT}",
    "'; drop table pgwake.jobs; --",
    '"; drop table pgwake.jobs; --',
    "back\\slash\\",
    "\\.",
    "\\N",
    "$$ %s %I %(a)s $1 {0} {name}",
    "[red]a[/red][/]",
    "-",
    "--help",
    "-1",
    "{}",
    "{1,2}",
    "null",
    "NaN",
    "../../etc/passwd",
    "<script>alert(1)</script>",
]


def rarely(one_in: int) -> "st.SearchStrategy[bool]":
    """True once in so many; hypothesis likes the ends of a range, so not there."""
    return st.integers(0, one_in).map(lambda number: number == (one_in + 1) // 2)


def mostly(
    usual: "st.SearchStrategy[T]", rare: "st.SearchStrategy[U]", one_in: int
) -> "st.SearchStrategy[T | U]":
    """The rare one once in so many."""
    return rarely(one_in).flatmap(lambda is_rare: rare if is_rare else usual)


# Queues, kinds, keys, workers and schedules: few, so that what is put in meets.
NAMES = ["default", "fuzz", "q1", "k1", "fuzz.echo", "w1", "pgwake.webhook"]
WORDS = [
    *("pending", "waiting", "running", "failed", "completed", "cancelled"),
    *("return", "replace", "raise", "cancel", "run", "skip", "once", "all"),
    *("unstarted", "snooze", "shutdown", "unknown_kind", "refused", "timeout"),
    *("sweep", "fold", "retention", "analyze", "recount", "keys", "children"),
    *("watched", "always", "never", "asleep", "UTC", "Europe/Berlin", "1.2.3"),
    *(
        "* * * * *",
        "*/5 1 L * MON-FRI",
        "@daily",
        "0 0 31 2 *",
        "* * * *",
        "99 * * * *",
    ),
    *(
        "http://127.0.0.1:9/",
        "https://a/\N{ELEPHANT}",
        "ftp://a",
        "http:///",
        "http://",
    ),
]
_SIZES = st.sampled_from([127, 128, 129, 255, 257, 512, 513, 2048, 2049, 8000, 65537])
_LONG = st.builds(
    lambda size, letter: letter * (size // len(letter.encode())),
    _SIZES,
    st.sampled_from(["x", "\u00e9", "\N{ELEPHANT}", "\n"]),
)
NAME: Text = st.sampled_from(NAMES)
TEXT: Text = st.one_of(
    NAME,
    st.sampled_from(WORDS),
    st.sampled_from(HOSTILE),
    st.text(max_size=12),
    _LONG,
)

# Of the jobs that are there to be met, and of none: never of the good ones.
VICTIMS = 40
FIRST_GOOD_ID, FIRST_FREE_ID = 1_000, 10**9
ID: Text = st.one_of(
    st.integers(1, VICTIMS),
    st.sampled_from([0, -1, -(2**63), 2**63 - 1, FIRST_FREE_ID]),
    st.integers(FIRST_FREE_ID, 2**63 - 1),
).map(str)
INTEGER: Text = st.one_of(
    st.integers(1, 25).map(str),
    st.integers(1, 25).map(str),
    st.integers(-2, 100).map(str),
    st.sampled_from([100, -100, 101, 1000, 10_000, 10_001, 100_000, 1_000_001]).map(
        str
    ),
    st.sampled_from([2**15, 2**31 - 1, -(2**31), 2**31, 2**63 - 1]).map(str),
    st.integers(-(2**31), 2**31 - 1).map(str),
    st.sampled_from(["", "1.5", "1e3", "one", " 7 ", "0x10", "1_000", "\u0661"]),
)
FLOAT: Text = st.one_of(
    st.floats(0, 1).map(repr),
    st.sampled_from(["0", "-0", "1", "0.5", "-1", "0.001", "1e6", "1000001", "1e308"]),
    st.sampled_from(["5e-324", "NaN", "Infinity", "-Infinity", "1e309", "", "1,5"]),
    st.floats(allow_nan=False).map(repr),
)
BOOLEAN: Text = st.sampled_from(["true", "false", "true", "false", "perhaps"])
_MICROSECONDS = st.integers(-(2**63), 2**63 - 1)
INTERVAL: Text = st.one_of(
    st.integers(1, 86_400).map("{} seconds".format),
    st.sampled_from(["0", "1 second", "30 seconds", "5 minutes", "1 hour", "1 day"]),
    st.sampled_from(["-1 second", "1 microsecond", "0.1 second", "1 mon -30 days"]),
    st.sampled_from(["366 days", "367 days", "10 years", "100 years", "101 years"]),
    st.sampled_from(
        ["178000000 years", "-178000000 years", "2147483647 days", "infinity"]
    ),
    st.sampled_from(["-infinity", "2562047788 hours", "", "soon", "1 fortnight"]),
    st.builds(
        "{} mons {} days {} microseconds".format,
        st.integers(-(2**31), 2**31 - 1),
        st.integers(-(2**31), 2**31 - 1),
        _MICROSECONDS,
    ),
)
TIME: Text = st.one_of(
    st.sampled_from(["now", "yesterday", "tomorrow", "2027-01-31T08:00:00+01:00"]),
    st.datetimes(datetime(2020, 1, 1), datetime(2030, 1, 1)).map(  # noqa: DTZ001
        lambda at: f"{at.isoformat()}Z"
    ),
    st.sampled_from(["now", "epoch", "infinity", "-infinity", "", "never", "24:00"]),
    st.sampled_from(
        [
            *("0001-01-01 00:00Z", "0001-01-02 00:00Z", "9999-12-30 23:59:59.999999Z"),
            *("9999-12-31 00:00Z", "10000-01-01 00:00Z", "294276-12-31 23:59:59Z"),
            *("294277-01-01 00:00Z", "4714-11-24 00:00Z BC", "2028-02-30 00:00Z"),
            *("2027-03-28T02:30:00+01:00", "2027-06-30 23:59:60Z", "2027-01-01"),
        ]
    ),
    st.datetimes(timezones=st.just(UTC)).map(lambda at: at.isoformat()),
)
UUID: Text = st.one_of(
    st.just("00000000-0000-0000-0000-000000000000"),
    st.uuids().map(str),
    st.sampled_from(["", "no-uuid"]),
)

# Fields that mean something to some function, operation or file.
JOB_FIELDS = [
    *("kind", "payload", "queue", "priority", "run_at", "delay", "max_attempts"),
    *("unique_key", "on_conflict", "metadata", "concurrency_key", "depends_on"),
    *("on_parent_failure", "webhook"),
]
FIELDS = [
    *(*JOB_FIELDS, "jobs", "delay_seconds", "until", "seconds"),
    *("limit", "fingerprint", "timeout", "lease", "backoff_base", "backoff_cap"),
    *("backoff_jitter", "schema", "type", "properties", "required", "items", "enum"),
    *("const", "anyOf", "oneOf", "allOf", "additionalProperties", "$ref", "$defs"),
    *("head_at", "resume_points", "next_at", "keys", "0", "-5", "201"),
    *("schedule", "to"),
    *("traceparent", "tracestate", "scheduled_for", "url", "secret"),
]
_NAME_OF_FIELD = st.one_of(st.sampled_from(FIELDS), NAME, st.text(max_size=3))
_NUMBERS = st.one_of(
    st.integers(-2, 101),
    st.integers(),
    st.sampled_from([2**31, 2**53 + 1, 2**63, -(2**63) - 1, 10**400]),
    st.floats(),
)
_LEAVES = st.one_of(
    st.none(),
    st.booleans(),
    _NUMBERS,
    TEXT,
    INTERVAL,
    TIME,
    st.sampled_from(["object", "string", "#/$defs/a", "#/$defs", "integer", "array"]),
)
VALUE: st.SearchStrategy[Any] = st.recursive(
    _LEAVES,
    lambda inner: st.one_of(
        st.lists(inner, max_size=4), st.dictionaries(_NAME_OF_FIELD, inner, max_size=5)
    ),
    max_leaves=12,
)
OBJECT: st.SearchStrategy[dict[str, Any]] = st.dictionaries(
    _NAME_OF_FIELD, VALUE, max_size=6
)
_DEEP = st.builds(
    lambda depth, opening, inner, closing: opening * depth + inner + closing * depth,
    st.sampled_from([20, 400, 501, 1000, 3000, 10_000, 100_000]),
    st.just('{"a":'),
    st.sampled_from(["1", "null", "{}"]),
    st.just("}"),
)
_ODD = [
    *("", "{", "[1,]", "{'a': 1}", "nul", '"', '{"a": 1} {"b": 2}', '{"a": NaN}'),
    *('{"a": "\\u0000"}', '{"\\u0000": 1}', '{"a": "\\ud800"}', '{"a": 1, "a": 2}'),
    *('{"a": 1e131071}', '{"a": 1e999999}', '{"a": 1e-16383}', '{"a": -0.0}'),
    *("[]", "[[]]", "[null]", "null", "0", '"text"', "[" * 9000 + "]" * 9000),
    '{"$ref": "#/$defs/a", "$defs": {"a": {"$ref": "#/$defs/a"}}}',
]
_BIG = st.builds(
    lambda size, letter: '{"a": "' + letter * size + '"}',
    st.sampled_from([65_526, 65_527, MIB - 10, MIB - 9, 2 * MIB]),
    st.sampled_from(["x", "\\n", "\u00e9"]),
)


def dumped(value: Any) -> str:
    """JSON, or as near as a careless client comes: NaN, lone surrogates."""
    return json.dumps(value, ensure_ascii=False)


# What is large is slow.
JSON_OBJECT: Text = mostly(OBJECT.map(dumped), st.one_of(_BIG, _DEEP), 30)
JSON: Text = st.one_of(
    JSON_OBJECT, st.one_of(VALUE, OBJECT).map(dumped), st.sampled_from(_ODD)
)
_JOB = st.builds(
    lambda kind, others: {"kind": kind, **others},
    NAME,
    st.dictionaries(
        st.sampled_from(JOB_FIELDS), st.one_of(_LEAVES, VALUE, OBJECT), max_size=2
    ),
)
CHANGES: Text = mostly(
    st.dictionaries(
        st.sampled_from(
            ["priority", "run_at", "queue", "max_attempts", "payload", "metadata"]
        ),
        st.one_of(_LEAVES, VALUE, OBJECT, NAME),
        max_size=2,
    ).map(dumped),
    JSON,
    6,
)
JOBS: Text = mostly(st.lists(_JOB, max_size=3).map(dumped), JSON, 6)
