"""Progress without a terminal: a line at once, further ones rarely, and the duration."""

from __future__ import annotations

import io

import pytest

from atwu._progress import Lines, progress_bar


@pytest.fixture
def now(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    time = [0.0]
    monkeypatch.setattr("tqdm.std.time", lambda: time[0])
    return time


def test_lines_are_printed_at_once_and_then_rarely(now: list[float]) -> None:
    out = io.StringIO()
    with Lines(total=40, desc="training", unit="step", file=out) as lines:
        assert out.getvalue() == "training: 0 of 40 steps\n"
        for step in range(40):
            now[0] += 4
            lines.set_postfix_str(f"loss {step}", refresh=False)
            lines.update()
    told = out.getvalue().splitlines()
    assert told[1] == "training: 4 of 40 steps, 00:16 elapsed, about 02:24 left, loss 3"
    assert len(told) == 1 + 10 + 1
    assert told[-1] == "training: 40 of 40 steps in 02:40, loss 39"


def test_short_work_prints_one_line(now: list[float]) -> None:
    out = io.StringIO()
    lines = Lines(range(3), total=3, desc="read", unit="row", file=out)
    assert list(lines) == [0, 1, 2]
    assert out.getvalue() == "read: 0 of 3 rows\n"


def test_work_done_earlier_does_not_bias_the_estimate(now: list[float]) -> None:
    out = io.StringIO()
    lines = Lines(total=100, desc="training", unit="step", initial=80, file=out)
    now[0] = 20
    lines.update(5)
    assert "training: 85 of 100 steps, 00:20 elapsed, about 01:00 left" in out.getvalue()
    lines.total = 90  # training may end before its last step
    now[0] = 40
    lines.update(1)
    assert "training: 86 of 90 steps, 00:40 elapsed, about 00:26 left" in out.getvalue()


def test_disabled_progress_shows_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    with progress_bar(total=3, desc="read", unit="row", shown=False) as bar:
        bar.set_postfix_str("x", refresh=False)
        bar.update(3)
    with progress_bar(total=3, desc="read", unit="row") as bar:  # a test's standard error is no terminal
        bar.update(3)
    assert capsys.readouterr().err == "read: 0 of 3 rows\n"
