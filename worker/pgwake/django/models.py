"""The jobs as Django's models see them; Django never creates or changes the table."""

from typing import ClassVar

from django.db import models

from pgwake.django.config import alias


class _Jobs(models.Manager["Job"]):
    """The jobs of the database that PGWAKE["DATABASE"] names."""

    def get_queryset(self) -> "models.QuerySet[Job]":
        return super().get_queryset().using(alias())


class Job(models.Model):
    """A job, to be looked at: enqueue by handlers, and change by SQL functions.

    What its columns mean: sql/JOBS.md.
    """

    STATUSES = ("waiting", "pending", "running", "completed", "failed", "cancelled")

    id = models.BigAutoField(primary_key=True)
    queue = models.TextField()
    kind = models.TextField()
    status = models.TextField(choices=[(status, status) for status in STATUSES])
    priority = models.IntegerField()
    run_at = models.DateTimeField()
    attempt = models.IntegerField()
    max_attempts = models.IntegerField(null=True)
    claimed_by = models.TextField(null=True)  # noqa: DJ001, the table's own
    created_at = models.DateTimeField()
    started_at = models.DateTimeField(null=True)
    finished_at = models.DateTimeField(null=True)
    cancel_requested_at = models.DateTimeField(null=True)
    crash_count = models.IntegerField()
    unique_key = models.TextField(null=True)  # noqa: DJ001, the table's own
    concurrency_key = models.TextField(null=True)  # noqa: DJ001, the table's own
    payload = models.JSONField()
    metadata = models.JSONField(null=True)
    progress = models.JSONField(null=True)
    result = models.JSONField(null=True)
    errors = models.JSONField(null=True)

    objects: ClassVar[_Jobs] = _Jobs()

    class Meta:
        """Where they are."""

        managed = False
        db_table = '"pgwake"."jobs"'

    def __str__(self) -> str:
        return f"{self.kind} {self.pk}"
