"""The settings of django_shop with a database of its own for the queue.

By the variable JOBS: "apart" from the other, or in tests a "mirror" of it.
"""

import os
from typing import Any

from project import *  # type: ignore[import-not-found] # noqa: F403
from project import DATABASES

INSTALLED_APPS = ["django.contrib.contenttypes", "pgwake.django", "shop"]
ROOT_URLCONF = "support.worker.django_settings"
urlpatterns: list[object] = []
PGWAKE = {"DATABASE": "jobs"}


class Router:
    """The orders are beside the jobs, and nothing else is."""

    def db_for_read(self, model: Any, **_: Any) -> str | None:
        return "jobs" if model._meta.app_label == "shop" else None

    db_for_write = db_for_read

    def allow_migrate(self, db: str, app_label: str, **_: Any) -> bool:
        return (db == "jobs") == (app_label == "shop")


_ONE = DATABASES["default"]
if os.environ["JOBS"] == "apart":
    DATABASE_ROUTERS = [Router()]
    DATABASES |= {
        "jobs": {**_ONE, "NAME": f"{_ONE['NAME']}_jobs", "TEST": {"MIGRATE": False}},
        "replica": {**_ONE, "TEST": {"MIRROR": "jobs"}},
    }
else:
    _ONE["TEST"] = {"NAME": "shop_in_test"}
    DATABASES["jobs"] = {**_ONE, "TEST": {"MIRROR": "default"}}
