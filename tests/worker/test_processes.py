"""process=True: plain functions in processes, each for one job at a time."""

from pgwake.registry import registry
from sql.helpers import insert
from support import Connection
from worker import process_handlers  # noqa: F401, registers
from worker.helpers import embedded, ended


async def test_a_handler_in_a_process_sees_its_job_and_its_result_is_stored(
    connection: Connection, database: str
) -> None:
    job_id = await insert(connection, "apart", payload={"text": "Zoë", "number": 1})
    async with embedded(database, registry):
        row = await ended(connection, job_id)

    assert row["result"] == {}
