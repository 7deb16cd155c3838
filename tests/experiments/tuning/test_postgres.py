"""A search on a PostgreSQL server: killed, resumed in another folder, and equal to one in a file."""

from __future__ import annotations

import pytest

TRIALS = 12


@pytest.mark.slow
def test_a_killed_search_in_postgres_resumes_to_the_same_points_as_one_in_a_file(
    tmp_path, postgres, searching, search_here, kill_in_trial
):
    psycopg = pytest.importorskip("psycopg")
    lost = searching(tmp_path / "one", storage=postgres, trials=TRIALS, seconds=0.2)
    kill_in_trial(lost, tmp_path / "one" / "begun.log", 5)
    found = search_here(tmp_path / "two", postgres, trials=TRIALS)
    assert found == search_here(tmp_path / "file", trials=TRIALS)
    with psycopg.connect(postgres) as server:
        rows = server.execute(
            "select t.state::text, a.value_json from trials t join trial_user_attributes a using (trial_id) "
            "where a.key = 'slot'"
        ).fetchall()
    assert sorted(int(place) for _, place in rows) == list(range(TRIALS))
    assert {state for state, _ in rows} <= {"COMPLETE", "PRUNED"}
