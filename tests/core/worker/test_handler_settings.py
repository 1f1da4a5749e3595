"""Handlers that settings name: how they are read, and what is said of a bad one."""

import base64
import json

import pytest

from pgwake import ConfigurationError, Settings

SECRET = base64.b64encode(b"k" * 24).decode()


def load(monkeypatch: pytest.MonkeyPatch, **variables: str) -> Settings:
    """The settings by these variables."""
    for name, value in variables.items():
        monkeypatch.setenv(f"PGWAKE_{name}", value)
    return Settings.load()


@pytest.mark.parametrize(
    "text",
    [
        '{"a": "http://a/?x=1,2", "b=c": "http://b"}',
        ' {"b=c": "http://b",\n "a": "http://a/?x=1,2"}',
    ],
)
def test_handlers_can_be_a_json_object(
    monkeypatch: pytest.MonkeyPatch, text: str
) -> None:
    settings = load(monkeypatch, HTTP_HANDLERS=text)
    assert settings.http_handlers == {"a": "http://a/?x=1,2", "b=c": "http://b"}


def test_handlers_can_be_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    settings = load(monkeypatch, EXEC_HANDLERS="\n a=sh -c 'x=1, y'\n b = cat\n\n")
    assert settings.exec_handlers == {"a": "sh -c 'x=1, y'", "b": "cat"}


def test_what_a_worker_process_is_told_are_the_same_settings() -> None:
    given = Settings.load(
        http_handlers=["a=http://a/?token=t"],
        exec_handlers={"b": "cat"},
        webhooks=True,
        signing_secret=f"whsec_{SECRET},{SECRET}",
        http_allow_private="10.0.0.0/8,hooks.internal",
        exec_environment="A,B",
    )
    told = Settings.load(**json.loads(json.dumps(given.dump())))

    assert told == given
    assert told.signing_keys == (b"k" * 24, b"k" * 24)


@pytest.mark.parametrize(
    ("name", "values"),
    {
        "HTTP_HANDLERS": ["{", "[]", "a", "=x", "a=", '{"a": 1}', "a=b\na=c"],
        "EXEC_HANDLERS": ["{", "a", "a='very-secret", '{"a": ""}', "a=''\nb"],
        "WEBHOOKS": ["maybe"],
        "SIGNING_SECRET": ["very-secret", "whsec_", SECRET + ",very", "c2hvcnQ="],
        "HTTP_TIMEOUT": ["0", "-1", "nan"],
        "HTTP_REDIRECTS": ["sometimes"],
        "HTTP_ALLOW_PRIVATE": ["10.0.0.0/33", "http://a", "a b"],
    }.items(),
)
def test_a_bad_value_is_told_in_one_line_that_names_its_variable(
    monkeypatch: pytest.MonkeyPatch, name: str, values: list[str]
) -> None:
    for value in values:
        with pytest.raises(ConfigurationError) as caught:
            load(monkeypatch, **{name: value})
        said = str(caught.value)
        assert f"PGWAKE_{name}" in said, value
        assert "\n" not in said
        assert "very" not in said
