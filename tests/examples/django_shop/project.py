"""The settings of the project."""

import os

from psycopg.conninfo import conninfo_to_dict

_DATABASE = conninfo_to_dict(os.environ["SHOP_DATABASE_URL"])

SECRET_KEY = "only an example"  # noqa: S105, of an example
USE_TZ = True
DEBUG = True
ALLOWED_HOSTS = ["*"]
INSTALLED_APPS = [
    "django.contrib.admin",
    "django.contrib.contenttypes",
    "django.contrib.auth",
    "django.contrib.messages",
    "django.contrib.sessions",
    "pgwake.django",
    "shop",
]
MIDDLEWARE = [
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
    "django.contrib.messages.middleware.MessageMiddleware",
]
ROOT_URLCONF = "urls"
STATIC_URL = "static/"
TEMPLATES = [
    {
        "BACKEND": "django.template.backends.django.DjangoTemplates",
        "APP_DIRS": True,
        "OPTIONS": {
            "context_processors": [
                "django.template.context_processors.request",
                "django.contrib.auth.context_processors.auth",
                "django.contrib.messages.context_processors.messages",
            ]
        },
    }
]
DATABASES = {
    "default": {
        "ENGINE": "django.db.backends.postgresql",
        "NAME": _DATABASE.pop("dbname"),
        "USER": _DATABASE.pop("user"),
        "PASSWORD": _DATABASE.pop("password"),
        "HOST": _DATABASE.pop("host"),
        "PORT": _DATABASE.pop("port"),
        "OPTIONS": _DATABASE,  # such as target_session_attrs, with several hosts
    },
}
TASKS = {
    "default": {
        "BACKEND": "pgwake.django.PgwakeBackend",
        "QUEUES": ["default", "letters"],
        "OPTIONS": {"backoff_base": 0.01, "max_attempts": 3},
    }
}
DEFAULT_AUTO_FIELD = "django.db.models.AutoField"
