"""The jobs in Django's admin: to be read, retried and cancelled."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from django.contrib import admin, messages
from django.core.paginator import Paginator
from django.db import connections, transaction
from django.db.models import Q, QuerySet
from django.http import HttpRequest
from django.utils.functional import cached_property

from pgwake.django.config import alias
from pgwake.django.models import Job
from pgwake.errors import PgwakeError
from pgwake.produce.options import MAX_ID
from pgwake.produce.queue import SyncQueue

if TYPE_CHECKING:  # at run time neither is generic
    _Paginator = Paginator[Job]
    _ModelAdmin = admin.ModelAdmin[Job]
else:
    _Paginator, _ModelAdmin = Paginator, admin.ModelAdmin

MOST_ROWS = 10_000  # that are counted and can be paged through


class _ShortPaginator(_Paginator):
    """Counts no more rows than anybody pages through: there may be millions."""

    @cached_property
    def count(self) -> int:
        rows: Any = self.object_list
        return int(rows.order_by()[:MOST_ROWS].count())


def _nobody_may(*_: Any, **__: Any) -> bool:
    return False


@admin.register(Job)
class JobAdmin(_ModelAdmin):
    """Shows jobs to who may view them; who may change them retries and cancels."""

    list_display = ("id", "kind", "queue", "status", "attempt", "run_at", "finished_at")
    list_filter = ("status",)
    search_fields = ("id", "kind", "queue")
    search_help_text = "The id, kind or queue, whole."
    ordering = ("-id",)
    paginator = _ShortPaginator
    show_full_result_count = False
    actions = ("retry", "cancel")

    # Handlers enqueue, nothing is edited, and retention deletes.
    has_add_permission = has_change_permission = has_delete_permission = _nobody_may

    def has_operate_permission(self, request: HttpRequest) -> bool:
        """Return whether somebody may retry and cancel: with pgwake.change_job."""
        user: Any = request.user
        return bool(user.has_perm("pgwake.change_job"))

    def get_search_results(
        self, request: HttpRequest, queryset: QuerySet[Job], search_term: str
    ) -> tuple[QuerySet[Job], bool]:
        """Find jobs by what the indexes know, and no part of it."""
        del request
        term = search_term.strip()
        if not term:
            return queryset, False
        found = Q(kind=term) | Q(queue=term)
        if term.isdecimal() and int(term) <= MAX_ID:
            found = Q(id=int(term))
        return queryset.filter(found), False

    @admin.action(
        description="Retry selected jobs: from their first attempt",
        permissions=["operate"],
    )
    def retry(self, request: HttpRequest, queryset: QuerySet[Job]) -> None:
        """Retry failed and cancelled jobs."""
        self._each(request, queryset, SyncQueue.retry)

    @admin.action(description="Cancel selected jobs", permissions=["operate"])
    def cancel(self, request: HttpRequest, queryset: QuerySet[Job]) -> None:
        """Cancel jobs that have not ended; those that run are asked to stop."""
        self._each(request, queryset, SyncQueue.cancel)

    def _each(
        self,
        request: HttpRequest,
        queryset: QuerySet[Job],
        change: Callable[[SyncQueue, int], str | None],
    ) -> None:
        queue = SyncQueue(connections[alias()])
        for job_id in queryset.values_list("id", flat=True):
            try:
                with transaction.atomic(using=alias()):
                    outcome = change(queue, job_id) or "pending"
            except PgwakeError as error:
                self.message_user(request, f"Job {job_id}: {error}", messages.ERROR)
            else:
                self.message_user(request, f"Job {job_id} is {outcome}.")
