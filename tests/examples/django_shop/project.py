"""The settings of the project."""

import os
from urllib.parse import urlsplit

_URL = urlsplit(os.environ["SHOP_DATABASE_URL"])

SECRET_KEY = "only an example"  # noqa: S105, of an example
USE_TZ = True
INSTALLED_APPS = [
    "django.contrib.contenttypes",
    "django.contrib.auth",
    "pgwake.django",
    "shop",
]
DATABASES = {
    "default": {
        "ENGINE": "django.db.backends.postgresql",
        "NAME": _URL.path[1:],
        "USER": _URL.username,
        "PASSWORD": _URL.password,
        "HOST": _URL.hostname,
        "PORT": _URL.port,
    },
}
DEFAULT_AUTO_FIELD = "django.db.models.AutoField"
