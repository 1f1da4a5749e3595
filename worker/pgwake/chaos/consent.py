"""Whether faults may be made in somebody's database, and what that does to others."""

from collections.abc import Iterator

from pgwake import queue
from pgwake.chaos.faults import FAULTS
from pgwake.chaos.identity import Run
from pgwake.chaos.run import Plan
from pgwake.chaos.traces import may_clean
from pgwake.connection import Connection
from pgwake.gate import adoption_problem
from pgwake.install import schema_problem
from pgwake.queue.adoption import get_adoption

PRODUCTION = "production"


async def problem(
    connection: Connection, environment: str | None, *, in_production: bool
) -> str | None:
    """Return why a database won't do, and what to do; None: it will.

    Args:
        connection: A session of the role that everything is done as.
        environment: What PGWAKE_ENVIRONMENT says.
        in_production: Whether production is meant.
    """
    if found := schema_problem(await queue.installed_schema(connection)):
        return found
    adoption = await get_adoption(connection)
    if found := adoption_problem(adoption, environment):
        return found
    if PRODUCTION in (adoption.environment, environment) and not in_production:
        return (
            "the database is noted for the environment production: name another one, "
            "or add --in-production if this is meant"
        )
    if not await may_clean(connection):
        return (
            "this role can't make a schema for the run, or can't remove its traces "
            "from schema pgwake: connect as the owner of schema pgwake, with the right "
            "to create in the database"
        )
    return None


def warning(run: Run, plan: Plan, sessions: int) -> Iterator[str]:
    """Yield the lines that say what will be done.

    Args:
        run: The run.
        plan: What of.
        sessions: How many it may have at once.
    """
    yield (
        f"{plan.rate:g} jobs/s go into the queue {run.queue}, with up to {sessions} "
        f"sessions; its tables are in the schema {run.schema}. At the end all of it is "
        "removed, unless --keep says otherwise. Others in this database:"
    )
    for name in plan.faults:
        yield f"  {name:<18} {FAULTS[name].for_others}"
