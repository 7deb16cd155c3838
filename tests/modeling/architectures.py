"""Check that small models of every architecture of transformers have the same outputs in our forward pass.

python -m tests.modeling.architectures            # all of them, as a table
python -m tests.modeling.architectures roberta    # some
python -m tests.modeling.architectures --docs     # all, and the table in benchmarks/results/architectures.md
"""

from __future__ import annotations

import argparse
import contextlib
import re
import sys
import tempfile
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from atwu.methods.objective import unlearning_loss
from atwu.modeling.adapters import Lora, attach, merge_adapters, not_adapted, select_weights
from atwu.modeling.forward import forward_tokens
from atwu.modeling.layers import adapters_by_weight, decoder_layers, train_only_down_projections
from atwu.modeling.load import add_adapter, quiet_transformers
from atwu.modeling.single_pass import can_stop_at, fast_path_support
from tests.modeling.small_models import in_layout, small_model

DOCS = Path(__file__).parents[2] / "benchmarks" / "results" / "architectures.md"
MARK = "<!-- what follows is written by python -m tests.modeling.architectures --docs -->"
NEAR = 1e-4
"""Tolerance of log-probfast_paths and gradients; larger errors in float32 are checked again in float64."""
REPRESENTATIVES = ("gpt2", "gpt_oss", "mamba")
"""Tested in every run: learned positions, experts with a sliding window, and no attention."""


@dataclass(frozen=True)
class Finding:
    """Result of one architecture."""

    kind: str
    """`same`, `refused`, `differs`, `fails`, or `not made` if no small model could be created."""
    detail: str
    rounding: str = ""
    """Differences in float32 that vanish in float64."""


def rows(model: Any) -> dict[str, Tensor]:
    """Return two rows of different length, padded on the right; their first four tokens are not counted."""
    vocabulary = model.config.get_text_config().vocab_size
    ids = torch.randint(6, vocabulary, (2, 20), generator=torch.Generator().manual_seed(1))
    mask = torch.ones_like(ids)
    ids[1, 14:], mask[1, 14:] = 0, 0
    labels = ids.masked_fill(mask == 0, -100)
    labels[:, :4] = -100
    return {"input_ids": ids, "attention_mask": mask, "labels": labels}


def find(kind: str, *checks: str) -> dict[str, Finding]:
    """Return the result of a model type in each check (default: all of `CHECKS`)."""
    try:
        model = small_model(kind)
        own = own_logps(model, rows(model))
        gradients(model, own)
    except Exception as error:  # from transformers; our code was not called yet
        return {"forward": Finding("not made", f"{type(error).__name__}: {error}")}
    found: dict[str, Finding] = {}
    for name in checks or CHECKS:
        found[name] = _found(name, kind, torch.float32)
        if found[name].kind == "differs" and (exact := _found(name, kind, torch.float64)).kind == "same":
            found[name] = replace(exact, rounding=found[name].detail)
    return found


def _found(check: str, kind: str, dtype: torch.dtype) -> Finding:
    try:
        return CHECKS[check](small_model(kind, dtype), kind)
    except ValueError as error:
        return Finding("refused", str(error))
    except Exception as error:
        return Finding("fails", f"{type(error).__name__}: {error}")


def forward(model: Any, kind: str) -> Finding:
    """Check log-probfast_paths and gradients in every layout, with padding on either side."""
    batch = rows(model)
    own = own_logps(model, batch)
    wanted = gradients(model, own)
    errors = {"gradients": 0.0}
    ours = forward_tokens(model, [batch])[0].logps
    given = gradients(model, ours)
    fast_paths = fast_path_support(model, torch.device("cpu"))
    errors["gradients"] = max(_error(given[name], wanted[name]) for name in wanted)
    counted = own != 0
    for layout in ("padded", "packed") if fast_paths.packed else ("padded",):
        for side, given_rows in (("right", batch), ("left", left_padded(batch))):
            with in_layout(model, layout):
                out = forward_tokens(model, [given_rows])[0]
            errors[f"{layout} {side}"] = _error(out.logps[out.mask], own[counted])
    taken = [name for name in ("packed", "fused_head", "last_mlp") if getattr(fast_paths, name)]
    return _finding(errors, ", ".join(taken) or "plain")


def lora(model: Any, kind: str) -> Finding:
    """Check that adapters are at the requested weights, get the right gradient, and are saved, loaded and merged."""
    batch = rows(model)
    reached = {name for name, gradient in gradients(model, own_logps(model, batch)).items() if gradient.any()}
    adapted = attach(model, Lora(r=2), seed=0)
    trained = {name: each for name, each in adapted.named_parameters() if each.requires_grad}
    with torch.no_grad():  # new adapters have no effect
        for each in trained.values():
            each.add_(torch.randn(each.shape, generator=torch.Generator().manual_seed(1)), alpha=0.05)
    wanted = gradients(adapted, own_logps(adapted, batch))
    before = forward_tokens(adapted, [batch])[0].logps
    with too_late_to_refuse():
        return _adapted(adapted, kind, batch, before, wanted, reached)


def _adapted(
    adapted: Any, kind: str, batch: dict[str, Tensor], before: Tensor, wanted: dict[str, Tensor], reached: set[str]
) -> Finding:
    trained = {name: each for name, each in adapted.named_parameters() if each.requires_grad}
    given, dtype = gradients(adapted, before), before.dtype
    errors = {"gradients": max(_error(given[name], wanted[name]) for name in trained)}
    by_weight = adapters_by_weight(adapted.get_base_model())
    for name, parameters in by_weight.items():
        if name in reached and not all(each.grad is not None and each.grad.any() for each in parameters):
            raise RuntimeError(f"no gradient reaches the adapter of {name}")
    with torch.no_grad():
        for each in trained.values():
            each.sub_(1e-2 * (each.grad if each.grad is not None else 0) / (1 + sum(g.norm() for g in given.values())))
        after = forward_tokens(adapted, [batch])[0].logps
        if torch.equal(before, after):
            raise RuntimeError("a step changes nothing")
        with tempfile.TemporaryDirectory() as folder:
            adapted.save_pretrained(folder)
            beside = add_adapter(small_model(kind, dtype), folder, merge=False)
            errors["loaded"] = _error(forward_tokens(beside, [batch])[0].logps, after)
        plain = merge_adapters(adapted)
        errors["merged"] = _error(forward_tokens(plain, [batch])[0].logps, after)
        with tempfile.TemporaryDirectory() as folder:
            plain.save_pretrained(folder)
            again = type(plain).from_pretrained(folder, dtype=dtype).eval()
            errors["saved"] = _error(forward_tokens(again, [batch])[0].logps, after)
    stacked = sum(each.stacked for each in select_weights(small_model(kind), None, None))
    without = not_adapted(attach(small_model(kind), Lora(r=2), seed=0))
    return _finding(
        errors, f"{len(by_weight)} adapters, {stacked} on experts" + (f"; none on {without}" * bool(without))
    )


def rmu(model: Any, kind: str) -> Finding:
    """Check that the states are those of the requested layer, and that a step has a finite loss and gradients."""
    batch, layers = rows(model), len(decoder_layers(model))
    layer = max(0, layers - 2)
    states = forward_tokens(model, [batch], layer=layer, stop=True)[0].layer_states
    named = model(
        input_ids=batch["input_ids"], attention_mask=batch["attention_mask"], output_hidden_states=True
    ).hidden_states
    errors = {"state": 0.0}
    if layers > 1:
        errors["state"] = _error(states, named[layer + 1][:, 1:][batch["labels"][:, 1:] != -100])
    train_only_down_projections(model, [layer])
    with too_late_to_refuse():
        loss = unlearning_loss(
            model,
            {"forget": batch, "retain": batch},
            method="rmu",
            layer=layer,
            reference=small_model(kind, states.dtype),
        ).loss
        loss.backward()
    trained = [each for each in model.parameters() if each.requires_grad]
    if not loss.isfinite() or not any(each.grad is not None and each.grad.any() for each in trained):
        raise RuntimeError(f"a loss of {float(loss)} that reaches nothing")
    stops = can_stop_at(model, layer, torch.device("cpu"))
    return _finding(errors, "stops there" if stops else "runs on")


@contextlib.contextmanager
def too_late_to_refuse() -> Iterator[None]:
    """Count an error after the start of training as a failure."""
    try:
        yield
    except ValueError as error:
        raise RuntimeError(str(error)) from error


CHECKS: dict[str, Callable[[Any, str], Finding]] = {"forward": forward, "lora": lora, "rmu": rmu}
"""Checks of every model type."""


def _finding(errors: dict[str, float], same: str) -> Finding:
    if all(error <= NEAR for error in errors.values()):
        return Finding("same", same)
    return Finding("differs", ", ".join(f"{name} {error:.1e}" for name, error in errors.items() if not error <= NEAR))


def own_logps(model: nn.Module, batch: dict[str, Tensor]) -> Tensor:
    """Compute log-probfast_paths by the model's own forward pass, 0 on uncounted tokens."""
    logits = model(input_ids=batch["input_ids"], attention_mask=batch["attention_mask"]).logits
    counted = batch["labels"][:, 1:] != -100
    logps: Tensor = logits[:, :-1].log_softmax(-1).gather(2, batch["input_ids"][:, 1:, None])[..., 0] * counted
    return logps


def left_padded(batch: dict[str, Tensor]) -> dict[str, Tensor]:
    """Return the same rows with padding on the left."""
    shifts = (batch["attention_mask"] == 0).sum(dim=1).tolist()
    return {
        name: torch.stack([row.roll(shift) for row, shift in zip(each, shifts, strict=True)])
        for name, each in batch.items()
    }


def gradients(model: nn.Module, logps: Tensor) -> dict[str, Tensor]:
    """Return the gradient of a weighted sum by parameter; zeros without gradient."""
    model.zero_grad()
    (logps * torch.linspace(0.5, 1.5, logps.numel()).view_as(logps)).sum().backward()
    return {
        name: torch.zeros_like(each) if each.grad is None else each.grad.clone()
        for name, each in model.named_parameters()
    }


def _error(given: Tensor, wanted: Tensor) -> float:
    return float((given - wanted).detach().abs().max() / (1 + wanted.detach().abs().max()))


def all_kinds() -> list[str]:
    """Return the causal model types of transformers."""
    from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES

    return sorted(MODEL_FOR_CAUSAL_LM_MAPPING_NAMES)


def table(found: dict[str, dict[str, Finding]]) -> str:
    """Return the results in the format of `benchmarks/results/architectures.md`."""
    kinds = ("same", "refused", "differs", "fails")
    lines = [
        f"| of {len(found)} types | same | refused by name | different | traceback | no small model |",
        "|---|---|---|---|---|---|",
    ]
    for check in CHECKS:
        counts = Counter(each[check].kind for each in found.values() if check in each)
        missing = sum(each["forward"].kind == "not made" for each in found.values())
        lines.append(f"| {check} | " + " | ".join(str(counts[kind]) for kind in kinds) + f" | {missing} |")
    shortcuts = _grouped("shortcuts of the forward pass", found, "forward", lambda each: each.detail, "same")
    if len(shortcuts) > 4:  # the largest group needs no list
        shortcuts[3] = f"{shortcuts[3].rpartition(' | ')[0]} | all others |"
    lines += shortcuts
    for check in CHECKS:
        left = {name: each for name, each in found.items() if check == "forward" or each["forward"].kind != "refused"}
        lines += _grouped(f"{check}: refused", left, check, lambda each: each.detail, "refused")
        lines += _grouped(
            f"{check}: off in float32, the same in float64", found, check, lambda each: each.rounding, "same"
        )
    if not_made := [name for name, each in found.items() if each["forward"].kind == "not made"]:
        lines += ["", f"No small model: {', '.join(not_made)}."]
    return "\n".join(lines)


def _grouped(
    title: str, found: dict[str, dict[str, Finding]], check: str, key: Callable[[Finding], str], kind: str
) -> list[str]:
    groups: dict[str, list[str]] = {}
    for name, each in found.items():
        if check in each and each[check].kind == kind and (text := key(each[check])):
            text = re.sub(r"\w+(ForCausalLM|ForConditionalGeneration|LMHeadModel)", "the model", text)
            text = re.sub(r"decoder layer \d+", "a decoder layer", text)
            groups.setdefault(text.strip(), []).append(name)
    largest = sorted(groups.items(), key=lambda group: -len(group[1]))
    body = [f"| {text} | {', '.join(names)} |" for text, names in largest]
    return ["", f"| {title} | types |", "|---|---|", *body] if body else []


def main(arguments: list[str]) -> int:
    """Print the results; return 1 if a model is wrong without being rejected."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument(
        "kinds", nargs="*", metavar="TYPE", help="types of models; default: all that transformers lists"
    )
    parser.add_argument("--docs", action="store_true", help=f"write the table into {DOCS.name}, too")
    given = parser.parse_args(arguments)
    quiet_transformers()
    warnings.simplefilter("ignore")
    found = {}
    for kind in given.kinds or all_kinds():
        found[kind] = find(kind)
        for check, each in found[kind].items():
            print(f"| {kind} | {check} | {each.kind} | {' '.join(each.detail.split())[:200]} |", flush=True)
    print("\n" + table(found))
    if given.docs:
        before, _, _ = DOCS.read_text(encoding="utf-8").partition(MARK)
        DOCS.write_text(f"{before}{MARK}\n\n{table(found)}\n", encoding="utf-8")
    return int(any(each.kind in ("differs", "fails") for checks in found.values() for each in checks.values()))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
