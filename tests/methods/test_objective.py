"""`unlearning_loss`: worked examples through a model with known probabilities, every method against a plain implementation."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from transformers.modeling_outputs import CausalLMOutput

import atwu
from atwu.methods.component import FixedWeighting
from atwu.methods.component_inputs import LossInputs, NormalizationCounts
from atwu.methods.method_table import METHODS
from atwu.methods.objective import micro_batch_loss
from atwu.methods.recipe import recipe
from atwu.methods.weightings.fixed_weights import TokenCounts
from atwu.methods.weightings.token_scorer import TokenScorer
from atwu.modeling.batches import TokenBatch
from atwu.modeling.reference import reference_of_batch

RUNNING_P, RETAIN_P, SCORES = (0.9, 0.2, 0.6, 0.5), (0.8, 0.7, 0.5), (0.1, 0.8, 0.5, 0.2)


class FixedProbabilities(torch.nn.Module):
    """A model that gives token t of the sequence 0, 1, 2, ... a chosen probability, and the rest to token 9."""

    def __init__(self) -> None:
        super().__init__()
        forget = torch.tensor(RUNNING_P, dtype=torch.float64)
        retain = torch.tensor(RETAIN_P, dtype=torch.float64)
        logits = torch.full((20, 20), -1e9, dtype=torch.float64)
        for start, probabilities in ((0, forget), (10, retain)):
            for index, p in enumerate(probabilities):
                logits[start + index, start + index + 1] = p.log()
                logits[start + index, 9] = (1 - p).log()
        self.logits = torch.nn.Parameter(logits)

    def forward(self, input_ids, attention_mask=None):
        return CausalLMOutput(logits=self.logits[input_ids])


def row(*ids):
    tokens = torch.tensor([ids])
    return {"input_ids": tokens, "attention_mask": torch.ones_like(tokens), "labels": torch.tensor([[-100, *ids[1:]]])}


FORGET, RETAIN = row(0, 1, 2, 3, 4), row(10, 11, 12, 13)
WEIGHTS = torch.tensor([[0.0, *SCORES]])


@pytest.mark.parametrize(
    ("method", "options", "forget", "total"),
    [
        ("grad_ascent", {"forget_weight": 1.0}, -0.729693, -0.729693),
        ("grad_diff", {"forget_weight": 0.12, "retain_weight": 0.8}, -0.729693, 0.251894),
        ("wga", {"beta": 2.14, "forget_weight": 1.0, "retain_weight": 1.0}, -0.115987, -0.115987 + 0.424322),
        ("satga", {"beta": 1.0, "forget_weight": 1.0, "retain_weight": 1.0}, -0.267445, -0.267445 + 0.424322),
        ("satimp", {"beta1": 5, "beta2": 1, "forget_weight": 1, "retain_weight": 1}, -0.008338, 0.424322 - 0.008338),
        ("atwu_ga", {"token_weights": WEIGHTS}, -0.423032, 3 * -0.423032 + 0.5 * 0.424322),
        ("atwu_satga", {"token_weights": WEIGHTS}, -0.003322, 3 * -0.003322 + 0.5 * 0.424322),
        ("atwu", {"token_weights": WEIGHTS, "beta": 7}, -0.026302, 0.133255),
        ("atwu", {"token_weights": WEIGHTS, "beta": 2.25}, -0.081650, 3 * -0.081650 + 0.5 * 0.424322),
        ("atwu", {}, -0.028170, 3 * -0.028170 + 0.5 * 0.424322),  # scores of an untrained scorer are 1/2
        ("gt_ga", {"token_weights": (WEIGHTS > 0.4).double()}, -(1.609438 + 0.510826) / 2, None),
    ],
)
def test_worked_examples(method, options, forget, total):
    inputs = LossInputs(token_weights=options.pop("token_weights", None))
    rows = {"forget": FORGET, "retain": RETAIN}
    out = atwu.unlearning_loss(FixedProbabilities(), rows, method=method, inputs=inputs, **options)
    assert out.forget.item() == pytest.approx(forget, abs=1e-6)
    if total is not None:
        assert out.loss.item() == pytest.approx(total, abs=3e-6)
    assert out.logps.exp()[0].tolist() == pytest.approx(list(RUNNING_P), abs=1e-6)
    assert (out.retain is None) == (method == "grad_ascent")


@pytest.mark.parametrize(
    ("method", "options"),
    [
        *((name, {}) for name in METHODS if name != "jensun_plus"),  # balanced in each micro-batch
        ("atwu_satga", {"preserve": "nll", "preserve_weight": 2.0}),
    ],
)
def test_micro_batches_with_shared_counts_add_up(method, options, tiny_llama, batch):
    model, reference, decided = tiny_llama().double().eval(), tiny_llama(1).double().eval(), recipe(method, **options)
    rows = {
        name: batch(rows=4, seed=seed)
        for seed, name in enumerate(("forget", "retain", "alternate", "retain_alternate"))
    }
    selection = (torch.rand(4, 12, generator=torch.Generator().manual_seed(0)) < 0.5).double()
    masked = any(isinstance(weighting, FixedWeighting) for weighting in decided.weighting_components)

    def loss(part, counts=None):
        given = {name: TokenBatch.of({k: v[part] for k, v in rows[name].items()}) for name in rows}
        given |= {"expert": given["forget"], "novice": given["forget"]}
        seen = reference_of_batch(reference, given, decided.reference_specs(2))
        weights = selection[part] if masked else None
        more = LossInputs(seen, token_weights=weights, refusal_ids=(5, 6), refusal_direction=torch.ones(32))
        return micro_batch_loss(model, given, decided, inputs=more, batch_counts=counts)

    whole = loss(slice(None))
    counts = NormalizationCounts(
        forget_tokens=float(whole.mask.sum()),
        averaged_tokens=float(decided.forget_component.averaged(whole.mask).sum()),
        retain_tokens=float((rows["retain"]["labels"][:, 1:] != -100).sum()),
        forget_rows=4.0,
        retain_rows=4.0,
        selected=float((selection[:, 1:] * whole.mask).sum()),
    )
    pieces = [loss(slice(index, index + 1), counts).loss for index in range(4)]
    torch.testing.assert_close(sum(pieces), whole.loss, atol=1e-10, rtol=1e-8)


def test_kl_rows_is_the_mean_of_the_rows_own_kl(tiny_llama, batch):
    model, reference = tiny_llama().double().eval(), tiny_llama(1).double().eval()
    forget, retain = batch(rows=2), batch(rows=2, seed=1)
    retain["labels"][0, :-1] = -100  # one token counts in the first row

    def retain_loss(name, rows):
        taken = {key: value[rows] for key, value in retain.items()}
        return atwu.unlearning_loss(
            model, {"forget": forget, "retain": taken}, method="grad_diff", retain_loss=name, reference=reference
        ).retain.item()

    alone = [retain_loss("kl", slice(index, index + 1)) for index in range(2)]
    assert retain_loss("kl_rows", slice(None)) == pytest.approx(sum(alone) / 2, rel=1e-9)
    assert retain_loss("kl", slice(None)) != pytest.approx(sum(alone) / 2, rel=1e-2)
    assert retain_loss("kl_first", slice(0, 1)) == pytest.approx(alone[0], rel=1e-9)  # of its one token
    end = int(retain["attention_mask"][1].sum())
    for counted, same in ((2, True), (3, False)):
        retain["labels"][1] = -100
        retain["labels"][1, end - counted : end] = retain["input_ids"][1, end - counted : end]
        values = [retain_loss(name, slice(1, 2)) for name in ("kl_first", "kl")]
        assert (values[0] == pytest.approx(values[1], rel=1e-9)) is same


def test_missing_inputs_are_named(tiny_llama, batch):
    model, forget = tiny_llama(), batch()
    unlabelled = {k: v for k, v in forget.items() if k != "token_labels"}
    with pytest.raises(ValueError, match=r"'grad_diff'.*retain"):
        atwu.unlearning_loss(model, {"forget": forget}, method="grad_diff")
    with pytest.raises(ValueError, match=r"'labels'.*token_labels"):
        atwu.unlearning_loss(model, {"forget": unlabelled, "retain": batch()}, method="gt_ga")
    with pytest.raises(ValueError, match=r"labels.*\(4, 12\).*\(4, 11\)"):
        atwu.unlearning_loss(
            model,
            {"forget": forget, "retain": batch()},
            method="atwu",
            inputs=LossInputs(token_weights=torch.ones(4, 11)),
        )


def test_scorer_with_a_prior_requires_offsets(tiny_llama, batch):
    model, rows = tiny_llama(), {"forget": batch(seed=1), "retain": batch(seed=2)}
    scorer = TokenScorer(32, prior=TokenCounts(np.arange(64)))
    with pytest.raises(ValueError, match=r"prior.*offset"):
        atwu.unlearning_loss(model, rows, method="atwu", scorer=scorer)
    mask = TokenBatch.of(rows["forget"]).mask
    offset = torch.linspace(-1, 1, int(mask.sum()))
    out = atwu.unlearning_loss(model, rows, method="atwu", scorer=scorer, inputs=LossInputs(score_offset=offset))
    torch.testing.assert_close(out.token_weights[mask], torch.sigmoid(offset))


@pytest.mark.parametrize("method", ["undial", "jensun", "rmu"])
def test_learned_scores_of_a_distance_loss_are_normalized_per_row(method, tiny_llama, batch):
    """All-small scores give the same weights as all-large scores, so shrinking them has no benefit."""
    model, reference = tiny_llama().double(), tiny_llama(1).double()
    given = {"reference": reference, "method": method, "weighting": "scorer"}
    rows = {"forget": batch(seed=1), "retain": batch(seed=2)}
    losses = []
    for weight in (1.0, 0.1):
        weights = torch.full((4, 12), weight)
        inputs = LossInputs(token_weights=weights, refusal_ids=(5, 6))
        out = atwu.unlearning_loss(model, rows, inputs=inputs, **given)
        losses.append(out.forget.item())
    unweighted = {**given, "weighting": "uniform", "inputs": LossInputs(refusal_ids=(5, 6))}
    plain = atwu.unlearning_loss(model, rows, **unweighted)
    assert losses == pytest.approx([plain.forget.item()] * 2, abs=1e-9)


@pytest.mark.parametrize(
    "method", [name for name in METHODS if name not in ("rmu", "lunar", "asu")]
)  # no layers in this model
def test_longer_prompts_change_nothing(method):
    """The model depends on one token only, so a longer prompt must have no effect."""

    def rows(prompt):
        return {
            name: {
                "input_ids": torch.tensor([[*prompt, *ids]]),
                "attention_mask": torch.ones(1, len(prompt) + len(ids), dtype=torch.long),
                "labels": torch.tensor([[-100] * (len(prompt) + 1) + list(ids[1:])]),
            }
            for name, ids in (
                ("forget", (0, 1, 2, 3, 4)),
                ("retain", (10, 11, 12, 13)),
                ("alternate", (0, 1, 2)),
                ("retain_alternate", (10, 11)),
            )
        }

    losses = []
    for prompt in ((), (15, 16, 17)):
        given = rows(prompt)
        reference = FixedProbabilities()
        with torch.no_grad():
            reference.logits += torch.linspace(0, 1, 20, dtype=torch.float64)
        weights = torch.tensor([[0.0] * (len(prompt) + 1) + list(SCORES)])
        losses.append(
            atwu.unlearning_loss(
                FixedProbabilities(),
                given | dict.fromkeys(("prompted", "expert", "novice"), given["forget"]),
                method=method,
                reference=reference,
                inputs=LossInputs(
                    refusal_ids=(9, 2),
                    token_weights=None if recipe(method).forget_component.trained_answer == "alternate" else weights,
                ),
            ).loss.item()
        )
    assert losses[0] == pytest.approx(losses[1], abs=1e-12)
