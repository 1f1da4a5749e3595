"""The handlers of a project: imported, it sets Django up and finds each app's jobs.py.

By the variable DJANGO_SETTINGS_MODULE, as `pgwake run --import pgwake.django.handlers`
does, and each process of `manage.py pgwake_worker`.
"""

import django

from pgwake.django.discovery import import_handlers

django.setup()
import_handlers()
