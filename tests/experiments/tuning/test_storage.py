"""Kinds of storage by name, and passwords that are never shown."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from atwu.experiments.benchmark_settings import find_setting
from atwu.experiments.executors import InProcessExecutor
from atwu.experiments.tuning.search import FinishedTrial, Search, SearchPoint
from atwu.experiments.tuning.trial_storage import check_storage, masked, open_storage, storage_url
from atwu.experiments.tuning.tune_methods import plan_tuning, tune_methods
from tests.damage import damage
from tests.experiments.tuning.searching import run_trials

SECRET = "s3cret-Kelbury"


def evaluate(place: int, point: SearchPoint, folder: Path) -> FinishedTrial:
    return FinishedTrial(place, point, 1.0)


def test_the_kind_of_storage_follows_from_its_name(tmp_path):
    assert storage_url(None, tmp_path) == f"sqlite:///{tmp_path}/search.db"
    assert storage_url(f"{tmp_path}/mine.db", tmp_path) == f"sqlite:///{tmp_path}/mine.db"
    assert storage_url(f"{tmp_path}/mine.journal", tmp_path) == f"{tmp_path}/mine.journal"
    for scheme in ("postgres", "postgresql", "postgresql+psycopg"):
        assert storage_url(f"{scheme}://orla@host/db", tmp_path) == "postgresql+psycopg://orla@host/db"
    assert storage_url("mysql+pymysql://orla@host/db", tmp_path) == "mysql+pymysql://orla@host/db"
    with pytest.raises(ValueError, match=r"NAME\.db.*NAME\.journal.*URL"):
        storage_url("mine.txt", tmp_path)


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        (f"postgresql://orla:{SECRET}@host:5432/db", "postgresql://orla:***@host:5432/db"),
        (f"postgresql://orla:p@{SECRET}@host/db", "postgresql://orla:***@host/db"),
        (f"postgresql://orla@host/db?password={SECRET}&connect_timeout=3", "postgresql://orla@host/db?password=***"),
        (f"postgresql+psycopg://:{SECRET}@/db?host=/run", "postgresql+psycopg://:***@/db?host=/run"),
        ("sqlite:////data/search.db", "sqlite:////data/search.db"),
        ("/data/search.journal", "/data/search.journal"),
    ],
)
def test_passwords_are_masked(url, shown):
    assert masked(url).startswith(shown)
    assert SECRET not in masked(url)


@pytest.mark.parametrize("name", ["a#1", "a?1", "a%231", "ä b"])
def test_a_storage_folder_may_have_any_name(tmp_path, name):
    folder = tmp_path / name
    search = Search("grad_diff", find_setting("people-tiny"), trials=1).decided()
    run_trials(search, evaluate, InProcessExecutor(), folder=folder, what={})
    assert (folder / "search.db").is_file()
    assert [path.name for path in tmp_path.iterdir()] == [name]
    mine = dataclasses.replace(search, storage=str(folder / "mine.db"))
    run_trials(mine, evaluate, InProcessExecutor(), folder=folder, what={})
    assert (folder / "mine.db").is_file()


def test_an_unavailable_storage_is_reported_without_its_password(tmp_path):
    pytest.importorskip("psycopg")
    url = f"postgresql://orla:{SECRET}@127.0.0.1:1/db?connect_timeout=2"
    search = Search("grad_diff", find_setting("people-tiny"), trials=1, storage=url).decided()
    assert SECRET not in repr(search)
    with pytest.raises(ValueError, match=r"postgresql\+psycopg://orla:\*\*\*@127.0.0.1:1") as error:
        run_trials(search, evaluate, InProcessExecutor(), folder=tmp_path, what={})
    assert SECRET not in str(error.value)


@pytest.mark.parametrize("how", ["truncated", "zeroed"])
def test_a_damaged_storage_is_reported_before_any_trial(how, tmp_path):
    search = Search("grad_diff", find_setting("people-tiny"), trials=1).decided()
    run_trials(search, evaluate, InProcessExecutor(), folder=tmp_path, what={})
    check_storage(storage_url(None, tmp_path))
    for neighbour in tmp_path.glob("search.db-*"):
        neighbour.unlink()
    damage(tmp_path / "search.db", how)
    tuning = plan_tuning(["grad_diff"], output=tmp_path, trials=1)
    with pytest.raises(ValueError, match=r"search\.db .*damaged"):
        tune_methods(tuning, InProcessExecutor())


@pytest.mark.parametrize(
    "content", [b"{}\n", b"[3]\n{}\n", b"<html>\n<html>\n", b"\xff\xfe\n{}\n", b'{"op_code": 4}\n']
)
def test_a_damaged_journal_is_rejected_by_name(content, tmp_path):
    path = tmp_path / "mine.journal"
    path.write_bytes(content)
    with pytest.raises(ValueError, match=r"mine\.journal is damaged"):
        open_storage(str(path))


@pytest.mark.parametrize(("old", "new"), [('"values":[1.0]', '"values":[3.0]'), ('"retain":0.5', '"retain":0.9')])
def test_a_changed_trial_is_not_used(old, new, tmp_path):
    """Optuna's journal has no checksums: a changed digit would change the best settings."""

    def evaluate(place: int, point: SearchPoint, folder: Path) -> FinishedTrial:
        return FinishedTrial(place, point, 1.0, retain=0.5)

    path = tmp_path / "mine.journal"
    search = Search("grad_diff", find_setting("people-tiny"), trials=2, storage=str(path)).decided()
    run_trials(search, evaluate, InProcessExecutor(), folder=tmp_path, what={})
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new, 1))
    with pytest.raises(ValueError, match=r"trial 0 of .* was changed in the storage"):
        run_trials(search, evaluate, InProcessExecutor(), folder=tmp_path, what={})
