"""Compare forget and retain losses with their published code, in value and gradient, on a tiny model.

Each peer's repository lies as a folder of its name in PEERS (`git clone --depth 1`). Only functions are taken from its files,
so that its packages need not be installed. Differences are the largest of the loss and of all gradients, in float64.

    python scripts/parity.py PEERS
"""

from __future__ import annotations
import __future__

import ast
import contextlib
import functools
import math
import sys
import typing
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from transformers import BatchEncoding, LlamaConfig, LlamaForCausalLM

import atwu
from atwu.methods.component_inputs import LossTerms
from atwu.methods.losses.preference import FLAT

PROMPT, LENGTH, ROWS = 4, 11, 3
Pair = tuple[Tensor, Tensor]
"""Our loss and the peer's."""


def functions(path: Path) -> SimpleNamespace:
    """Return all functions of a file, methods too, without importing it."""
    names = {"torch": torch, "F": F, "nn": nn, "math": math, "contextlib": contextlib, "functools": functools}
    names |= vars(typing) | {"tqdm": iter}
    tree = ast.parse(path.read_text(encoding="utf-8"))
    bodies = [tree.body, *(node.body for node in tree.body if isinstance(node, ast.ClassDef))]
    found = [node for body in bodies for node in body if isinstance(node, ast.FunctionDef)]
    code = compile(ast.Module(found, []), str(path), "exec", flags=__future__.annotations.compiler_flag)
    exec(code, names)
    return SimpleNamespace(**names)


def model(seed: int) -> LlamaForCausalLM:
    torch.manual_seed(seed)
    shape = {"hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 4}
    return LlamaForCausalLM(LlamaConfig(vocab_size=64, **shape)).double().eval()


def batch(seed: int) -> dict[str, Tensor]:
    ids = torch.randint(64, (ROWS, LENGTH), generator=torch.Generator().manual_seed(seed))
    return {"input_ids": ids, "attention_mask": torch.ones_like(ids), "labels": ids.clone()}


def answers(seed: int) -> dict[str, Tensor]:
    rows = batch(seed)
    rows["labels"][:, :PROMPT] = -100
    return rows


def triple(rows: dict[str, Tensor]) -> tuple[Tensor, Tensor, Tensor]:
    return rows["input_ids"], rows["labels"], rows["attention_mask"]


class Comparison:
    """One tiny model, its original, rows, and the peers' files."""

    def __init__(self, peers: Path) -> None:
        self.peers, self.model, self.original = peers, model(0), model(1)
        self.forget, self.retain, self.alternate, self.refused = (answers(seed) for seed in range(4))
        self.weights = list(self.model.parameters())

    def ours(self, method: str, **options: Any) -> Any:
        rows = {
            "forget": self.forget,
            "retain": self.retain,
            "alternate": self.alternate,
            "retain_alternate": self.refused,
        }
        return atwu.unlearning_loss(self.model, rows, method, **{"reference": self.original, **options})

    def ceu(self) -> Pair:
        peer = functions(self.peers / "open-unlearning/src/trainer/unlearn/ceu.py")
        return self.ours("ceu").forget, peer.compute_batch_ceu(self.model, self.forget)[0]

    def altpo(self) -> Pair:
        peer = functions(self.peers / "open-unlearning/src/trainer/utils.py")
        loss = peer.compute_dpo_loss(self.model, self.original, self.alternate, self.forget, beta=0.1)[0]
        return self.ours("altpo", beta=0.1).forget, loss

    def me(self) -> Pair:
        peer = functions(self.peers / "closer-look-LLM-unlearning/trainer/losses.py")
        return self.ours("me").forget, peer.me_loss(self.model, [triple(self.forget)])

    def idk_ap(self) -> Pair:
        peer = functions(self.peers / "closer-look-LLM-unlearning/trainer/losses.py")
        rows = [triple(each) for each in (self.forget, self.retain, self.alternate, self.refused)]
        return self.ours("idk_ap").loss, peer.idk_loss(self.model, rows) + peer.ap_loss(self.model, rows, beta=0.1)

    def flat(self) -> Pair:
        peer = functions(self.peers / "FLAT/dataloader.py")
        names = {
            "total_variation": "Total-Variation",
            "kl": "KL",
            "jensen_shannon": "Jenson-Shannon",
            "pearson": "Pearson",
        }
        mean = [
            torch.exp(self.ours("grad_diff", forget=rows).logps)[:, PROMPT - 1 :].mean()
            for rows in (self.alternate, self.forget)
        ]
        mask = torch.ones(1, 1, dtype=torch.bool)
        template, forget = (each.log()[None, None] for each in mean)
        terms = LossTerms(forget, mask, alternate_logps=template, alternate_mask=mask)
        pairs = [
            (
                FLAT(f_divergence=ours).values(terms, torch.ones(1, 1)).sum(),
                peer.get_contrastive_loss(-mean[1], -mean[0], theirs),
            )
            for ours, theirs in names.items()
        ]
        return torch.stack([pair[0] for pair in pairs]).sum(), torch.stack([pair[1] for pair in pairs]).sum()

    def jensun_plus(self) -> Pair:
        peer = functions(self.peers / "forget-narrowly-retain-broadly/src/trainer/utils.py")
        out = self.ours("jensun_plus")
        forget, _ = peer.jensun_label_forget_loss(self.model, self.alternate, -100, 0.5)
        retain, _ = peer.jensun_retain_loss(self.model, self.original, self.retain, -100, 0.5)
        return out.forget + out.retain, forget + retain

    def relearn(self) -> Pair:
        """KL of the peer counts every position; ours then counts them too, with one more token for the last."""
        peer = functions(self.peers / "unlearn/baselines/src/iterative_trainer.py")
        extended = {name: torch.cat([rows, rows[:, -1:]], 1) for name, rows in batch(1).items()}
        trainer = SimpleNamespace(loss_type="relearn_klr_gdr", ref_model=self.original)
        whole = peer.compute_loss(trainer, self.model, (self.alternate, self.retain))
        out = self.ours("relearn", retain=extended, retain_loss="kl")
        return out.forget + out.retain + self.ours("grad_diff").retain, whole

    def lunar(self) -> Pair:
        """The states of the original are the peer's inputs and targets of one matrix; the tokens are those that ours counts."""
        peer = functions(self.peers / "LUNAR/src/hook_for_unlearn.py")
        data = functions(self.peers / "LUNAR/src/dataset_utils.py")
        reads = (peer.get_pre_down_proj_activation, peer.get_post_block_activation)
        reads += (peer.get_pre_post_attention_layernorm_activation,)
        layer, direction = 1, torch.linspace(-1, 1, 32, dtype=torch.float64)
        self.model.load_state_dict(self.original.state_dict())
        matrix = self.model.model.layers[layer].mlp.down_proj
        self.weights = [matrix.weight]
        with torch.no_grad():
            matrix.weight *= 1.1
        states = []
        for rows in (self.forget, self.retain):
            found = [read(self.original, [row[None] for row in rows["input_ids"]], _tokens, layer, 1) for read in reads]
            states += [[kept[:, 1:] for kept in each] for each in found]
        states[1] = peer.perturb_post_block_activations_forget(states[1], direction)
        inputs, targets, still, stay = data.prepare_trainset_raw(*states)
        moved = nn.functional.mse_loss(matrix(inputs), targets) + nn.functional.mse_loss(matrix(still), stay)
        return self.ours("lunar", layer=layer, inputs=atwu.LossInputs(refusal_direction=direction)).loss, moved

    def elm(self) -> Pair:
        """The peer counts every position; ours then counts them too, with one more token for the last."""
        peer = functions(self.peers / "erasing-llm/trainscripts/erase.py")
        rows, prompts = batch(0), {"expert": "50 51 ", "novice": "52 53 54 "}
        extended = {name: torch.cat([each, each[:, -1:]], 1) for name, each in rows.items()}
        extended["labels"][:, 0] = -100
        behind = {name: _behind(prompt, extended) for name, prompt in prompts.items()}
        losses = []
        for row in rows["input_ids"]:
            target = peer.get_edit_vector(
                self.original,
                _numbers,
                " ".join(map(str, row.tolist())),
                *prompts.values(),
                start_eta=1,
                end_eta=1000,
                dtype=torch.float64,
                top_k=50,
                temperature=1.2,
            )
            losses.append(F.kl_div(self.model(row[None]).logits[0].log_softmax(-1), target[0], reduction="batchmean"))
        return self.ours("elm", forget=extended, fluency_weight=0, **behind).forget, torch.stack(losses).mean()


def _numbers(texts: list[str], **_: Any) -> BatchEncoding:
    """Tokenize a text of numbers."""
    ids = torch.tensor([[int(word) for word in text.split()] for text in texts])
    return BatchEncoding({"input_ids": ids, "attention_mask": torch.ones_like(ids)})


def _behind(prompt: str, rows: dict[str, Tensor]) -> dict[str, Tensor]:
    ids = _numbers([prompt]).input_ids.expand(ROWS, -1)
    before = {"input_ids": ids, "attention_mask": torch.ones_like(ids), "labels": torch.full_like(ids, -100)}
    return {name: torch.cat([before[name], each], 1) for name, each in rows.items()}


def _tokens(instructions: list[Tensor]) -> SimpleNamespace:
    ids = torch.cat(instructions)
    return SimpleNamespace(input_ids=ids, attention_mask=torch.ones_like(ids))


METHODS: dict[str, Callable[[Comparison], Pair]] = {
    name: getattr(Comparison, name)
    for name in ("ceu", "altpo", "me", "idk_ap", "flat", "jensun_plus", "relearn", "lunar", "elm")
}


def differences(peers: Path) -> Iterator[tuple[str, float, float]]:
    """Yield method, its loss, and the largest difference in loss and gradients."""
    for name, compare in METHODS.items():
        comparison = Comparison(peers)
        pair = compare(comparison)
        grads = [
            torch.autograd.grad(loss, comparison.weights, retain_graph=True, materialize_grads=True) for loss in pair
        ]
        gap = [abs(pair[0] - pair[1]).item(), *(abs(a - b).max().item() for a, b in zip(*grads, strict=True))]
        yield name, pair[0].item(), max(gap)


if __name__ == "__main__":
    for name, value, gap in differences(Path(sys.argv[1])):
        print(f"{name:12} {value:9.5f} {gap:.1e}")
