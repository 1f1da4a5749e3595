"""Records steps: what the slots record while a call is on its way goes in the next."""

import asyncio
from functools import partial
from itertools import islice

from pgwake.database.session import Session
from pgwake.database.statements.steps import record_steps
from pgwake.jobs.attempt import Attempt
from pgwake.jobs.steps import RecordStep

_MOST = 100  # steps a call
_MOST_CHARACTERS = 1 << 20  # of their results, but for the last one's


class _Entry:
    __slots__ = ("answer", "job", "step")

    def __init__(self, job: Attempt, step: RecordStep) -> None:
        self.job = job
        self.step = step
        self.answer: tuple[str, str | None] | None = None


class StepRecorder:
    """Records steps of running jobs, many a call.

    Whoever has the turn records for all that wait: no task does, and one that is
    cancelled leaves the others' to the next.

    Args:
        session: Where the calls are made.
    """

    def __init__(self, session: Session) -> None:
        self._session = session
        self._turn = asyncio.Lock()
        self._waiting: dict[_Entry, None] = {}

    async def record(self, job: Attempt, step: RecordStep) -> tuple[str, str | None]:
        """Record a step; its outcome, as of record_steps or refused, and its result."""
        entry = _Entry(job, step)
        self._waiting[entry] = None
        try:
            async with self._turn:
                while entry.answer is None:
                    await self._write()
        finally:
            self._waiting.pop(entry, None)
        return entry.answer

    async def _write(self) -> None:
        batch, size = list[_Entry](), 0
        for entry in islice(self._waiting, _MOST):
            batch.append(entry)
            size += len(entry.step.result or "")
            if size > _MOST_CHARACTERS:
                break
        record = partial(
            record_steps,
            job_ids=[entry.job.id for entry in batch],
            lease_ids=[entry.job.lease_id for entry in batch],
            names=[entry.step.name for entry in batch],
            results=[entry.step.result for entry in batch],
        )
        answers: list[tuple[str, str | None]]
        try:
            answers = await self._session.call(record)
        except Exception:  # noqa: BLE001, of one: alone, each hears what is wrong
            answers = [("refused", None)] * len(batch)
        for entry, answer in zip(batch, answers, strict=True):
            entry.answer = answer
            self._waiting.pop(entry, None)
