"""The fixtures of the tests of sql/."""

from support.sql.fixtures import (  # noqa: F401
    connect,
    database,
    db,
    old_snapshot,
    other,
    pytest_ignore_collect,
    pytest_itemcollected,
    session,
    shared,
)
