"""Kinds of storage by name, passwords that are never shown, and a search in PostgreSQL."""

from __future__ import annotations

import os
import secrets
import shutil
import socket
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from atwu.experiments.tuning.trials import masked, storage_place
from tests.damage import damage
from tests.experiments.tuning.searching import Objective, points, run, search_for

SECRET = "s3cret-Kelbury"


def test_the_kind_of_storage_follows_from_its_name(tmp_path):
    assert storage_place(None, tmp_path) == f"{tmp_path}/search.db"
    for name in ("mine.db", "mine.journal"):
        assert storage_place(f"{tmp_path}/{name}", tmp_path) == f"{tmp_path}/{name}"
    for scheme in ("postgres", "postgresql", "postgresql+psycopg"):
        assert storage_place(f"{scheme}://orla@host/db", tmp_path) == "postgresql+psycopg://orla@host/db"
    assert storage_place("mysql+pymysql://orla@host/db", tmp_path) == "mysql+pymysql://orla@host/db"
    with pytest.raises(ValueError, match=r"NAME\.db.*NAME\.journal.*URL"):
        storage_place("mine.txt", tmp_path)


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        (f"postgresql://orla:{SECRET}@host:5432/db", "postgresql://orla:***@host:5432/db"),
        (f"postgresql://orla:p@{SECRET}@host/db", "postgresql://orla:***@host/db"),
        (f"postgresql://orla@host/db?password={SECRET}&timeout=3", "postgresql://orla@host/db?password=***&timeout=3"),
        (f"postgresql+psycopg://:{SECRET}@/db?host=/run", "postgresql+psycopg://:***@/db?host=/run"),
        ("postgresql://orla@host:5432/db", "postgresql://orla@host:5432/db"),
        ("/data/search.journal", "/data/search.journal"),
    ],
)
def test_passwords_are_masked(url, shown):
    assert masked(url) == shown


@pytest.mark.parametrize("name", ["a#1", "a?1%23 ä b"])
def test_a_storage_folder_may_have_any_name(tmp_path, name):
    run(search_for("grad_diff", trials=1), tmp_path / name)
    run(search_for("grad_diff", trials=1, storage=str(tmp_path / name / "mine.db")), tmp_path / name)
    assert [path.name for path in tmp_path.iterdir()] == [name]
    assert {"search.db", "mine.db"} <= {path.name for path in (tmp_path / name).iterdir()}


def test_an_unavailable_storage_is_reported_without_its_password(tmp_path):
    pytest.importorskip("psycopg")
    url = f"postgresql://orla:{SECRET}@127.0.0.1:1/db?connect_timeout=2"
    search = search_for("grad_diff", storage=url)
    assert SECRET not in repr(search)
    with pytest.raises(ValueError, match=r"postgresql\+psycopg://orla:\*\*\*@127.0.0.1:1") as error:
        run(search, tmp_path)
    assert SECRET not in str(error.value)


def test_a_damaged_storage_is_named(tmp_path):
    search = search_for("grad_diff", trials=1)
    run(search, tmp_path)
    for neighbour in tmp_path.glob("search.db-*"):
        neighbour.unlink()
    damage(tmp_path / "search.db", "zeroed")
    with pytest.raises(ValueError, match=r"cannot open the storage .*search\.db"):
        run(search, tmp_path)


@pytest.mark.night
def test_a_stopped_search_in_postgres_continues_in_another_folder(tmp_path, postgres):
    psycopg = pytest.importorskip("psycopg")
    search, objective = search_for(storage=postgres, trials=12), Objective({5: OSError("no space")})
    with pytest.raises(OSError, match="no space"):
        run(search, tmp_path / "one", objective)
    found = run(search, tmp_path / "two", objective)
    assert objective.asked == [0, 1, 2, 3, 4, 5, 5, 6, 7, 8, 9, 10, 11]
    assert points(found)[:10] == points(run(search_for(trials=10), tmp_path / "file"))
    with psycopg.connect(postgres) as server:
        rows = server.execute("select number, state::text from trials").fetchall()
    assert sorted(number for number, _ in rows) == list(range(12))
    assert {state for _, state in rows} <= {"COMPLETE", "PRUNED"}


@pytest.fixture
def postgres() -> Iterator[str]:
    """URL of a database on a server of its own, with a password."""
    if (initdb := shutil.which("initdb")) is None:
        pytest.skip("PostgreSQL's initdb is not installed (Debian: apt install postgresql)")
    root = os.geteuid() == 0  # PostgreSQL refuses to run as root
    change = ["setpriv", "--reuid=nobody", "--regid=nogroup", "--clear-groups"] if root else []
    # Not under pytest's folder, which other users cannot enter.
    folder = Path(tempfile.mkdtemp(prefix="atwu-postgres-"))
    password, data = secrets.token_hex(8), folder / "data"
    (folder / "password").write_text(password)
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    for path in (folder, folder / "password") if root else ():
        shutil.chown(path, "nobody", "nogroup")

    def command(program: str, *arguments: str) -> None:
        there = Path(initdb).resolve().with_name(program)
        subprocess.run([*change, str(there), "-D", str(data), *arguments], check=True, cwd=folder)

    command("initdb", "--username=tuner", "--auth=scram-sha-256", f"--pwfile={folder}/password", "--no-sync")
    options = f"-p {port} -c listen_addresses=127.0.0.1 -c unix_socket_directories={folder} -c fsync=off"
    command("pg_ctl", "start", "-w", "-l", str(folder / "log"), "-o", options)
    yield f"postgresql://tuner:{password}@127.0.0.1:{port}/postgres"
    command("pg_ctl", "stop", "-m", "fast")
    shutil.rmtree(folder)
