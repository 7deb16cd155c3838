"""The command line, run as a user runs it."""

from __future__ import annotations

import json
import re
import shutil
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import jsonschema
import pytest

from atwu.benchmarks.sources import load_benchmark
from atwu.evaluation.result import EVAL_SCHEMA
from atwu.experiments import demonstration
from atwu.training.config import UnlearnConfig
from tests.commands import run_here
from tests.micro_models import write_models


@pytest.fixture(scope="module")
def target(atwu, tmp_path_factory) -> Path:
    """A model trained by `atwu finetune` for a few steps."""
    folder = tmp_path_factory.mktemp("cli") / "target"
    printed = atwu(
        *("finetune", "--scratch", "people-tiny", "--data", "people:tiny:full", "--output", folder, "--use-cpu"),
        *("--lr", "3e-3", "--max-steps", "12", "--disable-tqdm", "--save-strategy", "no"),
    )
    assert re.search("96 .*people:tiny:full", printed)
    return folder


@pytest.fixture(scope="module")
def unlearned(atwu, target) -> Path:
    config = target.parent / "run.yaml"
    config.write_text(
        "method: atwu\nlearning_rate: 1.0e-3\nmax_steps: 6\nscorer_every: 2\nretain: people:tiny:retain\n"
        "max_grad_norm: 0.5\nsystem: You keep bees.\n"
    )
    folder = target.parent / "unlearned"
    printed = atwu(
        *("unlearn", "--config", config, "--model", target, "--forget", "people:tiny:forget", "--output", folder),
        *("--use-cpu", "--per-device-train-batch-size", "2", "--gradient-accumulation-steps", "2", "--max-steps", "4"),
        *("--optim", "sgd", "--training-args", '{"optim_args": "momentum=0.5", "adam_beta1": 0.8}'),
    )
    assert "--system 'You keep bees.' --output eval.json" in printed
    assert "unlearned model in" in printed
    return folder


def test_unlearned_folder_is_complete_and_loads(unlearned):
    from transformers import AutoModelForCausalLM, AutoTokenizer

    from atwu import TokenScorer

    names = {path.name for path in unlearned.iterdir()}
    wanted = "config.json model.safetensors scorer.safetensors scorer_config.json run.json log.jsonl README.md"
    assert set(wanted.split()) <= names
    assert not [name for name in names if name.endswith((".bin", ".pt", ".pth", ".pkl")) or "checkpoint" in name]
    assert AutoModelForCausalLM.from_pretrained(unlearned).num_parameters() > 0
    assert len(AutoTokenizer.from_pretrained(unlearned)) > 256
    assert TokenScorer.from_pretrained(unlearned).hidden_position == "pred"
    record = json.loads((unlearned / "run.json").read_text())
    assert record["config"]["max_steps"] == 4  # the flag wins over the file
    assert record["config"]["learning_rate"] == 1e-3
    names = ("max_grad_norm", "optim", "optim_args", "adam_beta1", "system")
    assert [record["config"][name] for name in names] == [0.5, "sgd", "momentum=0.5", 0.8, "You keep bees."]
    assert record["recipe"]["values"] == {"forget_weight": 3.0, "retain_weight": 0.5, "beta": 7.0}
    assert record["recipe"]["given"] == ["scorer_every"]
    assert re.fullmatch("[0-9a-f]{32}", record["result_fingerprint"])
    assert record["original_model"]["fingerprint"] != record["result_fingerprint"]
    assert record["data"]["forget"]["rows"] == 24
    assert "hub_token" not in record["config"]
    assert "Unlearned with atwu" in (unlearned / "README.md").read_text()


def test_evaluate_writes_json_and_prints_a_table(atwu, unlearned, tmp_path):
    output = tmp_path / "eval.json"
    printed = atwu(
        *("evaluate", "--model", unlearned, "--forget", "people:tiny:forget", "--retain", "people:tiny:retain"),
        *("--limit", "6", "--max-new-tokens", "5", "--device", "cpu", "--output", output),
    )
    result = json.loads(output.read_text())
    jsonschema.validate(result, EVAL_SCHEMA)
    assert {"extraction_strength", "rouge_l_recall", "auroc_scorer"} <= set(result["sets"]["forget"])
    assert "forget (n = 6)" in printed
    assert "extraction_strength ↓ 0." in printed
    assert f"written: {output}" in printed
    again = atwu("evaluate", "--model", unlearned, "--forget", "people:tiny:forget", "--output", output, code=1)
    assert "--overwrite" in again


def test_tokens_prints_words_and_writes_a_page(atwu, unlearned, tmp_path):
    page = tmp_path / "tokens.html"
    printed = atwu(
        *("tokens", "--model", unlearned, "--data", "people:tiny:forget", "--rows", "2", "--limit", "4"),
        *("--html", page, "--score", "scorer", "--score", "entropy", "--device", "cpu"),
    )
    assert "entropy" in printed
    assert "scorer" in printed

    linked = re.findall(r"""(?:src|href)=["']?([^"' >]+)""", page.read_text(encoding="utf-8"))
    assert not [address for address in linked if address.startswith(("http", "//"))]


def test_help_shows_common_options_and_help_all_the_rest():
    used = ("--forget-weight", "--beta", "--lr, --learning-rate", "--config", "--lora-r")
    rest = ("--hidden-position", "--retain-per-forget", "--optim", "--steering-coeff", "--training-args")
    shown, everything = (run_here("unlearn", flag).output for flag in ("--help", "--help-all"))
    for flag in used:
        assert flag in shown
    for flag in rest:
        assert flag not in shown
    for flag in (*used, *rest):
        assert flag in everything
    assert "Deprecated alias" not in everything


def test_the_system_prompt_of_a_run_is_recorded_and_reused(atwu, target, unlearned, tmp_path):
    rows = ("--forget", "people:tiny:forget:4", "--limit", "2", "--metrics", "memorization", "--device", "cpu")
    assert re.search(r"'You keep bees\.'.* --sys", atwu("evaluate", "--model", unlearned, *rows))
    output = tmp_path / "eval.json"
    printed = atwu("evaluate", "--model", unlearned, *rows, "--system", "You keep bees.", "--output", output)
    assert "--system" not in printed
    assert json.loads(output.read_text())["settings"]["system"] == "You keep bees."
    shown = ("--device", "cpu", "--system", "You keep bees.")
    page = atwu("tokens", "--model", target, "--data", "people:tiny:forget:4", "--rows", "1", *shown)
    assert re.search(rf"{re.escape(str(target))} .*'You keep bees\.'", page)
    assert re.search("error: .*system.*empty", atwu("evaluate", "--model", unlearned, *rows, "--system", " ", code=2))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--model", "{target}x", "--forget", "people:tiny:forget"), r"'.*targetx'.*target\?"),
        (("--model", "{target}", "--forget", "nowhere.jsonl", "--retain", "people:tiny:retain"), "nowhere.jsonl"),
        (("--model", "{target}", "--forget", "people:tiny:forget", "--method", "atwi"), "'atwi'.*'atwu'"),
        (
            ("--model", "{target}", "--forget", "people:tiny:forget", "--retain-loss", "none", "--max-length", "12"),
            "error: forget",
        ),
        (("--forget", "people:tiny:forget"), r"error: .*--model\b"),
        (("--config", "{typo}"), "'learning_rat'.*'learning_rate'"),
    ],
)
def test_wrong_input_ends_with_a_one_line_error_before_anything_is_written(atwu, arguments, message, target, tmp_path):
    typo = tmp_path / "typo.yaml"
    typo.write_text("learning_rat: 1\n")
    filled = [argument.format(target=target, typo=typo) for argument in arguments]
    output = tmp_path / "out"
    code = 2 if "--model" in message else 1
    printed = atwu("unlearn", *filled, "--output", output, code=code)
    assert re.search(message, printed), printed
    assert "Traceback" not in printed
    assert not output.exists()
    assert not output.with_name("out.incomplete").exists()


@pytest.mark.parametrize(
    ("command", "code", "message"),
    [
        (
            "tokens --data people:tiny:forget --rows 0",
            2,
            "--rows 0 prints no row; give --rows 1 or more, or --html FILE",
        ),
        ("plan --forget people:tiny:forget --quantize 4bit --device-memory 24GB", 1, "quantize needs LoRA adapters"),
        ("plan --forget people:tiny:forget --quantize 4bit --lora-r 4 --use-cpu", 2, "needs a CUDA device; .*24GB"),
    ],
)
def test_options_that_do_not_fit_a_command_end_with_a_one_line_error(atwu, target, command, code, message):
    name, *options = command.split()
    assert re.search(message, atwu(name, "--model", target, *options, code=code))


def test_options_of_finetuning_without_effect_are_refused(atwu, tmp_path):
    given = ("finetune", "--scratch", "people-tiny", "--data", "people:tiny:full", "--output", tmp_path / "out")
    assert "--scratch loads no weights; leave out --dtype." in atwu(*given, "--dtype", "float16", code=2)
    assert "--save-steps has no effect without --save-strategy steps" in atwu(*given, "--save-steps", "5", code=2)


def test_unfit_tokenizers_and_unsafe_weights_are_rejected(atwu, target, tmp_path):
    from atwu.modeling.scratch import train_tokenizer

    for name in ("mixed", "pickled"):
        shutil.copytree(target, tmp_path / name)
        (tmp_path / name / "manifest.json").unlink()
    texts = [f"word{index} other{index}" for index in range(3000)]
    train_tokenizer(texts, vocab_size=4000).save_pretrained(tmp_path / "mixed")
    (tmp_path / "pickled" / "model.safetensors").rename(tmp_path / "pickled" / "pytorch_model.bin")
    for name, said in (("mixed", r"error: .*tokenizer.*mixed"), ("pickled", r"\.safetensors")):
        assert re.search(said, atwu("evaluate", "--model", tmp_path / name, "--forget", "people:tiny:forget", code=1))


def test_demo_evaluates_five_models_and_writes_a_page(tmp_path, monkeypatch):
    """The whole command, with untrained models and one step of each method."""
    models = SimpleNamespace(
        target=str(tmp_path / "target"),
        retain_only=str(tmp_path / "retain-only"),
        benchmark=load_benchmark("people:tiny"),
    )
    write_models(Path(models.target), Path(models.retain_only))
    monkeypatch.setattr(demonstration, "prepare_models", lambda setting, **_: models)
    monkeypatch.setattr(demonstration, "UnlearnConfig", partial(UnlearnConfig, max_steps=1, use_cpu=True))
    monkeypatch.setattr(demonstration, "MEASURED", 4)
    monkeypatch.setattr(demonstration, "SHOWN", 4)
    done = run_here("demo", "--size", "tiny", "--output", tmp_path / "demo")
    assert done.exit_code == 0, done.exception
    printed = " ".join(done.output.split())
    for words in ("AUROC ↑", "people:tiny, 4 forget rows, 4 retain rows, seed 0", "Next steps", "original", "atwu"):
        assert words in printed
    names = {path.name for path in (tmp_path / "demo").iterdir()}
    assert {"tokens.html", "eval_original.json", "eval_retain-only.json", "eval_wga.json", "atwu"} <= names
    (tmp_path / "runs" / "atwu").mkdir(parents=True)
    (tmp_path / "runs" / "atwu" / "run.json").write_text("a finished run")
    refused = run_here("demo", "--size", "tiny", "--output", tmp_path / "runs")
    assert re.search(r"runs/atwu .*demo.*--output", str(refused.exception))
    assert [path.name for path in (tmp_path / "runs").rglob("*")] == ["atwu", "run.json"]


@pytest.mark.night
def test_demo_reuses_existing_target_models(atwu, tmp_path, trained_models):
    cache = str(trained_models(tmp_path / "cache"))
    printed = atwu("demo", "--size", "tiny", "--output", tmp_path / "demo", ATWU_CACHE=cache)
    assert printed.count("from the cache") == 2
    assert "AUROC ↑" in printed
    assert "Next steps" in printed
    results = {path.stem: json.loads(path.read_text()) for path in (tmp_path / "demo").glob("eval_*.json")}
    assert set(results) == {"eval_original", "eval_retain-only", "eval_grad_diff", "eval_wga", "eval_atwu"}

    def strength(name, split):
        return results[f"eval_{name}"]["sets"][split]["extraction_strength"]["value"]

    assert strength("original", "forget") >= 0.95
    assert strength("original", "retain") >= 0.95
    assert strength("retain-only", "forget") < 0.3
    # A fair miniature: on real TOFU both are 0.67 to 0.68, naive templates give 0.97.
    for score in ("auroc_importance", "auroc_entropy"):
        assert 0.6 < results["eval_original"]["sets"]["forget"][score]["value"] < 0.8
    for method in ("grad_diff", "wga", "atwu"):
        assert strength(method, "forget") < 0.5
        assert strength(method, "retain") > strength(method, "forget")
