"""Kinds of storage by name, passwords that are never shown, and a search in PostgreSQL."""

from __future__ import annotations

import contextlib
import getpass
import os
import pwd
import secrets
import shutil
import signal
import socket
import subprocess
import tempfile
import time
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


def _binaries() -> Path | None:
    """Folder of PostgreSQL's programs, the newest where there are several."""
    if found := shutil.which("initdb"):
        return Path(found).resolve().parent
    folders = [path.parent for path in Path("/usr/lib/postgresql").glob("*/bin/initdb")]
    return max(folders, key=lambda folder: float(folder.parent.name), default=None)


@pytest.fixture
def postgres() -> Iterator[str]:
    """URL of a database on a server of its own, with a password; it listens on the loopback interface only."""
    binaries = _binaries()
    if binaries is None:
        pytest.skip("PostgreSQL's initdb is not installed (Debian: apt install postgresql)")
    root = os.geteuid() == 0
    if root and shutil.which("setpriv") is None:
        pytest.skip("PostgreSQL refuses to run as root, and setpriv is not there to change the user")
    user = pwd.getpwnam("nobody") if root else None
    # Not under pytest's folder, which other users cannot enter.
    folder = Path(tempfile.mkdtemp(prefix="atwu-postgres-"))
    change = [] if user is None else ["setpriv", f"--reuid={user.pw_uid}", f"--regid={user.pw_gid}", "--clear-groups"]
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        password, port = secrets.token_hex(8), probe.getsockname()[1]
    (folder / "password").write_text(password)
    if user is not None:
        for path in (folder, folder / "password"):
            os.chown(path, user.pw_uid, user.pw_gid)
    server = None
    try:
        subprocess.run(
            [
                *(*change, str(binaries / "initdb"), "--pgdata", str(folder / "data"), "--username", "tuner"),
                *("--auth", "scram-sha-256", "--pwfile", str(folder / "password"), "--no-sync", "--encoding", "UTF8"),
            ],
            check=True,
            capture_output=True,
            cwd=folder,
        )
        with (folder / "server.log").open("w") as log:
            server = subprocess.Popen(
                [
                    *(*change, str(binaries / "postgres"), "-D", str(folder / "data"), "-p", str(port)),
                    *("-c", "listen_addresses=127.0.0.1", "-c", f"unix_socket_directories={folder}"),
                    *("-c", "fsync=off"),
                ],
                stdout=log,
                stderr=log,
                cwd=folder,
            )
        _wait_for(port, server, folder / "server.log")
        yield f"postgresql://tuner:{password}@127.0.0.1:{port}/postgres"
    finally:
        if server is not None:
            server.send_signal(signal.SIGINT)  # fast shutdown
            with contextlib.suppress(subprocess.TimeoutExpired):
                server.wait(20)
            server.kill()
            server.wait()
        shutil.rmtree(folder, ignore_errors=True)


def _wait_for(port: int, server: subprocess.Popen[bytes], log: Path) -> None:
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        if server.poll() is not None:
            break
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
            return
        time.sleep(0.05)
    pytest.fail(f"PostgreSQL did not start as {getpass.getuser()}:\n{log.read_text()[-2000:]}")
