"""Which folders the demo may replace; `tests/cli/test_commands.py` runs all of it."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from atwu.experiments import demonstration as demo


class MeasuringError(Exception):
    """Ends a demo after its last model."""


@pytest.fixture
def unlearned(monkeypatch):
    """Unlearning and models replaced: which folders were written to."""
    done = []

    def unlearn(*given, output, overwrite, **options):
        assert overwrite or not output.exists()
        output.mkdir(parents=True, exist_ok=True)
        done.append(output.name)

    def opened(name, loading):
        raise MeasuringError

    benchmark = SimpleNamespace(forget_source="forget.jsonl", retain_source="retain.jsonl")
    models = SimpleNamespace(target="target", retain_only="retain-only", benchmark=benchmark)
    monkeypatch.setattr(demo, "run_unlearn", unlearn)
    monkeypatch.setattr(demo, "open_model", opened)
    monkeypatch.setattr(demo, "prepare_models", lambda setting, **options: models)
    return done


def test_a_demo_replaces_only_its_own_models(tmp_path, unlearned):
    for seed in (0, 0, 1):
        with pytest.raises(MeasuringError):
            demo.run_demo("tiny", tmp_path / "demo", seed=seed, say=str)
    assert unlearned == [*demo.DEMO_METHODS] * 3
    (tmp_path / "runs" / "atwu").mkdir(parents=True)
    (tmp_path / "runs" / "atwu" / "run.json").write_text("a finished run")
    with pytest.raises(FileExistsError, match=r"runs/atwu .*demo.*--output"):
        demo.run_demo("tiny", tmp_path / "runs", seed=0, say=str)
    assert len(unlearned) == 9
    assert [path.name for path in (tmp_path / "runs").rglob("*")] == ["atwu", "run.json"]
