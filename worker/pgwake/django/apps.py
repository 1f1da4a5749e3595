"""The app: what is there as soon as Django is set up."""

from django.apps import AppConfig
from django.core import checks
from django.db.models.signals import pre_migrate

from pgwake.django.checks import check_handlers, check_schema, check_settings
from pgwake.django.config import HANDLERS
from pgwake.django.connections import closing_connections
from pgwake.django.schema import migrate_schema
from pgwake.jobs.registry import registry


class PgwakeConfig(AppConfig):
    """The queue of a Django project."""

    name = "pgwake.django"
    label = "pgwake"
    verbose_name = "Jobs"
    default_auto_field = "django.db.models.BigAutoField"

    def ready(self) -> None:
        """Connect what Django calls."""
        pre_migrate.connect(migrate_schema, sender=self)
        checks.register(check_settings)
        checks.register(check_handlers)
        checks.register(check_schema, checks.Tags.database)
        registry.process_imports.append(HANDLERS)
        registry.middleware(closing_connections)
