"""A run with a chat template of its own: the checkpoint has the template, its arguments and its end token."""

from __future__ import annotations

import json

from transformers import AutoTokenizer, GenerationConfig

from atwu import FinetuneConfig
from atwu.data.encode import Encoder
from atwu.data.schema import Example
from atwu.evaluation.backends import TransformersGenerator
from atwu.evaluation.generations import Decoding, Prompt, generate_all
from atwu.modeling.open_model import ModelLoadArgs, open_model
from atwu.training.unlearn_run import ModelSource, run_finetune

TEMPLATE = (
    "{% for m in messages %}<|im_start|>{{ m.role }}{% if enable_thinking %}?{% endif %}"
    "{{ m.content }}<|im_end|>\n{% endfor %}"
)


def test_the_checkpoint_has_the_template_and_its_end_token(model_folder, data_files, tmp_path):
    template = tmp_path / "mine.jinja"
    template.write_text(TEMPLATE)
    tokenizer = AutoTokenizer.from_pretrained(model_folder)
    tokenizer.add_special_tokens({"additional_special_tokens": ["<|im_start|>", "<|im_end|>"]})
    model, _ = open_model(str(model_folder), ModelLoadArgs(), device="cpu")
    model.resize_token_embeddings(len(tokenizer))
    model.save_pretrained(tmp_path / "start")
    tokenizer.save_pretrained(tmp_path / "start")
    given = {"chat_template": str(template), "chat_template_kwargs": '{"enable_thinking": true}'}
    source = ModelSource(model=str(tmp_path / "start"), **given)
    config = FinetuneConfig(use_cpu=True, disable_tqdm=True, save_strategy="no", max_steps=1)
    run_finetune(source, config, data=str(data_files[0]), output=tmp_path / "run")

    record = json.loads((tmp_path / "run" / "run.json").read_text())
    assert record["original_model"].items() >= given.items()
    start = open_model(source.model, ModelLoadArgs(**given), device="cpu")
    run = open_model(str(tmp_path / "run"), ModelLoadArgs(), device="cpu")
    rows = [Encoder(tokenizer).encode(Example.from_qa("Who?", "Pella.")) for _, tokenizer in (start, run)]
    assert rows[0] == rows[1]
    assert run[1].decode(rows[1].prompt_ids) == "<|im_start|>user?Who?<|im_end|>\n<|im_start|>assistant?"
    ends = GenerationConfig.from_pretrained(tmp_path / "run").eos_token_id
    assert set(ends) == {tokenizer.eos_token_id, rows[1].input_ids[-1]}
    assert generate_all(TransformersGenerator(*run), [Prompt(Example.from_qa("Who?", "x").messages)], Decoding())
