"""A search in its own process, to be killed; and a temporary PostgreSQL server."""

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
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.commands import Started

SEARCH = "import sys; from tests.experiments.tuning.searching import main; main(*sys.argv[1:])"


@pytest.fixture
def searching() -> Callable[..., Started]:
    """Starts a search, which ends by itself after seconds."""

    def start(folder: Path, *, storage: str = "-", trials: int, seconds: float, processes: int = 1) -> Started:
        folder.mkdir(parents=True, exist_ok=True)
        return Started([folder, storage, trials, seconds, processes], code=SEARCH)

    return start


@pytest.fixture(scope="session")
def search_here() -> Callable[..., list[Any]]:
    """The same search in this process."""
    from tests.experiments.tuning.searching import search

    return search


@pytest.fixture
def kill_in_trial() -> Callable[[Started, Path, int], None]:
    """Kill a search as soon as it has started a number of trials."""

    def kill(process: Started, log: Path, trials: int) -> None:
        deadline = time.monotonic() + 240
        while not log.is_file() or len(log.read_text().split()) < trials:
            assert not process.ended(), "the search ended before it could be killed"
            assert time.monotonic() < deadline
            time.sleep(0.01)
        assert process.kill().returncode == -signal.SIGKILL

    return kill


def _binaries() -> Path | None:
    """Folder of PostgreSQL's programs, the newest where there are several."""
    if found := shutil.which("initdb"):
        return Path(found).resolve().parent
    folders = [path.parent for path in Path("/usr/lib/postgresql").glob("*/bin/initdb")]
    return max(folders, key=lambda folder: float(folder.parent.name), default=None)


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@pytest.fixture(scope="session")
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
    password, port = secrets.token_hex(8), _free_port()
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
