"""The clients of this kit, a language each, and how they are started."""

import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from worker.processes import clean_environment

HERE = Path(__file__).parent


@dataclass(frozen=True, slots=True)
class Client:
    """The commands of a language; `hears`: its driver has notifications."""

    consumer: tuple[str, ...]
    producer: tuple[str, ...]
    contract: tuple[str, ...]
    hears: bool = True
    heartbeats: bool = True


def languages() -> Path:
    """The folder of the languages, as tests/conformance/tools.sh makes it."""
    return Path(os.environ["PGWAKE_TEST_LANGUAGES"])


def script(tool: str, ending: str) -> Client:
    """The client of a language whose scripts a tool of that name runs."""
    return Client(*(
        (str(languages() / "bin" / tool), str(HERE / tool / f"{name}.{ending}"))
        for name in ("consumer", "producer", "contract")
    ))  # fmt: skip
