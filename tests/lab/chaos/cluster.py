"""A cluster to break: etcd and three PostgreSQL servers under Patroni, on this machine.

Patroni's times are ttl 20 s, loop_wait 5 s and retry_timeout 7 s: a leader that is gone
is replaced after 20 s at the latest, and one that can't reach etcd steps down before.
"""

import asyncio
import json
import os
import secrets
import signal
import subprocess
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import httpx

from pgwake.database.binaries import ServerUser, find_binaries, server_version
from pgwake.database.embedded import free_port

CHECKOUT = Path(__file__).resolve().parents[3]
NAMES = ("a", "b", "c")
TTL, LOOP_WAIT, RETRY_TIMEOUT = 20, 5, 7
DEADLINE_SECONDS = 120
LOOK_SECONDS = 0.1
LAG_SECONDS = 0.5


def _unpacked(tool: str) -> str:
    """Return the path of a program, unpacked if need be."""
    command = [str(CHECKOUT / "tests" / "unpack"), tool]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    return f"{done.stdout.strip()}/{tool}"


class Node:
    """One of the servers, with the Patroni that runs it."""

    def __init__(self, name: str, folder: Path) -> None:
        self.name = name
        self.folder = folder
        self.port = free_port()
        self.api = f"http://127.0.0.1:{free_port()}"
        self.patroni: subprocess.Popen[bytes] | None = None

    @property
    def data(self) -> Path:
        """Its data directory."""
        return self.folder / "data"

    def processes(self) -> Iterator[int]:
        """Yield Patroni, then the postmaster, then what the postmaster has started.

        Who stops each before asking for the next lets none start another.
        """
        assert self.patroni is not None
        yield self.patroni.pid
        with suppress(FileNotFoundError):
            postmaster = int((self.data / "postmaster.pid").read_text().split()[0])
            command = Path(f"/proc/{postmaster}/cmdline").read_text()
            if str(self.data) not in command:
                return  # the file is of a dead one, and the number somebody else's
            yield postmaster
            children = Path(f"/proc/{postmaster}/task/{postmaster}/children")
            yield from map(int, children.read_text().split())

    def senders(self) -> list[int]:
        """Return the processes that send WAL to standbys."""
        return [
            pid
            for pid in self.processes()
            if b"walsender" in Path(f"/proc/{pid}/cmdline").read_bytes()
        ]


class Cluster:
    """The servers and their etcd; a context manager that starts and ends them.

    Args:
        folder: A directory to live in.
        synchronous: Patroni's synchronous_mode: "on", "strict" or "off".

    Attributes:
        nodes: The servers, by name.
        url: Of the database, with all hosts, for whichever is the primary.
        version: PostgreSQL's.
    """

    def __init__(self, folder: Path, synchronous: str) -> None:
        self._folder = folder
        self._synchronous = synchronous
        self._user = ServerUser.of_this_process()
        if self._user.uid is not None:
            raise SystemExit(
                "root may make no user namespace here, and PostgreSQL does not run as"
                " root: run this as another user"
            )
        self._binaries = find_binaries()
        self.version = server_version(self._binaries)
        self._password = secrets.token_hex(12)
        self.nodes = {name: Node(name, folder / name) for name in NAMES}
        self._etcd: subprocess.Popen[bytes] | None = None
        self._client = httpx.AsyncClient(timeout=1, trust_env=False)

    @property
    def url(self) -> str:
        """See the class."""
        return self.url_of(*self.nodes)

    def url_of(self, *names: str) -> str:
        """Return the URL with these hosts, in this order."""
        hosts = ",".join(f"127.0.0.1:{self.nodes[name].port}" for name in names)
        return (
            f"postgresql://postgres:{self._password}@{hosts}/postgres"
            "?target_session_attrs=read-write"
        )

    async def __aenter__(self) -> Self:
        etcd, self._patroni = map(_unpacked, ("etcd", "patroni"))
        client, peer = (f"http://127.0.0.1:{free_port()}" for _ in range(2))
        self._etcd = self._spawn(
            self._folder / "etcd.log",
            *(etcd, "--data-dir", str(self._folder / "etcd")),
            *("--listen-client-urls", client, "--advertise-client-urls", client),
            *("--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer),
            *("--initial-cluster", f"default={peer}"),
        )
        for node in self.nodes.values():
            node.folder.mkdir()
            config = node.folder / "patroni.yml"  # JSON is YAML, too
            config.write_text(json.dumps(self._config(node, client), indent=2))
            config.chmod(0o600)
            self.start(node.name)
        try:
            await self.until_healthy()
        except BaseException:
            await self.close()
            raise
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()

    def _spawn(self, log: Path, *command: str) -> "subprocess.Popen[bytes]":
        # PGDATA, PGPORT and the like mean another server.
        environment = {k: v for k, v in os.environ.items() if not k.startswith("PG")}
        with log.open("ab") as output:
            return subprocess.Popen(
                command,
                cwd=self._folder,
                env={**environment, "LC_ALL": "C"},
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,
            )

    def _config(self, node: Node, etcd: str) -> dict[str, Any]:
        address = f"127.0.0.1:{node.port}"
        api = node.api.removeprefix("http://")
        users = {"superuser": "postgres", "replication": "replicator"}
        return {
            "scope": "pgwake",
            "name": node.name,
            "restapi": {"listen": api, "connect_address": api},
            "etcd3": {"url": etcd},
            "bootstrap": {
                "dcs": {
                    "ttl": TTL,
                    "loop_wait": LOOP_WAIT,
                    "retry_timeout": RETRY_TIMEOUT,
                    "synchronous_mode": self._synchronous != "off",
                    "synchronous_mode_strict": self._synchronous == "strict",
                    "postgresql": {
                        "use_pg_rewind": True,
                        "parameters": {"wal_log_hints": "on"},
                    },
                },
                "initdb": [{"encoding": "UTF8"}, "no-locale"],
            },
            "postgresql": {
                "listen": address,
                "connect_address": address,
                "data_dir": str(node.data),
                "bin_dir": str(self._binaries),
                "pgpass": str(node.folder / "pgpass"),
                "authentication": {
                    role: {"username": user, "password": self._password}
                    for role, user in users.items()
                },
                "parameters": {"unix_socket_directories": ""},
                "pg_hba": [
                    "host all all 127.0.0.1/32 scram-sha-256",
                    "host replication replicator 127.0.0.1/32 scram-sha-256",
                ],
                # A leader that has gone on alone, and can't be rewound, is made anew.
                "remove_data_directory_on_rewind_failure": True,
            },
        }

    def start(self, name: str) -> None:
        """Start a node's Patroni, which starts its server."""
        node = self.nodes[name]
        node.patroni = self._spawn(
            node.folder / "log",
            *(*self._user.prefix, self._patroni, str(node.folder / "patroni.yml")),
        )

    async def kill(self, name: str) -> None:
        """End a node as a power cut would: Patroni, the server and all its backends.

        For half a second before, it sends its standbys nothing: a synchronous one makes
        commits wait, others miss what was committed.
        """
        for pid in self.nodes[name].senders():
            os.kill(pid, signal.SIGSTOP)
        await asyncio.sleep(LAG_SECONDS)
        self._end(name)

    def freeze(self, name: str) -> None:
        """Stop all of a node where it stands; its sockets stay open, and dumb."""
        for pid in self.nodes[name].processes():
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGSTOP)

    def thaw(self, name: str) -> None:
        """Let it go on; the server before Patroni, which is the worse order."""
        for pid in reversed(list(self.nodes[name].processes())):
            os.kill(pid, signal.SIGCONT)

    def _end(self, name: str) -> None:
        self.freeze(name)  # a dead postmaster has no children any more
        for pid in list(self.nodes[name].processes()):
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        patroni = self.nodes[name].patroni
        assert patroni is not None
        patroni.wait()

    async def members(self) -> dict[str, tuple[str, str]]:
        """Return what Patroni says of each node: its role and its state."""
        for node in self.nodes.values():
            with suppress(httpx.HTTPError):
                answer = await self._client.get(f"{node.api}/cluster")
                members = answer.json().get("members", [])
                return {m["name"]: (m["role"], m["state"]) for m in members}
        return {}

    async def leader(self) -> str | None:
        """Return the name of the leader; None: there is none, or nobody says."""
        members = await self.members()
        return next((n for n, (role, _) in members.items() if role == "leader"), None)

    async def until_healthy(self) -> None:
        """Wait until one leads and two stream, one of them synchronously if asked."""
        roles = ["leader", "replica", "replica"]
        if self._synchronous != "off":
            roles[2] = "sync_standby"

        async def look() -> bool:
            members = (await self.members()).values()
            return sorted(role for role, _ in members) == roles and all(
                state == ("running" if role == "leader" else "streaming")
                for role, state in members
            )

        await until(look, "the cluster is healthy")

    async def until_standby(self, name: str) -> None:
        """Wait until a node streams from another."""

        async def look() -> bool:
            role, state = (await self.members()).get(name, ("", ""))
            return role in ("replica", "sync_standby") and state == "streaming"

        await until(look, f"{name} is a standby")

    async def switch_over(self) -> None:
        """Ask Patroni to hand the lead to whichever standby it may."""
        leader = await self.leader()
        assert leader is not None
        answer = await self._client.post(
            f"{self.nodes[leader].api}/switchover",
            json={"leader": leader},
            timeout=DEADLINE_SECONDS,
        )
        assert answer.status_code == 200, answer.text

    async def close(self) -> None:
        """End everything at once."""
        for node in self.nodes.values():
            if node.patroni is not None and node.patroni.poll() is None:
                self._end(node.name)
        if self._etcd is not None:
            self._etcd.kill()
            self._etcd.wait()
        await self._client.aclose()


async def until(look: Any, what: str) -> None:
    """Wait until look() says so.

    Raises:
        TimeoutError: It has not, for two minutes.
    """
    try:
        async with asyncio.timeout(DEADLINE_SECONDS):
            while not await look():
                await asyncio.sleep(LOOK_SECONDS)
    except TimeoutError:
        raise TimeoutError(f"not for {DEADLINE_SECONDS} s: {what}") from None
