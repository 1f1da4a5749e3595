"""pgwake in a Django project: INSTALLED_APPS = ["pgwake.django"]."""
