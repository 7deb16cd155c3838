"""`trainer.evaluate()`: our metrics on the same kinds of rows, with transformers' names, also during training."""

from __future__ import annotations

import json

import pytest
from transformers import TrainerCallback

import atwu
from atwu import Example, UnlearnConfig, UnlearnTrainer, load_rows
from atwu.modeling.load import model_fingerprint
from tests.training.conftest import make_rows

QUICK = atwu.EvaluateConfig(max_new_tokens=4)


@pytest.fixture
def build(model_folder, data_files, tmp_path):
    def trainer(**options: object) -> UnlearnTrainer:
        settings = {"output_dir": str(tmp_path / "out"), "use_cpu": True, "disable_tqdm": True, "save_strategy": "no"}
        settings |= {"method": "wga", "max_steps": 2, "learning_rate": 1e-3}
        own = ("eval_dataset", "eval_metrics", "compute_metrics")
        given = {name: options.pop(name) for name in own if name in options}
        rows = {"forget_dataset": str(data_files[0]), "retain_dataset": str(data_files[1]), "eval_config": QUICK}
        return UnlearnTrainer(str(model_folder), UnlearnConfig(**settings | options), **rows | given)

    return trainer


def test_by_default_forget_and_retain_rows_are_evaluated(build, data_files):
    trainer = build()
    found = trainer.evaluate()
    assert {"eval_forget_extraction_strength", "eval_retain_probability", "eval_forget_rouge_l_recall"} <= set(found)
    assert {"eval_ES_delta", "eval_runtime", "epoch"} <= set(found)
    assert all(isinstance(value, float | int) for value in found.values())
    assert trainer.state.log_history[-1] | {"step": 0} == found | {"step": 0}
    whole = atwu.evaluate(
        trainer.model,
        {"forget": str(data_files[0]), "retain": data_files[1]},
        atwu.Evaluation(metrics=["memorization", "rouge"], settings=QUICK, progress=False),
        tokenizer=trainer.processing_class,
    )
    assert whole.sets == trainer.eval_result.sets
    assert found["eval_forget_probability"] == whole.sets["forget"]["probability"].value


def test_a_single_eval_dataset_has_unprefixed_metrics(build, data_files):
    records = [json.loads(line) for line in data_files[0].read_text().splitlines()][:4]
    examples = [Example.from_qa(record["question"], record["answer"]) for record in records]
    file = data_files[0].with_name("four.jsonl")
    file.write_text("".join(json.dumps(record) + "\n" for record in records))
    trainer = build(eval_dataset=records, eval_metrics="memorization")
    first = trainer.evaluate()
    assert "eval_extraction_strength" in first
    for rows in (examples, file, str(file), load_rows(file), iter(records)):
        assert trainer.evaluate(rows)["eval_probability"] == first["eval_probability"]
    assert set(trainer.evaluate({"forget": records}, metric_key_prefix="test")) > {"test_forget_probability"}


def test_named_sets_are_evaluated_together_or_alone(build):
    trainer = build(eval_dataset={"forget": make_rows(4), "others": make_rows(4, 8)}, eval_metrics=["memorization"])
    both, one = trainer.evaluate(), trainer.evaluate("others")
    assert both["eval_others_probability"] == one["eval_others_probability"]
    assert "eval_forget_probability" not in one


def test_evaluation_during_training_does_not_change_the_result(build):
    class Seen(TrainerCallback):
        metrics: list[dict[str, float]]

        def __init__(self) -> None:
            self.metrics = []

        def on_evaluate(self, args, state, control, metrics, **_):
            self.metrics.append(metrics)

    seen = Seen()
    with_rows = {"forget": make_rows(4), "retain": make_rows(4, 24)}
    measuring = build(max_steps=4, method="atwu", eval_strategy="steps", eval_steps=2, eval_dataset=with_rows)
    measuring.add_callback(seen)
    plain = build(max_steps=4, method="atwu")
    measuring.train()
    plain.train()
    steps = [logs["step"] for logs in measuring.state.log_history if "eval_ES_delta" in logs]
    assert steps == [2, 4]
    assert [metrics["eval_ES_delta"] for metrics in seen.metrics] == [
        logs["eval_ES_delta"] for logs in measuring.state.log_history if "eval_ES_delta" in logs
    ]
    assert model_fingerprint(measuring.model) == model_fingerprint(plain.model)


@pytest.mark.parametrize("best", ["ES_delta", "eval_forget_probability", "eval_retain_rouge_l_recall"])
def test_the_best_metric_of_a_trainer_is_one_of_its_evaluation(best, build):
    trainer = build(eval_strategy="steps", eval_steps=1, metric_for_best_model=best)
    trainer.train()
    assert trainer.state.best_metric in [
        logs.get(f"eval_{best.removeprefix('eval_')}") for logs in trainer.state.log_history
    ]


def test_retain_rows_are_evaluated_even_if_the_method_does_not_use_them(build):
    found = build(method="grad_ascent").evaluate()
    assert "eval_retain_probability" in found


def test_impossible_evaluations_are_rejected_before_anything_is_loaded(build):
    with pytest.raises(ValueError, match=r"'rogue'.*'rouge'"):
        build(eval_metrics=["rogue"], eval_dataset=make_rows(2))
    with pytest.raises(ValueError, match=r"'membership'.*holdout"):
        build(eval_metrics=["membership"], eval_dataset={"forget": make_rows(2)})
    with pytest.raises(ValueError, match=r"\bothers\b.*empty"):
        build(eval_dataset={"others": []})
    with pytest.raises(ValueError, match=r"row 2.*answer"):
        build(eval_dataset=[{"question": "Who?", "answer": "He."}, {"question": "Who?"}])
    with pytest.raises(TypeError, match=r"eval_metrics.*compute_metrics"):
        build(eval_dataset=make_rows(2), eval_metrics="all", compute_metrics=print)
