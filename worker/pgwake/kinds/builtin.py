"""Handlers that need no Python: those that the settings name."""

import shlex
import shutil

from pgwake import worker_names
from pgwake.address import AddressRule
from pgwake.database.session import Session
from pgwake.errors import ConfigurationError
from pgwake.jobs.registry import WEBHOOK_KIND, WEBHOOK_QUEUE, Registry
from pgwake.kinds.exec import Command, OrphanKiller
from pgwake.kinds.http import Endpoint, HttpClient, host_of
from pgwake.kinds.webhook import Webhook
from pgwake.settings import Settings


def register(registry: Registry, settings: Settings, worker: str) -> None:
    """Register handlers for http_handlers, exec_handlers and webhooks.

    What they hold (connections, a session) lives as long as the process.

    Raises:
        ConfigurationError: A URL or a command can't be used, or a kind has a handler.
    """
    if settings.http_handlers:
        _register_endpoints(registry, settings)
    if settings.exec_handlers:
        _register_commands(registry, settings)
    if settings.webhooks:
        session = Session(
            settings.dsn,
            worker_names.application_name(worker),
            "webhooks",
            settings.query_timeout,
        )
        client = HttpClient(settings, AddressRule.parse(settings.http_allow_private))
        handler = Webhook(client, session)
        registry.job(WEBHOOK_KIND, queue=WEBHOOK_QUEUE)(handler.handle)


def _register_endpoints(registry: Registry, settings: Settings) -> None:
    hosts = []
    for kind, url in settings.http_handlers.items():
        try:
            hosts.append(host_of(url))
        except ConfigurationError as error:
            raise ConfigurationError(f"--http {kind}: {error}") from None
    # The operator has named them: a service beside the worker is no secret to keep.
    client = HttpClient(settings, AddressRule.parse(settings.http_allow_private, hosts))
    for kind, url in settings.http_handlers.items():
        registry.job(kind)(Endpoint(client, url).handle)


def _register_commands(registry: Registry, settings: Settings) -> None:
    orphan_killer = OrphanKiller()
    for kind, text in settings.exec_handlers.items():
        words = shlex.split(text)
        program = shutil.which(words[0])
        if program is None:
            raise ConfigurationError(
                f"--exec {kind}: there is no program {words[0]!r}: install it, or name "
                "it by its path"
            )
        command = Command(
            [program, *words[1:]],
            # A job that holds on for longer than cancel_grace costs its process.
            grace=settings.cancel_grace / 2,
            kept=settings.exec_environment,
            orphan_killer=orphan_killer,
        )
        registry.job(kind)(command.handle)
