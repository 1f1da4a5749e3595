"""How the roles come to be, on a server that has none of them yet."""

from concurrent.futures import ThreadPoolExecutor

import psycopg
import pytest

from pgwake.database.embedded import EmbeddedServer
from support import (
    CHECKOUT,
    LOGINS,
    OWNER,
    create_installed_database,
    database_url,
    make_logins,
    psql,
)
from support.sql.every_call import live

ROLES = str(CHECKOUT / "sql" / "roles.sql")
MEMBERS = """
select m.roleid::regrole::text, m.member::regrole::text from pg_auth_members as m
where m.member::regrole::text in ('pgwake_worker', 'pgwake_admin')
order by 1
"""


def told(server: EmbeddedServer, url: str) -> str:
    """What psql says of roles.sql that is refused."""
    with pytest.raises(AssertionError) as refused:
        psql(server, url, "-f", ROLES)
    return str(refused.value)


def test_roles_come_by_the_owner_a_superuser_or_all_at_once(
    own_server: EmbeddedServer,
) -> None:
    url = create_installed_database(own_server, "one")
    with psycopg.connect(own_server.socket_url, autocommit=True) as admin:
        # An owner who may not make them is told what a superuser has to run.
        refusal = told(own_server, url)
        assert f"{OWNER} may not make them" in refusal
        _, _, hint = refusal.partition("once for the whole server: ")
        statements = hint.partition("Then run this again.")[0]
        assert statements.count(";") == 5
        # No half of it stays.
        assert admin.execute("select to_regrole('pgwake_producer')").fetchone() == (
            None,
        )

        admin.execute("create role pgwake_worker nologin")
        statements = told(own_server, url).partition("server: ")[2].partition("Then")[0]
        assert "create role pgwake_worker" not in statements
        admin.execute(statements.encode())
        psql(own_server, url, "-f", ROLES)

        # With CREATEROLE an owner needs nobody, in several databases at once either.
        admin.execute("drop owned by pgwake_producer, pgwake_worker, pgwake_admin")
        with psycopg.connect(database_url(own_server, "one", "postgres")) as one:
            one.execute("drop owned by pgwake_producer, pgwake_worker, pgwake_admin")
        admin.execute("drop role pgwake_producer, pgwake_worker, pgwake_admin")
        admin.execute(f"alter role {OWNER} createrole")
        for copy in ("two", "three"):
            admin.execute(f"create database {copy} template one owner {OWNER}")
        urls = [database_url(own_server, name) for name in ("one", "two", "three")]
        with ThreadPoolExecutor(6) as pool:
            list(pool.map(lambda url: psql(own_server, url, "-f", ROLES), urls * 2))
        assert admin.execute(MEMBERS).fetchall() == [
            ("pgwake_producer", "pgwake_worker"),
            ("pgwake_worker", "pgwake_admin"),
        ]

        # Nothing is needed that only everybody's rights would give.
        make_logins(admin)
        admin.execute("revoke all on database three from public")
        for login in LOGINS:
            admin.execute(f"grant connect on database three to {login}")
    with psycopg.connect(database_url(own_server, "three", "postgres")) as hardened:
        hardened.execute("drop schema public")
        hardened.execute("revoke all on language plpgsql, sql from public")
    sessions = [
        psycopg.connect(
            database_url(own_server, "three", f"app_{role}"), autocommit=True
        )
        for role in ("producer", "worker", "admin")
    ]
    live(*sessions)
    for session in sessions:
        session.close()


def test_who_does_not_own_the_schema_is_told_who_does(
    own_server: EmbeddedServer,
) -> None:
    create_installed_database(own_server, "one")
    with psycopg.connect(own_server.socket_url, autocommit=True) as admin:
        admin.execute("create role app_nobody login password 'app'")
    refusal = told(own_server, database_url(own_server, "one", "app_nobody"))
    assert "only the owner of the schema pgwake" in refusal
    assert f"Run it as {OWNER}." in refusal
    refusal = told(own_server, database_url(own_server, "postgres", "postgres"))
    assert "there is no schema pgwake" in refusal
