"""Worker processes, as the tests of the worker start them."""

from support.worker.fixtures import (  # noqa: F401, fixtures
    _only_the_tests_own_settings,
    connect,
    diary,
    start_process,
    start_worker,
)
