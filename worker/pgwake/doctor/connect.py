"""Why a database can't be reached, and what to type first."""

import shlex
import socket
from urllib.parse import unquote

import asyncpg

from pgwake.database.url import split_url
from pgwake.errors import PgwakeError
from pgwake.finding import Finding


def explain_refusal(variable: str, url: str, error: Exception) -> Finding:
    """Return a finding that says why a connect has failed.

    Args:
        variable: The setting that has the URL.
        url: The URL; its password is not shown.
        error: What was raised.
    """
    safe = without_password(url)
    why, fix = _explained(error, url)
    hosts = split_url(safe).netloc.rpartition("@")[2]
    places = {
        "{url}": shlex.quote(safe),
        "{address}": "-d " + shlex.quote(f"postgresql://{hosts}"),
        "{server}": shlex.quote(safe.removesuffix(split_url(safe).path) + "/postgres"),
    }
    for place, value in places.items():
        fix = fix.replace(place, value)
    return Finding("connect", "error", variable, f"{safe} can't be reached: {why}", fix)


def without_password(url: str) -> str:
    """Return a database's URL with role, hosts and database, and nothing else."""
    parts = split_url(url)
    login, at, hosts = parts.netloc.rpartition("@")
    return f"{parts.scheme}://{login.partition(':')[0]}{at}{hosts}{parts.path}"


def _explained(error: Exception, url: str) -> tuple[str, str]:
    text = str(error) or type(error).__name__
    match error:
        case PgwakeError():
            fix = "pgwake doctor  # once the URL is mended"
        case socket.gaierror():
            text = f"the host's name is not known ({text})"
            host = shlex.quote(split_url(url).hostname or "")
            fix = f"getent hosts {host}  # as this machine sees it: mend the URL or DNS"
        case OSError() if "SSL" in text:
            text = f"TLS fails ({text})"
            fix = "psql {url}  # with the sslmode and sslrootcert of the URL"
        case OSError() if "Connect call failed" in text:  # at each address of a host
            text = "nothing listens there"
            fix = "pg_isready {address}  # start the server, or mend host and port"
            if split_url(url).hostname in ("localhost", "127.0.0.1", "::1"):
                fix += "; in a container this is the container itself"
        case TimeoutError():
            text = "no answer in time"
            fix = "pg_isready {address}  # silent: a firewall, a wrong host, or load"
        case asyncpg.InvalidCatalogNameError():
            name = shlex.quote(unquote(split_url(url).path[1:]))
            fix = f"createdb --maintenance-db={{server}} {name}"
            fix += "  # then pgwake init; or mend the URL"
        case asyncpg.InvalidAuthorizationSpecificationError():
            fix = "psql {url} -c 'select 1'  # role, password, the server's pg_hba.conf"
        case asyncpg.TooManyConnectionsError():
            fix = (
                "psql {url} -c 'select application_name, count(*) from "
                "pg_stat_activity group by 1'  # as a superuser: then fewer"
            )
        case asyncpg.ReadOnlySQLTransactionError():
            fix = "pg_isready {address}  # then name the primary in the URL"
        case _:
            fix = "psql {url} -c 'select 1'"
    return text, fix
