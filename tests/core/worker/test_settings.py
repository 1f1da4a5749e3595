"""Settings: where they come from, and what is said of a bad one."""

import base64
import json
from pathlib import Path

import pytest

from pgwake import ConfigurationError, Settings
from pgwake.settings import env_file_is_open, parse_queue

SECRET = base64.b64encode(b"k" * 24).decode()
URL = "postgresql://me:very-secret@127.0.0.1:1/nowhere"


def refusal(monkeypatch: pytest.MonkeyPatch, **variables: str) -> str:
    """What is said of these variables."""
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(ConfigurationError) as caught:
        Settings.load()
    return str(caught.value)


@pytest.mark.parametrize(
    ("name", "values"),
    {
        "PROCESSES": ["0", "257", "-1", "many", "1.5"],
        "POLL_INTERVAL": ["0", "-1", "nan", "inf", "soon", "86401"],
        "LEASE": ["0", "0.9", "-1", "nan", "86401"],
        "GRACE": ["-1", "nan", "inf", "86401"],
        "CANCEL_GRACE": ["0", "-1", "nan"],
        "STALL_TIMEOUT": ["0", "-1", "nan", "299"],
        "QUERY_TIMEOUT": ["0", "-1", "nan"],
        "HTTP_PORT": ["-1", "65536", "http"],
        "LOG_FORMAT": ["xml"],
        "LOG_LEVEL": ["loud"],
        "LOG_JOBS_PER_SECOND": ["-1", "nan"],
        "QUEUES": [":5", "a:0", "a:10001", "a,a:5", "x" * 129, "a:5,b:99999"],
        "DATABASE_URL": [
            "mysql://me:very-secret@host/db",
            "me:very-secret@host/db",
            "postgresql://me:very-secret@host:port/db",
            "postgresql://me:very-secret@host:99999999/db",
            "postgresql://me:very/secret@host/db",
        ],
        "LISTEN_URL": ["mysql://me:very-secret@host/db"],
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
        said = refusal(monkeypatch, **{f"PGWAKE_{name}": value})
        assert f"PGWAKE_{name}" in said, value
        assert "\n" not in said
        assert "very" not in said


def test_every_bad_value_is_told_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    said = refusal(monkeypatch, PGWAKE_PROCESSES="0", PGWAKE_GRACE="-1")

    assert "PGWAKE_PROCESSES" in said
    assert "PGWAKE_GRACE" in said


def test_a_bad_flag_is_told_by_its_name_and_its_variables() -> None:
    with pytest.raises(ConfigurationError, match=r"--poll-interval.*PGWAKE_POLL"):
        Settings.load(poll_interval=0)


def test_a_stall_timeout_must_be_well_under_the_lease(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    said = refusal(monkeypatch, PGWAKE_LEASE="10", PGWAKE_STALL_TIMEOUT="9")

    assert "use at most 8" in said


def test_flags_come_before_variables_and_variables_before_the_file(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / ".env").write_text(
        "PGWAKE_GRACE=1\nPGWAKE_LEASE=10\nPGWAKE_PROCESSES=2\n"
    )
    monkeypatch.setenv("PGWAKE_LEASE", "20")
    monkeypatch.setenv("PGWAKE_PROCESSES", "3")
    settings = Settings.load(processes=4)

    assert (settings.grace, settings.lease, settings.processes) == (1, 20, 4)


def test_a_file_that_is_not_utf_8_is_told(tmp_path: Path) -> None:
    file = tmp_path / ".env"
    for encoding in ("utf-16", "utf-16-le", "latin-1"):
        file.write_text("PGWAKE_GRACE=1\nPGWAKE_IMPORTS=ä\n", encoding)
        with pytest.raises(ConfigurationError, match=r"\.env is not UTF-8.*save it as"):
            Settings.load()
    file.write_text("PGWAKE_GRACE=1\n", "utf-8-sig")
    assert Settings.load().grace == 1


def test_a_file_that_everybody_may_write_is_found(tmp_path: Path) -> None:
    assert not env_file_is_open()
    (tmp_path / ".env").touch(0o644)
    assert not env_file_is_open()
    (tmp_path / ".env").chmod(0o666)
    assert env_file_is_open()


def test_the_database_falls_back_to_the_common_variable(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("DATABASE_URL", f"{URL}-common")
    assert Settings.load().dsn == f"{URL}-common"
    monkeypatch.setenv("PGWAKE_DATABASE_URL", f"{URL}-ours")
    assert Settings.load().dsn == f"{URL}-ours"
    assert Settings.load(database_url=f"{URL}-flag").dsn == f"{URL}-flag"


@pytest.mark.parametrize(
    "url",
    [
        URL,
        "postgres://host/db",
        "postgresql://",
        "postgresql:///db?host=/var/run/postgresql",
        "postgresql://me:p%40ss@[::1]:5432/db",
        "postgresql://one:5432,two:5433/db?target_session_attrs=primary",
    ],
)
def test_every_form_of_a_url_is_taken(url: str) -> None:
    assert Settings.load(database_url=url).dsn == url


def test_without_a_database_the_variables_are_named() -> None:
    with pytest.raises(ConfigurationError, match=r"PGWAKE_DATABASE_URL .*DATABASE_URL"):
        _ = Settings.load().dsn


def test_an_empty_variable_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PGWAKE_LEASE", "")
    monkeypatch.setenv("PGWAKE_QUEUES", "")

    assert Settings.load().lease is None
    assert Settings.load().queues == ()


def test_listening_falls_back_to_the_database() -> None:
    assert Settings.load(database_url=URL).listen_dsn == URL
    direct = Settings.load(database_url=URL, listen_url=f"{URL}-direct")
    assert direct.listen_dsn == f"{URL}-direct"


def test_lists_are_separated_by_commas(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PGWAKE_QUEUES", "emails:20, my queue ,b")
    monkeypatch.setenv("PGWAKE_IMPORTS", "a.jobs,b.jobs,")
    settings = Settings.load()

    assert settings.queues == ("emails:20", "my queue", "b")
    assert settings.imports == ("a.jobs", "b.jobs")


def test_secrets_are_not_shown() -> None:
    settings = Settings.load(database_url=URL, listen_url=URL)

    for shown in (repr(settings), str(settings), settings.model_dump_json()):
        assert "very-secret" not in shown


@pytest.mark.parametrize(
    ("word", "parsed"),
    [
        ("emails", ("emails", 10)),
        ("emails:20", ("emails", 20)),
        ("a:b", ("a:b", 10)),
        ("a:b:3", ("a:b", 3)),
        ("a:\N{SUPERSCRIPT TWO}", ("a:\N{SUPERSCRIPT TWO}", 10)),
        ("a:", ("a:", 10)),
    ],
)
def test_a_queue_is_a_name_and_its_slots(word: str, parsed: tuple[str, int]) -> None:
    assert parse_queue(word) == parsed


def test_a_process_is_stalled_well_before_its_lease_is_over() -> None:
    assert Settings.load().stall_seconds == 30
    assert Settings.load(lease=10).stall_seconds == 5
    assert Settings.load(lease=10, stall_timeout=3).stall_seconds == 3


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
    monkeypatch.setenv("PGWAKE_HTTP_HANDLERS", text)
    handlers = Settings.load().http_handlers
    assert handlers == {"a": "http://a/?x=1,2", "b=c": "http://b"}


def test_handlers_can_be_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PGWAKE_EXEC_HANDLERS", "\n a=sh -c 'x=1, y'\n b = cat\n\n")
    assert Settings.load().exec_handlers == {"a": "sh -c 'x=1, y'", "b": "cat"}


def test_what_a_worker_process_is_told_are_the_same_settings() -> None:
    given = Settings.load(
        database_url=URL,
        queues=("a:1", "b"),
        lease=7,
        log_level="debug",
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
