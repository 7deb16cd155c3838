"""The training steps that are compared: a model, its batches, and one whole step of each implementation.

`step.py` documents the implementations. Rows are as long as TOFU rows in a Llama-3 chat template.
"""

from __future__ import annotations

import copy
import dataclasses
import importlib.util
import itertools
import multiprocessing
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

LLAMA = {"hidden_size": 512, "num_hidden_layers": 8, "num_attention_heads": 8, "num_key_value_heads": 8}
SHAPES: dict[str, dict[str, Any]] = {
    "16k": LLAMA | {"intermediate_size": 1408, "vocab_size": 16_384},
    "128k": LLAMA | {"intermediate_size": 1408, "vocab_size": 131_072},
    "128k-untied": LLAMA | {"intermediate_size": 1408, "vocab_size": 131_072, "tie_word_embeddings": False},
    "smollm2": {
        "hidden_size": 576,
        "num_hidden_layers": 30,
        "num_attention_heads": 9,
        "num_key_value_heads": 3,
        "intermediate_size": 1536,
        "vocab_size": 49_152,
    },
}
"""Random weights: the cost of a step does not depend on them."""
SCORER_EVERY, MAX_STEPS = 5, 5000


def elsewhere(function: Callable[..., Any], *arguments: Any) -> Any:
    """Run a function in a separate process, which releases its memory; returns or raises its result."""
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as fresh:
        return fresh.submit(function, *arguments).result()


@dataclass(frozen=True)
class Setting:
    """Settings shared by all implementations."""

    shape: str
    device: str
    precision: str
    steps: int
    rows: int
    checkout: str | None
    length: float = 1.0
    """Factor on the tokens of a row."""


def build_model(setting: Setting):
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(0)
    known = {"max_position_embeddings": 2048, "tie_word_embeddings": True, "use_cache": False}
    model = LlamaForCausalLM(LlamaConfig(**known | SHAPES[setting.shape]))
    dtype = torch.bfloat16 if setting.precision == "bfloat16" else torch.float32
    return model.to(device=setting.device, dtype=dtype).train()


def build_batches(setting: Setting) -> list[tuple[dict[str, Any], dict[str, Any]]]:
    import torch

    vocabulary = SHAPES[setting.shape]["vocab_size"]
    generator = torch.Generator().manual_seed(1)

    def draw(mean: float, std: float, low: int, high: int) -> int:
        return int((mean + std * torch.randn(1, generator=generator)).clamp(low, high))

    def rows() -> dict[str, Any]:
        drawn = [(draw(58, 4, 48, 80), draw(37, 15, 5, 90)) for _ in range(setting.rows)]
        lengths = [(round(prompt * setting.length), round(answer * setting.length)) for prompt, answer in drawn]
        width = max(prompt + answer for prompt, answer in lengths)
        ids = torch.randint(3, vocabulary, (setting.rows, width), generator=generator)
        mask, labels = torch.zeros_like(ids), torch.full_like(ids, -100)
        for row, (prompt, answer) in enumerate(lengths):
            mask[row, : prompt + answer] = 1
            labels[row, prompt : prompt + answer] = ids[row, prompt : prompt + answer]
        return {name: part.to(setting.device) for name, part in zip(NAMES, (ids, mask, labels), strict=True)}

    return [(rows(), rows()) for _ in range(setting.steps)]


NAMES = ("input_ids", "attention_mask", "labels")


def one_word_tokenizer():
    """Return what a trainer needs as a tokenizer where rows are numbers already."""
    from tokenizers import Tokenizer
    from tokenizers.models import WordLevel
    from transformers import PreTrainedTokenizerFast

    words = Tokenizer(WordLevel({"<pad>": 0, "a": 1}, unk_token="<pad>"))
    return PreTrainedTokenizerFast(tokenizer_object=words, pad_token="<pad>", eos_token="a")


def loss_of_others(model, method: str, side: str, checkout: str | None):
    """Return another implementation's loss of a forget and a retain batch."""
    if side == "trl":
        return loss_of_trl(model)
    if side == "plain":
        return lambda forget, retain: -0.12 * model(**forget).loss + 0.8 * model(**retain).loss
    assert checkout is not None
    spec = importlib.util.spec_from_file_location("theirs", Path(checkout) / "src" / "trainer" / "utils.py")
    assert spec is not None
    assert spec.loader is not None
    theirs = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(theirs)
    reference = copy.deepcopy(model).eval()

    def loss(forget, retain):
        if method == "wga":  # its trainer keeps the copy too, without using it
            removed, _ = theirs.compute_wga_loss(model, forget, beta=1.0)
        else:
            removed, _ = theirs.compute_dpo_loss(model, reference, None, forget, beta=0.1)
        return removed + model(**retain).loss

    return loss


def loss_of_trl(model):
    """Return the loss of TRL's DPO trainer, which prefers the answers of the second batch."""
    import tempfile

    import torch
    from datasets import Dataset
    from trl import DPOConfig, DPOTrainer

    trainer = DPOTrainer(
        model,
        args=DPOConfig(
            output_dir=tempfile.gettempdir(),
            precompute_ref_log_probs=True,
            report_to=[],
            use_cpu=model.device.type == "cpu",
        ),
        train_dataset=Dataset.from_dict({"prompt": ["a"], "chosen": ["a a"], "rejected": ["a"]}),
        processing_class=one_word_tokenizer(),
    )

    def loss(refused, preferred):
        width = max(rows["input_ids"].shape[1] for rows in (refused, preferred))
        ids, mask, labels = (
            torch.cat(
                [torch.nn.functional.pad(rows[name], (0, width - rows[name].shape[1]), value=fill) for rows in order]
            )
            for order in [(preferred, refused)]
            for name, fill in zip(NAMES, (0, 0, -100), strict=True)
        )
        known = torch.zeros(len(refused["input_ids"]), device=ids.device)
        compared = {"ref_chosen_logps": known, "ref_rejected_logps": known}
        return trainer.compute_loss(
            model, {"input_ids": ids, "attention_mask": mask, "completion_mask": (labels != -100).long(), **compared}
        )

    return loss


def our_loss(model, method: str, batches):
    """Return functions for our loss of a batch by number, and for the scorer's work after the model's step."""
    from atwu.methods.component_inputs import LossInputs
    from atwu.methods.objective import micro_batch_loss
    from atwu.methods.recipe import recipe
    from atwu.methods.weightings.token_scorer import TokenScorer
    from atwu.modeling.batches import TokenBatch
    from atwu.modeling.layers import decoder_layers
    from atwu.modeling.reference import Reference, reference_of_batch
    from atwu.training.scorer_training import ScorerAlternation

    decided = recipe(method, **({"retain_loss": "none"} if method == "dpo" else {"scorer_every": SCORER_EVERY}))
    second = "retain" if decided.retain_component is not None else "alternate"
    wanted = decided.reference_specs(len(decoder_layers(model)))
    given = [LossInputs(Reference())] * len(batches)
    if wanted:
        rows = [{"forget": TokenBatch.of(forget), second: TokenBatch.of(other)} for forget, other in batches]
        given = [LossInputs(reference_of_batch(model, each, wanted)) for each in rows]
    alternation = None
    if decided.scores is not None:
        device = next(model.parameters()).device
        alternation = ScorerAlternation(TokenScorer(model.config.hidden_size).to(device), decided)
    done = itertools.count()

    def loss(number: int):
        step = next(done)
        scorer = alternation.scorer if alternation else None
        forget, other = batches[number]
        rows = {"forget": forget, second: other}
        result = micro_batch_loss(model, rows, decided, scorer=scorer, inputs=given[number])
        if alternation and alternation.due(step, MAX_STEPS):
            alternation.collect(result)
            return result.loss, lambda: alternation.step(MAX_STEPS)
        return result.loss, lambda: None

    return loss


def step_of(setting: Setting, method: str, side: str, model) -> Callable[[int], None]:
    """Return a function that takes a whole step of one implementation on the batch with a given number."""
    import torch

    from atwu.modeling import single_pass

    batches = build_batches(setting)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-5, fused=True)
    if side in ("atwu", "padded"):
        if side == "padded":  # what the package does with a model whose rows cannot be packed
            fast_paths = single_pass.fast_path_support(model, next(model.parameters()).device)
            single_pass._known[model] = dataclasses.replace(fast_paths, packed=False)
        losses = our_loss(model, method, batches)
    else:
        theirs = loss_of_others(model, method, side, setting.checkout)
        losses = lambda number: (theirs(*batches[number]), lambda: None)  # noqa: E731
    half = torch.autocast(setting.device, torch.bfloat16, enabled=setting.precision == "autocast")

    def step(number: int) -> None:
        with half:
            loss, after = losses(number)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        after()

    return step
