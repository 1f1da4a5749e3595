"""Names of workers and of their sessions."""

import os
import secrets
import socket


def new_worker_name(pid: int | None = None, random_part: str | None = None) -> str:
    """Return host:pid:random, used once and never again, at most 50 characters."""
    host = socket.gethostname()[:30]
    return f"{host}:{pid or os.getpid()}:{random_part or new_random_part()}"


def new_random_part() -> str:
    """Return eight hexadecimal digits."""
    return secrets.token_hex(4)


def application_name(worker: str) -> str:
    """Return the application_name of a worker's sessions: at most 63 characters."""
    return f"pgwake:{worker}"


def handlers_application_name(worker: str) -> str:
    """Return that of the sessions in which its handlers complete their jobs."""
    return f"{application_name(worker)}/tx"


def api_application_name(worker: str) -> str:
    """Return that of its HTTP API's sessions: nobody waits for their end."""
    return f"{application_name(worker)}/http"
