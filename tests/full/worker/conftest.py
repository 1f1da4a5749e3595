"""The fixtures of the tests of worker/."""

from support.worker.fixtures import (  # noqa: F401
    _only_the_tests_own_settings,
    _spare_server,
    connect,
    diary,
    pgwake,
    pgwake_program,
    spare_database,
    spare_server,
    start_application,
    start_process,
    start_worker,
    transaction_pooler,
    typed,
)
