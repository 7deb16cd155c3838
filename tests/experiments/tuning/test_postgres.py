"""Two machines on one PostgreSQL server; one of them dies in the middle of a trial."""

from __future__ import annotations

import json

import pytest

TRIALS = 8


@pytest.mark.slow
def test_trial_of_a_dead_machine_is_found_by_its_silence_and_run_by_the_other(
    tmp_path, postgres, searching, kill_in_trial
):
    psycopg = pytest.importorskip("psycopg")
    lost = searching(tmp_path, storage=postgres, trials=TRIALS, seconds=60, host="one")
    other = searching(tmp_path, storage=postgres, trials=TRIALS, seconds=0.2, host="two")
    kill_in_trial(lost, tmp_path / "one.log", 1)
    found = json.loads(other.communicate(timeout=120)[0])
    assert other.returncode == 0
    (slot,) = (int(line) for line in (tmp_path / "one.log").read_text().split())
    ran = [int(line) for line in (tmp_path / "two.log").read_text().split()]
    assert sorted(ran) == list(range(TRIALS))
    assert [number for number, *_ in found] == list(range(TRIALS))
    with psycopg.connect(postgres) as server:
        rows = server.execute(
            "select t.state::text, a.value_json from trials t join trial_user_attributes a using (trial_id) "
            "where a.key = 'slot' order by t.number"
        ).fetchall()
        points = server.execute(
            "select a.value_json from trials t join trial_user_attributes a using (trial_id) "
            "join trial_user_attributes s on s.trial_id = t.trial_id and s.key = 'slot' and s.value_json = %s "
            "where a.key = 'point'",
            (str(slot),),
        ).fetchall()
    finished = [int(place) for state, place in rows if state in ("COMPLETE", "PRUNED")]
    assert sorted(finished) == list(range(TRIALS))
    assert ("FAIL", str(slot)) in rows
    assert not [state for state, _ in rows if state in ("RUNNING", "WAITING")]
    assert len(points) >= 2
    assert len({json.dumps(json.loads(point), sort_keys=True) for (point,) in points}) == 1


@pytest.mark.slow
def test_search_on_the_server_asks_for_the_same_points_as_one_in_a_file(tmp_path, postgres, search_here):
    pytest.importorskip("psycopg")
    another = postgres.rpartition("/")[0] + "/template1"
    assert search_here(tmp_path / "server", another, trials=12) == search_here(tmp_path / "file", trials=12)
