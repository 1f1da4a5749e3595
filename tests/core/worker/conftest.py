"""The fixtures of the tests of worker/."""

from support.worker.fixtures import (  # noqa: F401
    _only_the_tests_own_settings,
    connect,
    diary,
    pgwake,
    pgwake_program,
    start_application,
    start_process,
    start_worker,
    typed,
)
