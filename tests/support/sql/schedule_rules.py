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

    # Several actions each time, so that a tick comes to be fired, and fired again.
    @rule(
        actions=st.lists(
            st.tuples(
                st.sampled_from(["define", "fire", "race", "race", "pause", "resume"]),
                st.integers(0, 1),
                st.sampled_from(["s1", "s2"]),
            ),
            min_size=1,
            max_size=4,
        ),
        every=st.sampled_from([1, 1, 2, 60]),
        queue=st.sampled_from(["q1", "q2"]),
        key=st.sampled_from([None, None, "k1"]),
        may_overlap=st.booleans(),
    )
    def keep_schedules(
        self, actions: list[tuple[str, int, str]], **given: object
    ) -> None:
        definition = [given[n] for n in ("every", "queue", "key", "may_overlap")]
        self.act(actions[0][1], SCHEDULE, actions[0][2], *definition)
        for what, actor, name in actions:
            match what:
                case "define":
                    self.act(actor, SCHEDULE, name, *definition)
                case "pause" | "resume":
                    self.act(actor, f"select pgwake.{what}_schedule(%s)", name)
                case "fire":
                    self.fire(actor, name, self.look(actor, name))
                case "race":
                    self.race(actor, name)

    def race(self, actor: int, name: str) -> None:
        """Both sessions look before the first of them fires."""
        mine, others = self.look(actor, name), self.look(1 - actor, name)
        fired = [self.fire(actor, name, mine), self.fire(1 - actor, name, others)]
        if mine and others and mine.version == others.version:
            assert None in fired
            self.seen["raced"] += 1

    def look(self, actor: int, name: str) -> Found | None:
        row = self.act(actor, LOOK, name)
        return row and Found(*row)

    def fire(self, actor: int, name: str, found: Found | None) -> int | None:
        """Fire up to two ticks; how many became jobs, None if it was for others."""
        if found is None:
            return None
        ticks: list[datetime] = []
        following = found.since
        while following <= found.until and len(ticks) < 2:
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
        if row[0] > 0:
            self.seen["fired"] += 1
        return int(row[0])

    @invariant()
    def no_tick_has_two_jobs(self) -> None:
        assert self.sessions[2].execute(DOUBLED).fetchall() == []
