"""A process=True handler and its model, in a registry of their own."""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import NewType

from pgwake import Registry
from support.worker.shared_handlers import note

registry = Registry()
Model = NewType("Model", str)


@registry.resource
def model() -> Iterator[Model]:
    text = Path(os.environ["TEST_MODEL"]).read_text()
    note("open")
    yield Model(text)
    note("close")


@registry.job("ask", process=True)
def ask(model: Model) -> str:
    return model
