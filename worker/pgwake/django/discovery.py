"""Where the handlers of a project are."""

from django.utils.module_loading import autodiscover_modules


def import_handlers() -> None:
    """Import the module jobs of each app that has one; raises what one raises."""
    autodiscover_modules("jobs")
