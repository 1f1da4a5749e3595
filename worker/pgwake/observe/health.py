"""What the health endpoints answer from; they never ask the database themselves."""

from time import monotonic

from pgwake.database.session import Session
from pgwake.heartbeat import Heartbeat

MAIN_LAG_SECONDS = 10.0
DATABASE_SECONDS = 15.0
_READ_ONLY = "25006"
_SILENT = "the database does not answer"


class Health:
    """The health of one process.

    Args:
        sessions: Those by which the process asks the database.

    Attributes:
        main_lag: How late the main loop answered the lifeline, in seconds.
        is_starting: Whether its resources are not open yet, and nothing is claimed.
        is_draining: Whether the worker has been told to stop.
        misfit: Why the database can't be worked with, as it was when it was looked
            at last, and what to do; None: it can.
        is_read_only: Whether the database said so, where it was asked.
        heartbeats: The loops that have to go round.
    """

    def __init__(self, *sessions: Session) -> None:
        self.main_lag = 0.0
        self.is_starting = True
        self.is_draining = False
        self.misfit: str | None = _SILENT  # until the first look
        self.is_read_only = False
        self.heartbeats: list[Heartbeat] = []
        self._sessions = sessions

    @property
    def may_work(self) -> bool:
        """Whether jobs may be claimed, as far as the process knows."""
        return self.misfit is None and not self.is_starting

    @property
    def problems(self) -> list[str]:
        """What makes the process unfit to live: a restart may help, nothing else."""
        if self.main_lag > MAIN_LAG_SECONDS:
            return [f"the main loop has not answered for {self.main_lag:.0f} s"]
        return [
            f"{heartbeat.loop}: stalled for {seconds:.0f} s"
            for heartbeat in self.heartbeats
            if (seconds := heartbeat.stalled_seconds) is not None
        ]

    @property
    def obstacles(self) -> list[str]:
        """What keeps the process from working now."""
        found = self.problems
        if self.is_draining:
            found.append("draining")
        if self.main_lag <= MAIN_LAG_SECONDS:  # else who asks has not asked for long
            found += self._database_obstacles()
        return found

    def _database_obstacles(self) -> list[str]:
        now = monotonic()
        answers = [s.answered_at for s in self._sessions if s.answered_at is not None]
        faults = [(s.role, s.fault) for s in self._sessions]
        failing = [(role, fault) for role, fault in faults if fault is not None]
        if self.is_read_only or any(fault.code == _READ_ONLY for _, fault in failing):
            return ["the database is read-only"]
        if not answers or now - max(answers) > DATABASE_SECONDS:
            return [_SILENT]
        found = [
            f"session {role}: no answer for {now - fault.since:.0f} s"
            for role, fault in failing
            if now - fault.since > DATABASE_SECONDS
        ]
        if self.misfit is not None:
            found.append(self.misfit)
        elif self.is_starting:
            found.append("starting: the handlers' resources are not open yet")
        return found + [
            f"{heartbeat.loop}: the database refuses it, see the log"
            for heartbeat in self.heartbeats
            if heartbeat.is_refused
        ]
