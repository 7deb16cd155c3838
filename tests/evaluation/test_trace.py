"""Tracing token weights during a run: recorded values, and no effect on training."""

from __future__ import annotations

import json

import pytest
import torch
from transformers import LlamaConfig, LlamaForCausalLM, TrainerCallback

from atwu import UnlearnConfig, UnlearnTrainer
from atwu.benchmarks.people_rows import people
from atwu.evaluation.weight_trace import WeightTrace
from atwu.evaluation.word_scores import read_trace
from atwu.modeling.scratch import train_tokenizer

ROWS = people("tiny")


@pytest.fixture(scope="module")
def tokenizer():
    return train_tokenizer(ROWS.texts(), vocab_size=500)


class Stop(TrainerCallback):
    """Ends a run the hard way after its fifth step."""

    def on_step_end(self, args, state, control, **kwargs):
        if state.global_step == 5:
            raise KeyboardInterrupt


def trained(tokenizer, folder, *, method="atwu", watched=True, steps=6, saved=None, killed=False):
    """Return the weights after a run, and its trace.

    Args:
        saved: checkpoint to continue from.
        killed: end it after step 5, with a checkpoint of step 4.
    """
    torch.manual_seed(0)
    shape = {"hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 4}
    model = LlamaForCausalLM(LlamaConfig(vocab_size=len(tokenizer), **shape))
    config = UnlearnConfig(
        method=method,
        output_dir=str(folder),
        max_steps=steps,
        learning_rate=3e-3,
        gradient_accumulation_steps=1,
        per_device_train_batch_size=4,
        save_strategy="steps" if killed else "no",
        save_steps=4,
        disable_tqdm=True,
        use_cpu=True,
    )
    trainer = UnlearnTrainer(
        model, config, forget_dataset=ROWS.forget, retain_dataset=ROWS.retain, processing_class=tokenizer
    )
    trace = None
    if watched:
        trace = WeightTrace(
            trainer,
            folder / "looks.json",
            tokenizer,
            forget=ROWS.forget[:5],
            holdout=ROWS.holdout[:3],
            retain=ROWS.retain,
            shown=2,
            points=3,
        )
        trainer.add_callback(trace)
    if killed:
        trainer.add_callback(Stop())
        with pytest.raises(KeyboardInterrupt):
            trainer.train()
    else:
        trainer.train(resume_from_checkpoint=saved)
    return {name: value.clone() for name, value in model.state_dict().items()}, trace


@pytest.fixture(scope="module")
def whole(tokenizer, tmp_path_factory):
    """Weights and trace of one run of ATWU."""
    return trained(tokenizer, tmp_path_factory.mktemp("whole"))


def test_tracing_does_not_change_weights(whole, tokenizer, tmp_path):
    alone, _ = trained(tokenizer, tmp_path, watched=False)
    assert all(torch.equal(value, alone[name]) for name, value in whole[0].items())


@pytest.mark.parametrize("method", ["atwu", "wga", "su_ngram"])
def test_a_trace_has_the_words_of_every_step_and_is_read_back(whole, tokenizer, tmp_path, method):
    _, trace = whole if method == "atwu" else trained(tokenizer, tmp_path, method=method)
    found = read_trace(trace.finished)
    assert found == trace.trace()
    assert found.steps == (0, 2, 4, 6)
    assert [row.set for row in found.rows] == ["forget", "forget", "holdout", "holdout"]
    for row in found.rows:
        assert len(row.scores) == 4
        assert all(len(step) == len(row.words) for step in row.scores)
        assert "".join(row.answer[start:end] for start, end in row.words) == row.answer.replace(" ", "")
        assert all(0 <= score <= 1 for step in row.scores for score in step)
    assert {name: len(values) for name, values in found.auroc.items()} == {"forget": 4, "holdout": 4}
    if method == "atwu":  # an untrained scorer scores every word one half
        assert {score for row in found.rows for score in row.scores[0]} == {0.5}
        assert found.auroc["forget"][0] == 0.5


def test_a_resumed_run_continues_its_trace(whole, tokenizer, tmp_path):
    trained(tokenizer, tmp_path, killed=True)
    _, resumed = trained(tokenizer, tmp_path, saved=str(tmp_path / "checkpoint-4"))
    assert resumed.trace().steps == (0, 2, 4, 6)
    assert resumed.trace().rows == whole[1].trace().rows
    assert resumed.trace().auroc == whole[1].trace().auroc


def test_inputs_that_cannot_be_traced_are_rejected():
    assert WeightTrace.supports("scorer")
    assert not WeightTrace.supports("uniform")
    assert not WeightTrace.supports("scorer*rarity")


def test_files_that_are_not_traces_are_rejected(tmp_path):
    (tmp_path / "x.json").write_text(json.dumps({"schema": "other"}))
    with pytest.raises(ValueError, match=r"x\.json .*'other'.*'atwu\.trace/1'"):
        read_trace(tmp_path / "x.json")
