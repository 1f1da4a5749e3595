"""The doors by their names."""

from collections.abc import Callable

from .calls import Calls
from .campaign import Door
from .commands import Commands
from .requests import Requests
from .rows import Inserts
from .stage import Stage

DOORS: dict[str, Callable[[Stage], Door]] = {
    door.name: door for door in (Calls, Inserts, Requests, Commands)
}
