"""Where the handlers of a project are."""

from django.conf import settings
from django.utils.module_loading import autodiscover_modules

from pgwake.jobs.registry import registry


def import_handlers() -> None:
    """Import the module jobs of each app that has one; raises what one raises.

    And the module tasks, if TASKS has a backend of pgwake's: the queues of that are
    worked on, too.
    """
    autodiscover_modules("jobs")
    if getattr(settings, "TASKS", None):
        # Here, since Django 5.2 has no tasks.
        from pgwake.django.backend import project_backends  # noqa: PLC0415

        if backends := project_backends():
            autodiscover_modules("tasks")
        for backend in backends:
            registry.add_queues(backend.queues)
