"""pgwake in a Django project: INSTALLED_APPS = ["pgwake.django"]."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pgwake.django.backend import PgwakeBackend
else:
    # Loaded when it is asked for: it needs django.tasks, and settings.
    def __getattr__(name: str) -> object:
        if name == "PgwakeBackend":
            from pgwake.django.backend import PgwakeBackend  # noqa: PLC0415

            return PgwakeBackend
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


__all__ = ["PgwakeBackend"]
