"""Schedules in the lifecycle: two sessions define, pause and fire them as they like."""

from collections import Counter
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any, ClassVar, NamedTuple

import psycopg
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

SCHEDULE = """
select pgwake.schedule(%s, kind => 'k', every => %s * interval '1 s', queue => %s,
  concurrency_key => %s, may_overlap => %s, misfire => 'all')
"""
LOOK = """
select version, every, since, until from pgwake.due_schedules() where name = %s
"""
DOUBLED = """
select metadata ->> 'schedule', metadata ->> 'scheduled_for', array_agg(id)
from pgwake.jobs where metadata ? 'schedule' group by 1, 2 having count(*) > 1
"""


class Found(NamedTuple):
    """What a session has been told of a schedule."""

    version: str
    every: timedelta
    since: datetime
    until: datetime


class ScheduleRules(RuleBasedStateMachine):
    """A part of Lifecycle, whose sessions it uses."""

    sessions: ClassVar[list[psycopg.Connection]]
    seen: ClassVar[Counter[str]]
    act: Callable[..., Any]
    _states: Callable[..., dict[int, str]]
    _changed: Callable[..., None]

    @rule(
        actor=st.integers(0, 1),
        what=st.sampled_from(
            ["define", "define", "fire", "fire", "race", "race", "pause", "resume"]
        ),
        name=st.sampled_from(["s1", "s2"]),
        every=st.sampled_from([1, 40, 60, 3600]),
        queue=st.sampled_from(["q1", "q2"]),
        key=st.sampled_from([None, None, "k1"]),
        may_overlap=st.booleans(),
    )
    def keep_schedule(self, actor: int, what: str, name: str, **given: Any) -> None:
        match what:
            case "define":
                definition = [
                    given[n] for n in ("every", "queue", "key", "may_overlap")
                ]
                self.act(actor, SCHEDULE, name, *definition)
            case "pause" | "resume":
                self.act(actor, f"select pgwake.{what}_schedule(%s)", name)
            case "fire":
                self.fire(actor, name, self.look(actor, name))
            case "race":
                # Both have looked before the first of them fires.
                mine, others = self.look(actor, name), self.look(1 - actor, name)
                fired = [
                    self.fire(actor, name, mine),
                    self.fire(1 - actor, name, others),
                ]
                assert mine != others or None in fired

    def look(self, actor: int, name: str) -> Found | None:
        row = self.act(actor, LOOK, name)
        return row and Found(*row)

    def fire(self, actor: int, name: str, found: Found | None) -> int | None:
        """Fire up to three ticks; how many became jobs, None if it was for others."""
        if found is None:
            return None
        ticks: list[datetime] = []
        following = found.since
        while following <= found.until and len(ticks) < 3:
            ticks.append(following)
            following += found.every
        before = self._states(self.sessions[actor])
        row = self.act(
            actor,
            "select pgwake.fire_schedule(%s, %s, %s::timestamptz[], %s)",
            *(name, found.version, ticks, following),
        )
        if row is None or row[0] is None:
            self.seen["not fired"] += 1
            return None
        self._changed(actor, before)
        self.seen["fired"] += row[0]
        self.seen["left out"] += len(ticks) - row[0]
        return int(row[0])

    @invariant()
    def no_tick_has_two_jobs(self) -> None:
        assert self.sessions[2].execute(DOUBLED).fetchall() == []
