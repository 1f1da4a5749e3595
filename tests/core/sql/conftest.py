"""The fixtures of the tests of sql/."""

from support.sql.fixtures import (  # noqa: F401
    connect,
    pytest_ignore_collect,
    session,
)
