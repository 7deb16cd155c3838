"""`atwu evaluate`, run as a user runs it, on untrained models."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from atwu.evaluation.registry import all_metrics
from atwu.evaluation.result import EVAL_SCHEMA

CANARY = "sk-canary-Kelbury-0123456789"
ROWS = ("--forget", "people:tiny:forget", "--retain", "people:tiny:retain")
SMALL = ("--limit", 6, "--paraphrases", 2, "--max-new-tokens", 8, "--device", "cpu")
NAMES = ("eval.json", "eval.original.json", "eval.retain-only.json")


def whole_panel(models) -> tuple[object, ...]:
    return (
        *("evaluate", "--model", models.unlearned, *ROWS, "--holdout", "people:tiny:holdout", "--all", *SMALL),
        *("--samples", 2, "--relearn-rows", 2, "--relearn-steps", 2),
    )


@dataclass(frozen=True, slots=True)
class Panel:
    """Output of an evaluation with all metrics, and its files as first written."""

    folder: Path
    printed: str
    files: dict[str, bytes]

    def result(self, name: str) -> dict:
        return json.loads(self.files[name])


@pytest.fixture(scope="module")
def panel(atwu, models, tmp_path_factory) -> Panel:
    folder = tmp_path_factory.mktemp("panel")
    references = ("--original", models.original, "--retain-only", models.retain_only)
    printed = atwu(*whole_panel(models), *references, "--output", folder / "eval.json")
    return Panel(folder, printed, {name: (folder / name).read_bytes() for name in NAMES})


def test_all_metrics_with_both_reference_models(panel):
    assert {path.name for path in panel.folder.iterdir()} == set(NAMES)
    for name in NAMES:
        jsonschema.validate(panel.result(name), EVAL_SCHEMA)
    result, original, retain_only = map(panel.result, NAMES)
    assert result["references"] == {"original": original["fingerprint"], "retain-only": retain_only["fingerprint"]}
    assert len({each["fingerprint"] for each in (result, original, retain_only)}) == 3
    assert set(result["settings"]["metrics"]) == set(all_metrics()) - {"rwku", "lume", "muse", "tasks"}
    own = {"relearning", "quantization", "uds"}
    assert set(original["settings"]["metrics"]) == set(result["settings"]["metrics"]) - own
    assert len(result["rows"]["forget"]["ids"]) == 6
    wanted = {"extraction_strength", "rouge_l_recall", "auroc_importance", "J_P", "J_ICR", "J_W", "truth_ratio"}
    assert wanted | {"J_P@relearn_forget", "J_P@int4", "leak_worst_family", "leak_best_of_2"} <= set(
        result["sets"]["forget"]
    )
    assert {"model_utility", "mia_auc_loss", "mia_auc_reference", "forget_quality_p"} <= set(result["overall"])
    assert "win_rate" in result["sets"]["instructions"]
    assert "metric unlearned (untouched) original" in panel.printed  # metrics that were requested come first
    assert "forget (n = 6)" in panel.printed
    assert re.search(r"\b4 subjects", panel.printed)


def test_result_files_can_replace_reference_models(atwu, models, panel, tmp_path):
    files = ("--original", panel.folder / NAMES[1], "--retain-only", panel.folder / NAMES[2])
    cache = tmp_path / "cache"
    atwu(*whole_panel(models), *files, "--output", tmp_path / "eval.json", ATWU_CACHE=cache)  # nothing stored
    assert json.loads((tmp_path / "eval.json").read_text()) == without_depth(panel.result("eval.json"))
    assert not (tmp_path / "eval.original.json").exists()
    printed = atwu(*whole_panel(models), *files, "--limit", 5, code=1)
    assert re.search(r"original result \(original\).*forget rows", printed)


def without_depth(result: dict[str, Any]) -> dict[str, Any]:
    """Return a result without the unlearning depth score, which needs the reference models themselves."""
    result["settings"]["metrics"].remove("uds")
    result["warnings"] = [text for text in result["warnings"] if not text.startswith("uds: ")]
    for part in (result["sets"]["forget"], result["rows"]["forget"]["metrics"]):
        for name in [name for name in part if name.startswith("uds")]:
            del part[name]
    return result


def judged(models, server, *more: object) -> tuple[object, ...]:
    address = ("--judge", "openai:m", "--judge-url", server.url())
    return ("evaluate", "--model", models.unlearned, *ROWS, *SMALL, "--metrics", "judge", *address, *more)


def calls_of(printed: str) -> int:
    found = re.search(r"judge: ([\d,]+) calls\D*([\d,]+) ", printed)
    assert found, printed
    return int(found[1].replace(",", ""))


def test_no_claim_is_paid_twice_over_an_estimate_a_limited_and_a_full_run(atwu, models, server, tmp_path):
    cache = {"ATWU_CACHE": tmp_path / "cache"}
    output = ("--output", tmp_path / "eval.json")
    printed = atwu(*judged(models, server, "--estimate", *output), **cache)
    claims = calls_of(printed)
    assert claims > 10
    assert server.count() == 0
    assert not (tmp_path / "eval.json").exists()

    limited = ("--max-calls", claims - 4)
    stopped = atwu(*judged(models, server, *limited, *output), code=1, **cache)
    assert server.count() == claims - 4
    assert re.search(rf"error: .*{claims - 4} calls of --max-calls: 4 answers", stopped)
    assert not (tmp_path / "eval.json").exists()

    atwu(*judged(models, server, *limited, *output), **cache)
    assert server.count() == claims
    bodies = [json.dumps(body, sort_keys=True) for body in server.log("default")]
    assert len(set(bodies)) == claims
    result = json.loads((tmp_path / "eval.json").read_text())
    jsonschema.validate(result, EVAL_SCHEMA)
    assert result["sets"]["forget"]["J_W"]["value"] == 100  # this server believes every answer
    assert result["cost"]["judge_calls"] == claims
    assert "nothing to send" in atwu(*judged(models, server, "--estimate"), **cache)
    files = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert {"eval.json", "replies.sqlite"} <= {path.name for path in files}
    assert not [path for path in files if CANARY.encode() in path.read_bytes()]


def test_a_rejected_api_key_is_not_shown(atwu, models, server, environment):
    printed = atwu(*judged(models, server, "--judge-url", server.url("unauthorized")), code=1)  # the reply repeats it
    assert "does not accept the key (401); set OPENAI_API_KEY" in printed
    assert not [
        path
        for path in Path(environment["ATWU_CACHE"]).rglob("*")
        if path.is_file() and CANARY.encode() in path.read_bytes()
    ]


def test_a_served_model_is_evaluated_by_its_url(atwu, server, tmp_path):
    output = tmp_path / "eval.json"
    where = ("evaluate", "--model", "tiny", "--model-url", server.url("a-model"), "--forget", "people:tiny:forget")
    printed = atwu(*where, *SMALL, "--metrics", "rouge", "--output", output)
    assert server.count("a-model") == 6
    assert CANARY not in printed
    result = json.loads(output.read_text())
    jsonschema.validate(result, EVAL_SCHEMA)
    assert result["model"] == "tiny"
    assert set(result["sets"]["forget"]) == {"rouge_l_recall"}
    sent = server.log("a-model")
    assert {body["model"] for body in sent} == {"tiny"}
    assert {body["temperature"] for body in sent} == {0.0}
    atwu(*where, *SMALL, "--metrics", "rouge")  # another model may be behind the name by now
    assert server.count("a-model") == 12
    refused = atwu(*where, "--metrics", "memorization", code=1)
    assert re.search("'memorization'.*weights", refused)


def test_the_list_names_every_metric_and_rows_are_needed(atwu, models):
    assert re.search("--forget.*--retain", atwu("evaluate", "--model", models.unlearned, code=2))
    printed = atwu("evaluate", "--list")
    for name, entry in all_metrics().items():
        assert f"{name} {entry.about}" in printed
    assert "general_text_perplexity ↓ [1, inf]" in printed
    assert "form_blank ↕ [0, 1]" in printed


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (("--rwku-flavour", "port"), 2, "--rwku-flavour has no effect without --probes;"),
        (("--task-folder", "mine"), 2, "--task-folder has no effect without --task;"),
        (("--task-limit", "3"), 2, "--task-limit has no effect without --task;"),
        (("--metrics", "rouge,memorisation"), 1, "'memorisation'.*'memorization'"),
        (("--metrics", "rouge", "--all"), 2, "--all.*--metrics"),
        (("--metrics", "rouge", "--probes", "lume"), 1, "lume is given.*rouge"),
        (("--metrics", "rouge", "--probes", "people:tiny"), 2, "people:tiny has no probes"),
        (("--metrics", "rouge", "--task", "mmlu"), 1, "tasks .*rouge"),
        (("--all", "--task", "mmlu", "--model-url", "http://127.0.0.1:9/v1"), 1, "'tasks'.*weights"),
        (("--model-url", "http://127.0.0.1:9/v1", "--revision", "v1"), 2, "--revision and --base .*--model-url"),
        (
            ("--model-url", "http://127.0.0.1:9/v1", "--original", "m"),
            2,
            "evaluate m with --model-url first.*result file",
        ),
        (("--model-url", "http://127.0.0.1:9/v1", "--retain-only", "m"), 2, "evaluate m with --model-url first"),
        (("--model-key", "KEY"), 2, "--model-key .*--model-url"),
        (("--revision", "v1"), 2, "revision='v1' .*Hub name"),
        (("--metrics", "membership"), 1, "'membership'.*holdout"),
        (("--output", "{there}"), 1, "there.json .*--overwrite"),
        (("--output", "{folder}/no/eval.json"), 1, "eval.json.*folder"),
        (("--original", "{folder}/no.json"), 1, "no.json"),
        (("--extra-retain", "people:tiny:holdout"), 2, "--extra-retain .*NAME=SOURCE"),
        (("--judge", "oracle"), 1, "'oracle'.*offline or openai:MODEL"),
        (("--judge-url", "http://127.0.0.1:9/v1"), 2, "offline does not use --judge-url; .*--judge openai:MODEL"),
        (("--judge-max-tokens", "9", "--judge-timeout", "3"), 2, "does not use --judge-timeout, --judge-max-tokens;"),
        (("--base", "x"), 2, "base='x' requires an adapter folder"),
        (("--judge", "openai:m", "--judge-url", "http://127.0.0.1:9/v1", "--max-calls", "-1"), 2, "--max-calls .*0"),
    ],
)
def test_wrong_input_ends_with_a_one_line_error(
    arguments: tuple[str, ...], code: int, message: str, atwu: Callable[..., str], models, tmp_path
):
    there = tmp_path / "there.json"
    there.write_text("{}")
    filled = [argument.format(there=there, folder=tmp_path) for argument in arguments]
    assert re.search(message, atwu("evaluate", "--model", models.unlearned, *ROWS, *filled, code=code))
    assert there.read_text() == "{}"


def test_estimate_counts_every_model_and_needs_a_judge_metric(atwu, models, server):
    names = ("--original", models.original, "--retain-only", models.retain_only)
    before = server.count()
    printed = atwu(*judged(models, server, *names, "--estimate"))
    assert len(re.findall(r"\d calls", printed)) == 4  # three models and the total
    assert "all models" in printed
    assert server.count() == before
    plain = ("evaluate", "--model", models.unlearned, *ROWS, *SMALL, "--metrics", "rouge", "--estimate")
    assert "--estimate " in " ".join(atwu(*plain, code=2).replace("│", " ").split())
