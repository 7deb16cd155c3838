"""LUNAR over a run: which weights it trains, and towards what."""

from __future__ import annotations

import pytest
import torch
from transformers import AutoModelForCausalLM

from atwu import UnlearnConfig, UnlearnTrainer
from atwu.data.encode import Encoder
from atwu.data.schema import Example
from atwu.methods.losses.redirection import REFUSED
from tests.training.conftest import make_trainer


def test_moves_one_matrix_towards_refused_questions(model_folder, tmp_path):
    trainer = make_trainer(model_folder, tmp_path, method="lunar", forget=4, max_steps=20, learning_rate=1e-2, layer=0)
    model, tokenizer = trainer.loaded.model, trainer.processing_class
    before = {name: weight.detach().clone() for name, weight in model.named_parameters()}

    def end_of(questions):
        encoder = Encoder(tokenizer)
        prompts = [encoder.encode(Example.from_qa(question, "-")).prompt_ids for question in questions]
        with torch.no_grad():
            states = [model(torch.tensor([ids]), output_hidden_states=True).hidden_states[1][0, -1] for ids in prompts]
        return torch.stack(states).mean(0)

    asked = [row.question for row in trainer.rows.forget.examples]
    start = end_of(asked)
    direction = end_of(REFUSED) - start
    torch.testing.assert_close(trainer.precomputed.refusal_direction, direction, atol=1e-5, rtol=1e-4)
    trainer.train()
    changed = [name for name, weight in model.named_parameters() if not torch.equal(weight, before[name])]
    assert changed == ["model.layers.0.mlp.down_proj.weight"]
    assert torch.cosine_similarity(end_of(asked) - start, direction, dim=0) > 0.5


@pytest.mark.parametrize("method", ["lunar", "bs_s"])
def test_methods_that_write_prompts_need_a_tokenizer(method, model_folder, tmp_path):
    rows = list(make_trainer(model_folder, tmp_path, forget=4).rows.forget.rows)
    config = UnlearnConfig(output_dir=str(tmp_path), use_cpu=True, method=method)
    with pytest.raises(ValueError, match="needs the tokenizer; pass it as processing_class"):
        UnlearnTrainer(
            AutoModelForCausalLM.from_pretrained(model_folder), config, forget_dataset=rows, retain_dataset=rows
        )
