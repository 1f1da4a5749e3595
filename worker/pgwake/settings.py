"""Settings: from flags, PGWAKE_* variables and .env, in that order; built once."""

import json
import re
import shlex
import stat
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, Self, TypeAlias

from pydantic import (
    AliasChoices,
    Field,
    SecretStr,
    ValidationError,
    field_validator,
    model_validator,
)
from pydantic_settings import BaseSettings, NoDecode, SettingsConfigDict
from typing_extensions import TypedDict, Unpack

from pgwake.address import AddressRule
from pgwake.database.url import passwords, url_problem
from pgwake.errors import ConfigurationError
from pgwake.signing import parse_secrets

ENV_FILE = Path(".env")
DEFAULT_LEASE = 300.0
DEFAULT_SLOTS = 10

Seconds = Annotated[float, Field(gt=0, le=86_400, allow_inf_nan=False)]
Words = Annotated[tuple[str, ...], NoDecode]
_TOKEN = re.compile(r"[A-Za-z0-9._~+/=-]{16,256}")  # what RFC 6750 lets a Bearer have
Pairs = Annotated[Mapping[str, str], NoDecode]

_Secret: TypeAlias = str | SecretStr
_Words: TypeAlias = str | Sequence[str]
_Pairs: TypeAlias = str | Sequence[str] | Mapping[str, str]


class Given(TypedDict, total=False):
    """What Settings() takes, for type checkers: text, where it reads that."""

    database_url: _Secret | None
    listen_url: _Secret | None
    environment: str | None
    imports: _Words
    queues: _Words
    app_version: str
    processes: int
    poll_interval: float
    lease: float | None
    grace: float
    cancel_grace: float
    resource_timeout: float
    stall_timeout: float | None
    query_timeout: float
    transaction_sessions: int
    http_host: str
    http_port: int
    api_token: _Secret | None
    http_max_body: int
    log_format: Literal["auto", "human", "json"]
    log_level: Literal["debug", "info", "warning", "error"]
    log_jobs_per_second: int
    tracing: bool
    http_handlers: _Pairs
    exec_handlers: _Pairs
    webhooks: bool
    signing_secret: _Secret | None
    http_timeout: float
    http_redirects: bool
    http_allow_private: _Words
    exec_environment: _Words
    process_max_jobs: int
    process_memory: int | None


class Settings(BaseSettings):
    """What a worker is told. Durations are in seconds; defaults suit production."""

    model_config = SettingsConfigDict(
        env_prefix="PGWAKE_",
        env_file=ENV_FILE,
        env_file_encoding="utf-8-sig",
        env_ignore_empty=True,
        extra="ignore",
        frozen=True,
        populate_by_name=True,
    )

    database_url: SecretStr | None = Field(
        default=None,
        validation_alias=AliasChoices("PGWAKE_DATABASE_URL", "DATABASE_URL"),
        description="the database; falls back to DATABASE_URL",
    )
    listen_url: SecretStr | None = Field(
        default=None,
        description="a direct connection for LISTEN, where database_url is a pooler's",
    )
    environment: str | None = Field(
        default=None,
        min_length=1,
        max_length=128,
        description="the database must be this environment's, as `pgwake adopt` has "
        "noted it; by default any",
    )
    imports: Words = Field(
        default=(), description="modules with handlers, separated by commas"
    )
    queues: Words = Field(
        default=(),
        description="queues to work on, each with its slots: emails:20,default:10; "
        "by default those of the handlers, 10 slots each",
    )
    app_version: str = Field(
        default="",
        pattern=r"^([0-9]{1,9}(\.[0-9]{1,9}){0,9})?$",
        description="version of the handlers, numbers with dots: what the newest "
        "declares of its kinds holds",
    )
    processes: int = Field(default=1, ge=1, le=256, description="worker processes")
    poll_interval: Seconds = Field(
        default=5.0, description="how often to look without having been woken"
    )
    lease: Seconds | None = Field(
        default=None,
        ge=1,
        description="how long a claim holds without renewal; by default the queue's, "
        "else 300",
    )
    grace: float = Field(
        default=25.0, ge=0, le=86_400, description="how long a stop waits for jobs"
    )
    cancel_grace: Seconds = Field(
        default=5.0,
        description="how long a cancelled handler may take to end; after that its "
        "process is ended",
    )
    resource_timeout: Seconds = Field(
        default=30.0,
        description="how long each resource may take to open when a process starts, "
        "and to close when it ends",
    )
    stall_timeout: Seconds | None = Field(
        default=None,
        description="how long a process may be silent before it is killed; by "
        "default half the lease, at most 30",
    )
    query_timeout: Seconds = Field(
        default=15.0, description="deadline of a query, and of a connect"
    )
    transaction_sessions: int = Field(
        default=10,
        ge=1,
        le=1000,
        description="sessions that a process has at most for job.transaction(); "
        "further blocks wait until one is free",
    )
    http_host: str = Field(
        default="127.0.0.1",
        description="where HTTP listens: by default for this machine alone; in the "
        "image, 0.0.0.0",
    )
    http_port: int = Field(
        default=9808,
        ge=0,
        le=65_535,
        description="port of the first process, the next ones follow; 0: none",
    )
    api_token: SecretStr | None = Field(
        default=None,
        description="opens the HTTP API and the status page to whoever has it: 16 to "
        "256 letters, digits and -._~+/=; without it only metrics and health answer",
    )
    http_max_body: int = Field(
        default=2**20,
        ge=1024,
        le=2**28,
        description="bytes that a request to the HTTP API may have",
    )
    log_format: Literal["auto", "human", "json"] = Field(
        default="auto", description="auto: human on a terminal, json otherwise"
    )
    log_level: Literal["debug", "info", "warning", "error"] = Field(
        default="info", description="debug, info, warning or error"
    )
    log_jobs_per_second: int = Field(
        default=100,
        ge=0,
        description="lines for completed jobs, and for jobs given back; the rest of a "
        "second are summed up in one. Failures are always logged",
    )

    tracing: bool = Field(
        default=True,
        description="whether runs get spans, where the handlers' modules set "
        "OpenTelemetry up",
    )

    http_handlers: Pairs = Field(
        default={},
        repr=False,  # a URL may hold a password, and a command too
        description="kinds served by HTTP endpoints: a JSON object of their URLs, or "
        "KIND=URL, one a line",
    )
    exec_handlers: Pairs = Field(
        default={},
        repr=False,
        description="kinds done by commands: as http_handlers, or KIND=COMMAND",
    )
    webhooks: bool = Field(default=False, description="whether to deliver webhooks")
    signing_secret: SecretStr | None = Field(
        default=None,
        description="signs what is posted: base64 of 24 to 64 bytes; several, "
        "separated by commas, while one replaces another",
    )
    http_timeout: Seconds = Field(
        default=60.0, description="how long an endpoint may take to answer"
    )
    http_redirects: bool = Field(
        default=False, description="whether answers 307 and 308 are followed"
    )
    http_allow_private: Words = Field(
        default=(),
        description="networks (10.0.0.0/8) and hosts, separated by commas, that "
        "webhooks and redirects may reach though they are not public; true: all",
    )
    exec_environment: Words = Field(
        default=(),
        description="variables that commands get though their names begin with PG or "
        "DATABASE_URL, separated by commas",
    )
    process_max_jobs: int = Field(
        default=1000,
        ge=1,
        description="jobs after which a process of process=True handlers is replaced",
    )
    process_memory: int | None = Field(
        default=None,
        ge=64,
        le=2**24,
        description="MiB that such a process may use, kept by Linux: a job that needs "
        "more fails; by default no limit",
    )

    if TYPE_CHECKING:
        # Of its own, since pydantic's takes what the fields are: no str for a secret.
        def __init__(self, **given: Unpack[Given]) -> None: ...

    @field_validator("database_url", "listen_url")
    @classmethod
    def _check_url(cls, value: SecretStr | None) -> SecretStr | None:
        if value is not None and (problem := url_problem(value.get_secret_value())):
            raise ValueError(problem)
        return value

    @field_validator("api_token")
    @classmethod
    def _check_token(cls, value: SecretStr | None) -> SecretStr | None:
        if value is not None and not _TOKEN.fullmatch(value.get_secret_value()):
            raise ValueError(
                "must be 16 to 256 letters, digits and -._~+/=: make one with `openssl "
                "rand -hex 32`"
            )
        return value

    @field_validator("http_handlers", "exec_handlers", mode="before")
    @classmethod
    def _pair(cls, value: object) -> object:
        if isinstance(value, str):
            if value.lstrip().startswith("{"):
                return json.loads(value)
            value = [line.strip() for line in value.splitlines() if line.strip()]
        if isinstance(value, list | tuple):
            return dict(map(_parse_pair, _once(value)))
        return value

    @field_validator("exec_handlers")
    @classmethod
    def _check_commands(cls, value: Mapping[str, str]) -> Mapping[str, str]:
        for kind, command in value.items():
            if not shlex.split(command):
                raise ValueError(f"{kind!r} has no command")
        return value

    @field_validator("signing_secret")
    @classmethod
    def _check_secrets(cls, value: SecretStr | None) -> SecretStr | None:
        if value is not None:
            parse_secrets(value.get_secret_value())
        return value

    @field_validator("http_allow_private")
    @classmethod
    def _check_private(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        AddressRule.parse(value)
        return value

    @field_validator(
        "imports", "queues", "http_allow_private", "exec_environment", mode="before"
    )
    @classmethod
    def _split(cls, value: object) -> object:
        if isinstance(value, str):
            return tuple(part.strip() for part in value.split(",") if part.strip())
        return value

    @field_validator("queues")
    @classmethod
    def _check_queues(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        names = [name for name, _ in map(parse_queue, value)]
        if len(set(names)) < len(names):
            raise ValueError("a queue is named twice")
        return value

    @model_validator(mode="after")
    def _check_stall_timeout(self) -> Self:
        lease = self.lease or DEFAULT_LEASE
        if self.stall_timeout is not None and self.stall_timeout > 0.8 * lease:
            raise ValueError(
                f"PGWAKE_STALL_TIMEOUT={self.stall_timeout:g} must be well under the "
                f"lease of {lease:g} s: use at most {0.8 * lease:g}"
            )
        return self

    @property
    def stall_seconds(self) -> float:
        """How long a process may be silent before its supervisor kills it."""
        return self.stall_timeout or min(30.0, (self.lease or DEFAULT_LEASE) / 2)

    @property
    def dsn(self) -> str:
        """The database's URL.

        Raises:
            ConfigurationError: None is set.
        """
        if self.database_url is None:
            raise ConfigurationError(
                "no database: set PGWAKE_DATABASE_URL (or DATABASE_URL) to a URL such "
                "as postgresql://user:password@host:5432/name"
            )
        return self.database_url.get_secret_value()

    @property
    def listen_dsn(self) -> str:
        """The URL that LISTEN needs: listen_url, else database_url."""
        return self.listen_url.get_secret_value() if self.listen_url else self.dsn

    @property
    def signing_keys(self) -> tuple[bytes, ...]:
        """The keys of signing_secret."""
        secret = self.signing_secret
        return parse_secrets(secret.get_secret_value()) if secret else ()

    @property
    def secrets(self) -> list[str]:
        """What is to be told to nobody: passwords as they are and as in a URL."""
        found = [
            secret.get_secret_value()
            for secret in (self.signing_secret, self.api_token)
            if secret is not None
        ]
        for url in (self.database_url, self.listen_url):
            if url is not None:
                found += passwords(url.get_secret_value())
        return found

    @property
    def names_handlers(self) -> bool:
        """Whether there are handlers that need no module."""
        return bool(self.http_handlers or self.exec_handlers or self.webhooks)

    @classmethod
    def load(cls, **flags: Any) -> Self:
        """Build the settings; flags that are None were not given.

        Raises:
            ConfigurationError: A value can't be used; the message names the variable.
        """
        given = {name: value for name, value in flags.items() if value is not None}
        _check_env_file()
        try:
            return cls(**given)
        except ValidationError as error:
            raise ConfigurationError(
                "; ".join(_problem(item, given) for item in error.errors())
            ) from None

    def dump(self) -> dict[str, Any]:
        """Return the settings as JSON values, secrets in the clear, for load()."""
        values = self.model_dump(mode="json")
        for name in ("database_url", "listen_url", "signing_secret", "api_token"):
            secret = getattr(self, name)
            values[name] = secret and secret.get_secret_value()
        return values


def _check_env_file() -> None:
    """Raise what is wrong with the .env as a whole, if something is."""
    try:
        text = ENV_FILE.read_text("utf-8")
    except (FileNotFoundError, IsADirectoryError, NotADirectoryError):
        return
    except OSError as error:
        raise ConfigurationError(
            f"{ENV_FILE.resolve()} can't be read ({error.strerror}): let this user "
            "read it, or start elsewhere"
        ) from None
    except UnicodeDecodeError:
        text = "\0"
    if "\0" in text:
        raise ConfigurationError(
            f"{ENV_FILE.resolve()} is not UTF-8 (UTF-16, perhaps): save it as UTF-8"
        )


def env_file_is_open() -> bool:
    """Whether everybody on this machine may write the .env, and so the settings."""
    try:
        return bool(ENV_FILE.stat().st_mode & stat.S_IWOTH)
    except OSError:
        return False


def parse_queue(word: str) -> tuple[str, int]:
    """Split "emails:20" into name and slots; without slots, 10.

    The last colon counts, and only before digits, so that names may hold colons.

    Raises:
        ValueError: No name, a name over 128 bytes, or slots out of 1 to 10,000.
    """
    name, colon, digits = word.rpartition(":")
    if not (colon and digits.isascii() and digits.isdigit()):
        name, digits = word, str(DEFAULT_SLOTS)
    if not 1 <= len(name.encode()) <= 128 or "\0" in name:
        raise ValueError(f"{word!r}: a queue's name has 1 to 128 bytes")
    if not 1 <= int(digits) <= 10_000:
        raise ValueError(f"{word!r}: a queue has 1 to 10000 slots")
    return name, int(digits)


def _parse_pair(word: str) -> tuple[str, str]:
    """Split "KIND=WHAT" at the first "="; what may be secret is not shown."""
    kind, equals, what = word.partition("=")
    if not (kind.strip() and equals and what.strip()):
        raise ValueError(f"{kind!r}: say KIND=WHAT, or pass a JSON object")
    return kind.strip(), what.strip()


def _once(pairs: Sequence[str]) -> Sequence[str]:
    kinds = [kind for kind, _ in map(_parse_pair, pairs)]
    if len(set(kinds)) < len(kinds):
        raise ValueError("a kind is named twice")
    return pairs


def _problem(item: Any, flags: dict[str, Any]) -> str:
    message = str(item["msg"]).removeprefix("Value error, ")
    if not item["loc"]:
        return message
    name = str(item["loc"][0])
    if name in flags:
        flag = name.removesuffix("_handlers").replace("_", "-")
        name = f"--{flag} (or PGWAKE_{name.upper()})"
    elif name.islower():
        name = f"PGWAKE_{name.upper()}"
    return f"{name}: {message}"
