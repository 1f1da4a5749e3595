"""The database's URL: what can be used of it, and its hosts, each alone."""

import os
import re
from urllib.parse import SplitResult, parse_qsl, quote, unquote, urlencode, urlsplit

from pgwake.errors import ConfigurationError

_FORM = (
    "must be a URL such as postgresql://user:password@host:5432/name, with special "
    "characters of the password as %40 and the like; several hosts with commas: "
    "@one:5432,two:5432/name"
)
# Of libpq's parameters those that asyncpg would pass on to the server, which refuses
# the session. The rest of what it does not know are settings of the server.
_UNKNOWN = {
    "channel_binding": "sslmode=verify-full guards against the same",
    "connect_timeout": "PGWAKE_QUERY_TIMEOUT is the deadline of a connect",
    "fallback_application_name": "sessions have names of their own",
    "gssencmode": "encrypt with sslmode",
    "hostaddr": "name the address as the host",
    "keepalives": "half-open sessions are found by pings",
    "keepalives_count": "half-open sessions are found by pings",
    "keepalives_idle": "half-open sessions are found by pings",
    "keepalives_interval": "half-open sessions are found by pings",
    "load_balance_hosts": "the hosts are tried in their order",
    "replication": "no session replicates",
    "require_auth": "sslmode=verify-full makes sure whom the password goes to",
    "requirepeer": "use TCP with sslmode=verify-full",
    "sslcertmode": "a certificate is sent if the server asks for it",
    "sslcompression": "TLS does not compress any more",
    "sslsni": "the host's name is always sent",
    "tcp_user_timeout": "half-open sessions are found by pings",
}
_FILES = ("sslrootcert", "sslcert", "sslkey", "sslcrl")
_NETLOC = re.compile(r"(\w+://)([^/?#]*)(.*)", re.DOTALL)
_WRITABLE = ("read-write", "primary")
_ATTRIBUTES = (*_WRITABLE, "any")


def split_url(url: str) -> SplitResult:
    """Take a URL apart that may have several hosts.

    As urlsplit(), which since Python 3.14 refuses brackets around any but the first.
    """
    if not (found := _NETLOC.match(url)):
        return urlsplit(url)
    scheme, netloc, rest = found.groups()
    return urlsplit(scheme + rest)._replace(netloc=netloc)


def url_problem(url: str) -> str | None:
    """Return why a URL can't be used, and what to do; None: it can."""
    try:
        parts = split_url(url)
        login, at, names = parts.netloc.rpartition("@")
        hosts = names.split(",")
        ports = [urlsplit(f"//{login}{at}{host}").port for host in hosts]
        query = dict(parse_qsl(parts.query, strict_parsing=bool(parts.query)))
    except ValueError:
        return _FORM
    is_url = parts.scheme in ("postgresql", "postgres") and 0 not in ports
    if not is_url or "@" in login or (len(hosts) > 1 and "" in hosts):
        return _FORM
    for name in query:
        if name in _UNKNOWN:
            return f"takes no {name}, leave it out: {_UNKNOWN[name]}"
    if query.get("target_session_attrs", "any") not in _ATTRIBUTES:
        return f"target_session_attrs must be one of {', '.join(_ATTRIBUTES)}"
    for name in _FILES:
        if name in query and not os.access(query[name], os.R_OK):
            return f"{name}: {query[name]!r} is no file that this process can read"
    return None


def checked_url(text: str) -> str:
    """Return a database's URL.

    Raises:
        ConfigurationError: It can't be used; it is not shown, for its password.
    """
    if problem := url_problem(text):
        raise ConfigurationError(f"the database's URL {problem}")
    return text


def passwords(url: str) -> list[str]:
    """Return the passwords of a URL, as they stand there and as they are meant."""
    parts = split_url(url)
    _, _, login = parts.netloc.rpartition("@")[0].partition(":")
    query = dict(parse_qsl(parts.query))
    found = {login, unquote(login), query.get("password", "")}
    return sorted(found - {""})


def host_urls(url: str) -> list[str]:
    """Return the URLs of its hosts, each alone, in their order.

    They stand where a URL has its host, or in the parameter host, or in PGHOST.
    """
    parts = split_url(url)
    login, at, names = parts.netloc.rpartition("@")
    if names:
        found = [f"{login}{at}{name}" for name in names.split(",")]
        return [parts._replace(netloc=netloc).geturl() for netloc in found]
    query = dict(parse_qsl(parts.query))
    hosts = (query.pop("host", "") or os.environ.get("PGHOST", "")).split(",")
    if len(hosts) == 1:
        return [url]
    ports = (query.pop("port", "") or os.environ.get("PGPORT", "") or "5432").split(",")
    if len(ports) == 1:
        ports *= len(hosts)
    return [
        parts._replace(
            query=urlencode({**query, "host": host, "port": port}, quote_via=quote)
        ).geturl()
        for host, port in zip(hosts, ports, strict=True)
    ]


def host_name(url: str) -> str:
    """Return host and port of a URL of host_urls()."""
    parts = split_url(url)
    if named := parts.netloc.rpartition("@")[2]:
        return named
    query = dict(parse_qsl(parts.query))
    return ":".join(filter(None, (query.get("host"), query.get("port"))))


def must_write(url: str) -> bool | None:
    """Whether the server has to be writable; None: the URL does not say."""
    attribute = dict(parse_qsl(split_url(url).query)).get("target_session_attrs")
    return None if attribute is None else attribute in _WRITABLE
