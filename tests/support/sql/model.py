"""What the functions promise, in plain Python; see test_state_machine.py.

Times are seconds since the start. The model's backoff is always 0.1 s.
"""

from dataclasses import dataclass, field
from uuid import UUID

BACKOFF = 0.1
MAX_ATTEMPTS = 20
MAX_CRASHES = 5
BACK = {"waiting", "pending"}
LIVE = BACK | {"running"}


@dataclass
class Job:
    id: int
    queue: str
    priority: int
    run_at: float
    max_attempts: int | None
    unique_key: str | None
    status: str = "pending"
    attempt: int = 0
    crash_count: int = 0
    bounce_count: int = 0
    error_count: int = 0
    is_cancel_requested: bool = False
    lease: UUID | None = None
    lease_expires_at: float = 0
    worker: str = ""
    past_leases: list[UUID] = field(default_factory=list)
    parents: list["Job"] = field(default_factory=list)
    parents_left: list["Job"] = field(default_factory=list)
    may_run_anyhow: bool = False

    @property
    def place(self) -> tuple[int, float, int]:
        """Its place in the order of claims."""
        return (-self.priority, self.run_at, self.id)

    @property
    def is_live(self) -> bool:
        return self.status in LIVE

    @property
    def attempts_are_used_up(self) -> bool:
        return self.attempt >= (self.max_attempts or MAX_ATTEMPTS)

    def wait_for(self, parents: list["Job"], *, may_run_anyhow: bool) -> None:
        """It has come, or come again, and its parents have yet to be seen."""
        self.parents = self.parents_left = parents
        self.may_run_anyhow = may_run_anyhow
        self.status = "waiting" if parents else "pending"

    def see_parents(self) -> None:
        """What a recheck of a waiting job does."""
        ended = [job for job in self.parents_left if not job.is_live]
        self.parents_left = [job for job in self.parents_left if job.is_live]
        if not self.may_run_anyhow and any(job.status != "completed" for job in ended):
            self._note_error()
            self.status = "cancelled"
        elif not self.parents_left:
            self.status = "pending"

    def claim(self, lease: UUID, worker: str, expires_at: float) -> None:
        self.status, self.attempt = "running", self.attempt + 1
        self.lease, self.worker, self.lease_expires_at = lease, worker, expires_at
        self.past_leases.append(lease)

    def seen_from(self, lease: UUID) -> str:
        """held, how it ended under this lease, or lease_lost."""
        if self.lease != lease:
            return "lease_lost"
        return "held" if self.status == "running" else self.status

    def complete(self, lease: UUID) -> str:
        seen = self.seen_from(lease)
        if seen == "held":
            self.status = seen = "completed"
        return seen if seen == "completed" else "lease_lost"

    def fail(self, lease: UUID, *, retryable: bool, run_at: float) -> str:
        seen = self.seen_from(lease)
        if seen != "held":
            return seen if seen in ("failed", "cancelled") else "lease_lost"
        self._note_error()
        if self.is_cancel_requested:
            self.status = "cancelled"
        elif not retryable or self.attempts_are_used_up:
            self.status = "failed"
        else:
            self._back_to_pending(run_at)
            return "retry"
        return self.status

    def release(self, lease: UUID, reason: str, now: float) -> str:
        seen = self.seen_from(lease)
        if seen != "held":
            return "cancel_requested" if seen == "cancelled" else "lease_lost"
        if self.is_cancel_requested:
            self.status = "cancelled"
            return "cancel_requested"
        if reason != "shutdown" or self.bounce_count < 19:
            self.attempt -= 1
        if reason == "unknown_kind":
            self.run_at = now + min(2**self.bounce_count, 300)
        if reason != "unstarted":
            self.bounce_count += 1
        self._back_to_pending(self.run_at)
        return "released"

    def extend(self, lease: UUID, expires_at: float) -> str:
        if self.seen_from(lease) != "held":
            return "lease_lost"
        self.lease_expires_at = max(self.lease_expires_at, expires_at)
        return "cancel_requested" if self.is_cancel_requested else "extended"

    def crash(self, now: float) -> None:
        self.crash_count += 1
        self._note_error()
        is_alone = self.crash_count > 2
        if self.is_cancel_requested:
            self.status = "cancelled"
        elif self.crash_count >= MAX_CRASHES or (
            is_alone and self.attempts_are_used_up
        ):
            self.status = "failed"
        else:
            self.attempt -= not is_alone
            self._back_to_pending(now + BACKOFF if is_alone else self.run_at)

    def cancel(self) -> str:
        if self.status == "running":
            self.is_cancel_requested = True
            return "cancel_requested"
        if self.status in BACK:
            self.status = "cancelled"
        return self.status

    def force(self, status: str) -> None:
        self._note_error()
        self.status, self.lease = status, None

    def retry(self, now: float) -> None:
        self.wait_for(self.parents, may_run_anyhow=True)
        self.lease, self.is_cancel_requested = None, False
        self.attempt = self.crash_count = self.bounce_count = 0
        self.run_at = now

    def _back_to_pending(self, run_at: float) -> None:
        self.status, self.lease, self.run_at = "pending", None, run_at

    def _note_error(self) -> None:
        self.error_count = min(self.error_count + 1, 20)


def claimable(jobs: list[Job], count: int, now: float, *, suspects: bool) -> list[Job]:
    """Those that a claim of one queue takes, in order."""
    due = [job for job in jobs if job.status == "pending" and job.run_at <= now]
    due.sort(key=lambda job: job.place)
    if suspects:
        return [job for job in due if job.crash_count >= 2][:count]
    once = [job for job in due if job.crash_count == 1][:1]
    never = [job for job in due if job.crash_count == 0]
    return sorted(once + never, key=lambda job: job.place)[:count]


def next_run_at(jobs: list[Job], *, suspects: bool) -> float | None:
    """The least run_at of the pending jobs that such a claim is for."""
    return min(
        (
            job.run_at
            for job in jobs
            if job.status == "pending" and (job.crash_count >= 2) == suspects
        ),
        default=None,
    )
