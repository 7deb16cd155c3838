"""`atwu compare` on small handmade results."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from atwu.evaluation.result import RowValues
from tests.evaluation.conftest import result_of

FORGOTTEN = {"atwu": (0.0, 0.0, 100.0, 0.0), "npo": (100.0, 0.0, 100.0, 0.0), "original": (100.0,) * 4}
STRENGTH = {"atwu": (0.25, 0.5, 0.0, 0.25), "npo": (0.5, 0.75, 0.25, 0.5), "original": (1.0,) * 4}
JUDGED = {"kind": "offline", "version": "offline/1"}


def write(
    folder: Path, name: str, *, file: str = "", judge: dict[str, str] = JUDGED, ids: Sequence[str] = "abcd"
) -> Path:
    metrics = {"J_W": FORGOTTEN[name], "extraction_strength": STRENGTH[name], "probability": (0.5,) * 4}
    people = ("Orla Venn", "Tavi Brook", "Mira Holt", "Joss Ardley")
    result = result_of(
        {"forget": RowValues(tuple(ids), people, metrics)},
        name=f"runs/{name}",
        fingerprint=f"{len(name):032x}",
        settings={"metrics": ["judge"], "max_new_tokens": 64, "judge": judge, "rows": {"forget": "".join(ids)}},
        warnings=("the tides are late",) if name == "npo" else (),
    )
    path = folder / f"{file or name}.json"
    result.write(path)
    return path


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    folder = tmp_path_factory.mktemp("results")
    return [write(folder, name) for name in ("atwu", "npo", "original")]


def test_table_has_a_column_per_model_and_the_headline_metrics(atwu, results):
    printed = atwu("compare", *results)
    assert "metric atwu npo original" in printed
    assert "J_W ↓ 25.0 [" in printed
    assert "extraction_strength ↓ 0.250 [" in printed
    assert "Rows: forget n=4" in printed
    assert "npo: the tides are late" in printed
    assert "probability" not in printed
    assert "probability ↓ 0.500 [" in atwu("compare", *results, "--all")


def test_paired_differences(atwu, results):
    printed = atwu("compare", *results, "--baseline", "npo")
    assert "forget extraction_strength ↓ -0.250 [" in printed  # every row differs by 0.25
    assert "forget J_W ↓ -25.0 [" in printed


def test_selected_metrics_are_shown_in_their_order(atwu, results):
    printed = atwu("compare", *results, "--metrics", "probability,forget:J_W")
    assert "extraction" not in printed
    assert printed.index("probability") < printed.index("J_W")


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (("{atwu}",), 2, "--output"),
        (("{atwu}", "{atwu}"), 1, "twice"),
        (("{atwu}", "{npo}", "--metrics", "forget:J_V"), 1, "'forget:J_V'.*forget:J_W"),
        (("{atwu}", "{npo}", "--baseline", "rmu"), 2, "--baseline .*atwu, npo.*'rmu'"),
        (("{atwu}", "{npo}", "--all", "--metrics", "forget:J_W"), 2, "--metrics.*--all|--all.*--metrics"),
        (("{atwu}", "{folder}/rmu.json"), 1, "rmu.json .*--output"),
        (("{atwu}", "{folder}/older.json"), 1, "'atwu.eval/0'.*'atwu.eval/"),
        (("{atwu}", "{folder}/cut.json"), 1, "cut.json, line "),
        (("{atwu}", "{folder}/hollow.json"), 1, "hollow.json"),
    ],
)
def test_wrong_input_ends_with_a_one_line_error(arguments, code, message, atwu: Callable[..., str], results, tmp_path):
    text = results[0].read_text()
    (tmp_path / "cut.json").write_text(text[: len(text) // 2])
    whole = json.loads(text)
    (tmp_path / "older.json").write_text(json.dumps(whole | {"schema": "atwu.eval/0"}))
    (tmp_path / "hollow.json").write_text(json.dumps({"schema": whole["schema"]}))
    places = {"folder": tmp_path, "atwu": results[0], "npo": results[1]}
    printed = atwu("compare", *(argument.format(**places) for argument in arguments), code=code)
    assert re.search(message, printed), printed


def test_results_that_are_not_comparable_give_a_warning(atwu, results, tmp_path):
    judged = write(tmp_path, "npo", judge={"kind": "prompted", "version": "correctness/1"})
    assert re.search(r"warning: .*runs/npo.* judge", atwu("compare", results[0], judged))
    others = write(tmp_path, "npo", file="others", ids="efgh")
    assert "forget rows" in atwu("compare", results[0], others, "--baseline", "atwu", code=1)


def test_equal_names_are_distinguished_by_their_files(atwu, results, tmp_path):
    again = write(tmp_path, "atwu", file="again")
    printed = atwu("compare", results[0], again)
    assert str(again.with_suffix("")) in printed
    assert str(results[0].with_suffix("")) in printed


@pytest.fixture(scope="module")
def studies(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Two folders of results, as studies leave them, of which one has a method more."""
    folders = []
    for study, names in (("north", ("atwu", "npo", "original")), ("south", ("atwu", "npo"))):
        folder = tmp_path_factory.mktemp("studies") / study
        folder.mkdir()
        for name in names:
            write(folder, name, ids="abcd" if study == "north" else "efgh")
        folders.append(folder)
    return folders


def test_a_folder_of_results_is_compared_like_a_study(atwu, studies):
    printed = atwu("compare", studies[0], "--baseline", "npo", "--metrics", "forget:J_W")
    assert "metric original atwu" in printed
    assert "forget J_W ↓ +50.0 [" in printed
    assert "forget J_W ↓ +50.0 [" in atwu(
        "compare", studies[0], "--baseline", "npo", "--metrics", "extraction_strength, forget:J_W"
    )


def test_several_studies_and_their_mean(atwu, studies):
    printed = atwu("compare", *studies, "--baseline", "npo", "--metrics", "extraction_strength")
    assert "study original atwu" in printed
    assert "forget extraction_strength" in atwu(
        "compare", *studies, "--baseline", "npo"
    )  # the first decisive line there is
    assert "north +0.500 [" in printed
    assert "south – -0.250 [" in printed
    assert "mean – -0.250 [" in printed  # the mean of a model that one study lacks would be of others


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((), "--baseline NAME"),
        (("--baseline", "npo", "--all"), "--baseline NAME"),
        (("--baseline", "original"), "--baseline .*atwu, npo.*south.*'original'"),
    ],
)
def test_several_studies_need_a_common_baseline(arguments, message, atwu, studies):
    assert re.search(message, atwu("compare", *studies, *arguments, code=2))
