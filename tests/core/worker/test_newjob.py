"""What is refused before the database is asked."""

from datetime import UTC, date, datetime, timedelta
from typing import Any

import pytest

from pgwake import InvalidArgumentError, NewJob


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"kind": 1}, "kind is 1: use a text"),
        ({"kind": None}, "kind is None: use a text"),
        ({"kind": "a\0"}, r"kind: a string holds \\u0000"),
        ({"queue": "\ud800"}, "queue: a string holds a lone surrogate"),
        ({"unique_key": b"u"}, "unique_key is b'u': use a text"),
        ({"payload": [1]}, "payload is of type list: use a dict"),
        ({"payload": {"a": float("nan")}}, "payload: not a JSON value"),
        ({"payload": {"a": float("inf")}}, "payload: not a JSON value"),
        ({"payload": {"a": ["\0"]}}, r"payload: a string holds \\u0000"),
        ({"payload": {"\udc00": 1}}, "payload: a string holds a lone surrogate"),
        ({"payload": {"a": object()}}, "payload: not a JSON value"),
        ({"metadata": "m"}, "metadata is of type str: use a dict"),
        ({"metadata": {"a": float("nan")}}, "metadata: not a JSON value"),
        ({"priority": 1.5}, "priority is 1.5: use a number"),
        ({"priority": True}, "priority is True: use a number"),
        ({"priority": -101}, "priority is -101: use -100 to 100"),
        ({"max_attempts": "3"}, "max_attempts is '3': use a number"),
        ({"run_at": datetime(2027, 1, 1)}, "run_at 2027-01-01 00:00:00 has no time"),  # noqa: DTZ001
        ({"run_at": date(2027, 1, 1)}, r"run_at is datetime.date\(2027, 1, 1\): use a"),
        ({"run_at": "2027-01-01T00:00Z"}, "run_at is '2027-01-01T00:00Z': use a date"),
        ({"run_at": datetime.now(UTC), "delay": 1}, "both given"),
        ({"delay": -0.1}, "delay is -0.1: use 0 to 36500 days"),
        ({"delay": timedelta(days=36501)}, "use 0 to 36500 days"),
        ({"delay": float("nan")}, "delay is nan: use a timedelta, or seconds"),
        ({"delay": float("inf")}, "delay is inf: use a timedelta, or seconds"),
        ({"delay": "5"}, "delay is '5': use a timedelta, or seconds"),
        ({"on_conflict": "ignore"}, "on_conflict is 'ignore': use return, replace or"),
        ({"depends_on": "12"}, "depends_on: use a list of jobs' ids"),
        ({"depends_on": 12}, "depends_on: use a list of jobs' ids"),
        ({"depends_on": [None]}, "depends_on: use a list of jobs' ids"),
        ({"webhook": 1}, "webhook is 1: use a text"),
    ],
)
def test_what_can_not_be_meant_is_refused_by_name(
    fields: dict[str, Any], said: str
) -> None:
    with pytest.raises(InvalidArgumentError, match=said):
        NewJob(**{"kind": "a", **fields})


def test_a_refusal_never_shows_the_payload() -> None:
    for payload in ({"a": ["canary", "\0"]}, ["canary"], {"canary": object()}):
        with pytest.raises(InvalidArgumentError) as caught:
            NewJob("a", payload)  # type: ignore[arg-type]  # one is a list
        assert "canary" not in str(caught.value)


def test_what_changes_in_a_payload_later_changes_nothing() -> None:
    payload = {"to": "a"}
    new = NewJob("mail", payload)
    payload["to"] = "b"

    assert '"to":"a"' in new.as_json()


def test_a_job_that_is_copied_can_not_look_for_a_live_job() -> None:
    with pytest.raises(InvalidArgumentError, match="copy can't return a live job"):
        NewJob("a", unique_key="u").check_copy()
