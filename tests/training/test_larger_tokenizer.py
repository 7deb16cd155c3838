"""A tokenizer with more ids than its model has embeddings is refused by name, wherever the two meet."""

from __future__ import annotations

import pytest
from transformers import AutoTokenizer, LlamaForCausalLM

from atwu import FinetuneConfig, FinetuneTrainer, evaluate
from atwu.modeling.scratch import ScratchShape, scratch_model
from tests.training.conftest import make_rows, make_trainer

MESSAGE = r"tokenizer and model of .* do not match: .* ids up to 2\d\d, the model only 200 embeddings"
QUICK = {"max_steps": 1, "use_cpu": True, "disable_tqdm": True, "save_strategy": "no", "learning_rate": 1e-3}


@pytest.fixture
def narrow() -> LlamaForCausalLM:
    return scratch_model(ScratchShape(vocab_size=200, hidden_size=32, layers=1, heads=2, intermediate_size=48))


def test_an_unlearning_trainer_refuses_it(narrow, model_folder, tmp_path):
    with pytest.raises(ValueError, match=MESSAGE):
        make_trainer(model_folder, tmp_path, model=narrow, method="grad_diff")


def test_a_fine_tuning_trainer_refuses_it(narrow, model_folder, tmp_path):
    with pytest.raises(ValueError, match=MESSAGE):
        FinetuneTrainer(
            narrow,
            FinetuneConfig(output_dir=str(tmp_path), **QUICK),
            train_dataset=make_rows(4),
            processing_class=AutoTokenizer.from_pretrained(model_folder),
        )


def test_an_evaluation_of_objects_refuses_it(narrow, model_folder):
    with pytest.raises(ValueError, match=MESSAGE):
        evaluate(narrow, {"forget": make_rows(4)}, tokenizer=AutoTokenizer.from_pretrained(model_folder))
