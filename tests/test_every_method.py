"""Every method against plain code: full logits, one row and one token at a time, in float64."""

from __future__ import annotations

import copy
import math

import pytest
import torch
from torch.nn.functional import logsigmoid

import atwu
from atwu.methods.method_table import METHODS
from atwu.methods.recipe import recipe
from atwu.methods.weightings.token_scorer import TokenScorer

REFUSAL = (7, 11, 13)
LAYER = 1
DIRECTION = torch.linspace(-1, 1, 32, dtype=torch.float64)


def rows_of(model, batch):
    """Per row: log-probabilities over the vocabulary at its counted tokens, their ids, and states by layer."""
    out = model(input_ids=batch["input_ids"], attention_mask=batch["attention_mask"], output_hidden_states=True)
    table, layer = torch.log_softmax(out.logits, dim=-1), tapped(model, batch)
    rows = []
    for row, labels in enumerate(batch["labels"]):
        places = [t for t in range(1, len(labels)) if labels[t] != -100]
        rows.append(
            {
                "table": torch.stack([table[row, t - 1] for t in places]),
                "logits": torch.stack([out.logits[row, t - 1] for t in places]),
                "ids": torch.stack([labels[t] for t in places]),
                "before": torch.stack([out.hidden_states[-1][row, t - 1] for t in places]),
                "layer": torch.stack([layer[row, t] for t in places]),
                "everywhere": everywhere(model, batch, row),
                "secret": torch.stack([batch["token_labels"][row, t] for t in places]),
            }
        )
    return rows


def tapped(model, batch):
    kept = []
    handle = model.model.layers[LAYER].register_forward_hook(lambda module, given, output: kept.append(output))
    model(input_ids=batch["input_ids"], attention_mask=batch["attention_mask"])
    handle.remove()
    return kept[0]


def everywhere(model, batch, row):
    """States at the end of a layer from the second token on, each once."""
    ids = batch["input_ids"][row, : int(batch["attention_mask"][row].sum())][None]
    return tapped(model, {"input_ids": ids, "attention_mask": torch.ones_like(ids)})[0, 1:]


def own(row):
    return [row["table"][t, token] for t, token in enumerate(row["ids"])]


def weights_of(method, row, numbers, scorer, given):
    if method.startswith("gt_"):
        return list(row["secret"])
    if method.startswith("atwu"):
        logits = row["before"].detach().float() @ scorer.linear.weight[0].detach() + scorer.linear.bias.detach()
        return list(torch.sigmoid(logits).double())
    if method == "wga":
        return [lp.detach().exp() ** numbers["beta"] for lp in own(row)]
    if method == "satimp":
        return [lp.detach().exp() ** numbers["beta1"] * (1 - lp.detach().exp()) ** numbers["beta2"] for lp in own(row)]
    if method == "etw":
        heats = []
        for table in row["table"].detach():
            p = torch.softmax(table / numbers["temperature"], dim=-1)
            heats.append(-(p * p.log()).sum())
        return [len(heats) * heat / sum(heats) for heat in heats]
    if method in ("seul", "su_llm", "su_ngram", "fundial"):
        return list(given)
    return [torch.tensor(1.0, dtype=torch.float64)] * len(row["ids"])


def js(p, q):
    total = 0.0
    for a, b in zip(p, q, strict=True):
        m = (a + b) / 2
        total = total + 0.5 * a * torch.log(a / m) + (0.5 * b * torch.log(b / m) if b > 0 else 0.0)
    return total


def onehot(token):
    return torch.nn.functional.one_hot(token, 64).double()


def kl(p0, p):
    return sum(a.exp() * (a - b) for a, b in zip(p0, p, strict=True))


def huber(values, others):
    return sum(min(d, 1) * (d - min(d, 1) / 2) for d in (values - others).abs())


def first_half(values):
    return values[0] if len(values) == 1 else values[0] / 2 + sum(values[1:]) / (len(values) - 1) / 2


def logit_norm(loss, rows):
    """Norm of the gradient in the logits behind the log-probabilities of all rows."""
    tables = [row["table"] for row in rows]
    slopes = torch.autograd.grad(loss, tables, retain_graph=True)
    parts = [g - table.detach().exp() * g.sum(-1, keepdim=True) for g, table in zip(slopes, tables, strict=True)]
    return torch.cat(parts).norm()


def plain_loss(method, rows, ref, numbers, scorer, given):
    forget, retain, alternate = rows["forget"], rows["retain"], rows["alternate"]
    tokens = sum(len(row["ids"]) for row in forget)
    total, selected = 0.0, 0.0
    for index, row in enumerate(forget):
        w = weights_of(method, row, numbers, scorer, given[index])
        lps, n = own(row), len(row["ids"])
        beta = numbers.get("beta")
        if method in ("npo", "atwu_npo", "dpo", "atwu_dpo", "altpo"):
            scale = n / sum(w)
            ratio = sum(scale * g * lp for g, lp in zip(w, lps, strict=True)) - sum(own(ref["forget"][index]))
            if "npo" not in method:
                better = sum(own(alternate[index])) - sum(own(ref["alternate"][index]))
                total = total - 2 / beta * logsigmoid(beta * (better - ratio)) / len(forget)
            else:
                total = total - 2 / beta * logsigmoid(-beta * ratio) / len(forget)
        elif method in ("simnpo", "atwu_simnpo"):
            mean = sum(-numbers.get("score_scale", 1) * g * lp for g, lp in zip(w, lps, strict=True)) / n
            total = total - 2 / beta * logsigmoid(beta * (mean - numbers["delta"])) / len(forget)
        elif method == "jensun":
            for t in range(n):
                target_token_ids = torch.zeros(64, dtype=torch.float64)
                target_token_ids[REFUSAL[t % len(REFUSAL)]] = 1.0
                total = total + js(row["table"][t].exp(), target_token_ids) / tokens
        elif method in ("undial", "fundial"):
            for t in range(n):
                logits = ref["forget"][index]["table"][t].clone()
                logits[row["ids"][t]] -= beta
                total = total - w[t] * (torch.softmax(logits, -1) * row["table"][t]).sum()
                selected += float(w[t])
        elif method == "me":
            total = total - sum(row["table"].mean(-1)) - n * math.log(64)
        elif method == "pdu":
            total = total + sum((table.max() - table.mean()) ** 2 for table in row["table"])
        elif method == "bs_t":
            for t, lp in enumerate(lps):
                likeliest = row["table"][t].detach().exp().argsort(descending=True)[: int(numbers["belief_tokens"])]
                p = row["table"][t].detach().exp()[likeliest]
                belief = (p / p.sum() * row["table"][t][likeliest]).sum()
                total = total + (1 - numbers["belief_weight"]) * lp + numbers["belief_weight"] * belief
        elif method == "bs_s":
            said = own(alternate[index])
            share = numbers["belief_weight"]
            total = total + ((1 - share) * sum(lps) / n + share * sum(said) / len(said)) / len(forget)
        elif method in ("idk_ap", "relearn"):
            total = total - sum(own(alternate[index])) * tokens / sum(len(each["ids"]) for each in alternate)
        elif method == "jensun_plus":
            answer = alternate[index]
            values = [
                js(table.exp(), onehot(token)) for table, token in zip(answer["table"], answer["ids"], strict=True)
            ]
            total = total + first_half(values) / len(forget)
        elif method == "flat":
            template = own(alternate[index])
            forgotten = sum(g * lp.exp() for g, lp in zip(w, lps, strict=True)) / n
            learned = sum(lp.exp() for lp in template) / len(template)
            total = total + (torch.tanh(forgotten) - torch.tanh(learned)) / 2 / len(forget)
        elif method == "duet":
            total = total + huber(row["logits"][0], ref["prompted"][index]["logits"][0]) / len(forget)
        elif method == "elm":
            for t, eta in enumerate(torch.linspace(numbers["eta_start"], numbers["eta"], n, dtype=torch.float64)):
                plain, expert, novice = (
                    (ref[name][index]["table"][t] / numbers["target_temperature"]).log_softmax(-1)
                    for name in ("forget", "expert", "novice")
                )
                combined = plain + eta * (novice - expert)
                likeliest = combined.argsort(descending=True)[: int(numbers["target_tokens"])]
                total = total + kl(combined[likeliest].log_softmax(-1), row["table"][t][likeliest]) / n / len(forget)
            said = own(alternate[index])
            total = total - numbers["fluency_weight"] * sum(said) / len(said) / len(forget)
        elif method == "asu":
            divergences = [kl(p0, p) for p0, p in zip(ref["smoothed"][index]["table"], row["table"], strict=True)]
            total = total + sum(divergences) / n / len(forget)
        elif method == "ceu":
            for t in range(int(numbers["kept_start"]), n):
                logits = row["table"][t].detach().clone()
                logits[row["ids"][t]] = -math.inf
                total = total - (torch.softmax(logits, -1) * row["table"][t]).sum()
        elif method == "rmu":
            u = torch.rand(32, generator=torch.Generator().manual_seed(0)).double()
            v = (numbers["steering_coeff"] * u / u.norm()).float()
            total = total + sum(((h - v) ** 2).mean() for h in row["layer"]) / n / len(forget)
        else:
            for g, lp in zip(w, lps, strict=True):
                p = lp.detach().exp()
                if method in ("satga", "gt_satga", "atwu_satga"):
                    g = g * p**beta
                elif method == "atwu":
                    g = g * p ** (beta * g)
                total, selected = total + g * lp, selected + float(g)
    if method in ("gt_ga", "seul", "su_llm", "su_ngram", "fundial"):
        total = total / max(selected, 1.0)
    elif method == "ceu":
        total = total / sum(max(0, len(row["ids"]) - int(numbers["kept_start"])) for row in forget)
    elif method == "undial" or not any(
        name in method for name in ("npo", "dpo", "jensun", "rmu", "flat", "duet", "asu", "elm", "altpo", "bs_s")
    ):  # the others are averages already
        total = total / tokens
    kept = 0.0
    if method == "lunar":
        moved, still = (
            [
                torch.stack([((h - h0 - c * DIRECTION) ** 2).mean() for h, h0 in zip(row, before, strict=True)])
                for row, before in zip(
                    (row["everywhere"] for row in rows[name]), (row["everywhere"] for row in ref[name]), strict=True
                )
            ]
            for name, c in (("forget", numbers["redirect_coeff"]), ("retain", 0.0))
        )
        kept = torch.stack([row.mean() for row in still]).mean()
        return numbers["forget_weight"] * torch.cat(moved).mean() + numbers["retain_weight"] * kept
    for index, row in enumerate(retain):
        n = len(row["ids"])
        count = sum(len(other["ids"]) for other in retain)
        if method == "rmu":
            kept = kept + sum(
                ((a - b) ** 2).mean() for a, b in zip(row["layer"], ref["retain"][index]["layer"], strict=True)
            ) / n / len(retain)
        elif method == "jensun_plus":
            tables = zip(row["table"], ref["retain"][index]["table"], strict=True)
            kept = kept + first_half([js(a.exp(), b.exp()) for a, b in tables]) / len(retain)
        elif method == "jensun":
            kept = (
                kept
                + sum(js(a.exp(), b.exp()) for a, b in zip(row["table"], ref["retain"][index]["table"], strict=True))
                / count
            )
        elif method == "duet":
            kept = kept + huber(row["logits"][0], ref["retain"][index]["logits"][0]) / len(retain)
        elif method == "elm":
            kept = (
                kept + sum(kl(p0, p) for p0, p in zip(ref["retain"][index]["table"], row["table"], strict=True)) / count
            )
        elif method == "relearn":
            tables = zip(ref["retain"][index]["table"], row["table"], strict=True)
            kept = kept + (sum(kl(p0, p) for p0, p in tables) - sum(own(row))) / count
        elif method == "idk_ap":
            gap = sum(own(row)) - sum(own(rows["retain_alternate"][index]))
            kept = kept - logsigmoid(numbers["answer_beta"] * gap) / numbers["answer_beta"] / len(retain)
        elif METHODS[method].retain_loss != "none":
            kept = kept - sum(own(row)) / count
    if method == "jensun_plus":
        total = total * (logit_norm(kept, retain) / (logit_norm(total, alternate) + 1e-5))
    return numbers["forget_weight"] * total + numbers.get("retain_weight", 0.0) * kept


@pytest.fixture
def setting(tiny_llama, batch):
    model, reference = tiny_llama(0).double().eval(), tiny_llama(0).double().eval()
    with torch.no_grad():
        for index, parameter in enumerate(reference.parameters()):
            noise = torch.randn(parameter.shape, generator=torch.Generator().manual_seed(index), dtype=torch.float64)
            parameter += 0.05 * noise
    batches = {"forget": batch(rows=3, seed=1), "retain": batch(rows=3, seed=2), "alternate": batch(rows=3, seed=3)}
    batches["retain_alternate"] = batch(rows=3, seed=4)
    for each, prompt in {"prompted": [5, 6, 7], "expert": [8, 9], "novice": [9, 8, 5, 6]}.items():
        before = {"input_ids": torch.tensor(prompt), "labels": torch.tensor([-100] * len(prompt))}
        batches[each] = {
            name: torch.cat([before.get(name, torch.ones(len(prompt), dtype=rows.dtype)).expand(3, -1), rows], dim=1)
            for name, rows in batches["forget"].items()
        }
    return model, reference, batches


def loss_of(model, reference, batches, **options):
    weights = options.pop("token_weights", None)
    inputs = atwu.LossInputs(token_weights=weights, refusal_ids=REFUSAL, refusal_direction=DIRECTION)
    return atwu.unlearning_loss(model, batches, **{"reference": reference, "inputs": inputs} | options)


@pytest.mark.parametrize("method", list(METHODS))
def test_value_and_gradient_equal_plain_code(method, setting):
    model, reference, batches = setting
    scorer = TokenScorer(32)
    torch.nn.init.normal_(scorer.linear.weight, generator=torch.Generator().manual_seed(1))
    torch.nn.init.constant_(scorer.linear.bias, 0.3)
    fixed = (torch.rand(3, 12, generator=torch.Generator().manual_seed(5)) < 0.5).double()
    options = {"token_weights": fixed} if method in ("seul", "su_llm", "su_ngram", "fundial") else {}
    out = loss_of(model, reference, batches, method=method, scorer=scorer, **options)
    numbers = dict(recipe(method).values)
    rows = {name: rows_of(model, rows) for name, rows in batches.items()}
    with torch.no_grad():
        ref = {name: rows_of(reference, rows) for name, rows in batches.items()}
        smoothed = copy.deepcopy(reference)
        for layer in smoothed.model.layers:
            layer.self_attn.q_proj.weight /= numbers.get("attention_temperature", 1.0)
        ref["smoothed"] = rows_of(smoothed, batches["forget"])
    given = [
        [fixed[row, t] for t in range(1, 12) if labels[t] != -100]
        for row, labels in enumerate(batches["forget"]["labels"])
    ]
    expected = plain_loss(method, rows, ref, numbers, scorer, given)
    # Learned scores are float32 by design.
    tolerance = 1e-6 if method.startswith("atwu") else 1e-8
    assert out.loss.item() == pytest.approx(expected.item(), abs=tolerance)
    parameters = list(model.parameters())
    wanted = torch.autograd.grad(expected, parameters, allow_unused=True)
    got = torch.autograd.grad(out.loss, parameters, allow_unused=True)
    for left, right in zip(got, wanted, strict=True):
        if right is None:
            assert left is None or not left.any()
        else:
            torch.testing.assert_close(left, right, atol=tolerance, rtol=1e-6)


@pytest.mark.parametrize(("given", "problem"), [(None, "reads a prompt"), ("retain", "different answers")])
def test_a_teacher_needs_the_same_answers_behind_its_prompt(given, problem, setting):
    model, _, batches = setting
    with pytest.raises(ValueError, match=problem):
        loss_of(model, model, batches | {"prompted": given and batches[given]}, method="duet")


def legacy_jensun(model, reference, rows):
    inputs = atwu.LossInputs(refusal_ids=(7, 11))
    return atwu.unlearning_loss(model, rows, "jensun", legacy=True, reference=reference, inputs=inputs)


def test_legacy_jensun_targets_both_tokens_at_every_position(setting):
    model, reference, batches = setting
    out = legacy_jensun(model, reference, batches)
    tables = torch.log_softmax(
        model(batches["forget"]["input_ids"], attention_mask=batches["forget"]["attention_mask"]).logits, -1
    ).exp()
    target_token_ids = torch.zeros(64, dtype=torch.float64)
    target_token_ids[[7, 11]] = 1.0
    values = [
        float(js(tables[row, t - 1], target_token_ids))
        for row in range(3)
        for t in range(1, int(batches["forget"]["attention_mask"][row].sum()) + 1)
    ]
    assert out.forget.item() == pytest.approx(sum(values) / len(values), abs=1e-9)


def test_legacy_jensun_is_independent_of_the_padding_side(setting):
    model, reference, batches = setting

    def loss(turned):
        rows = {
            name: {key: value.clone() for key, value in rows.items()}
            for name, rows in batches.items()
            if name in ("forget", "retain")
        }
        for part in rows.values() if turned else ():
            for row, size in enumerate(part["attention_mask"].sum(dim=1).tolist()):
                for key in part:
                    part[key][row] = part[key][row].roll(part[key].shape[1] - size)
        return legacy_jensun(model, reference, rows)

    right, left = loss(False), loss(True)
    assert right.mask.sum().item() == int(batches["forget"]["attention_mask"].sum())
    assert right.loss.item() == pytest.approx(left.loss.item(), abs=1e-9)


def test_padding_changes_nothing(setting):
    model, reference, batches = setting
    for method in METHODS:
        losses = []
        for extra in (0, 3):
            padded = {
                name: {
                    key: torch.nn.functional.pad(value, (0, extra), value=-100 if key == "labels" else 0)
                    for key, value in rows.items()
                }
                for name, rows in batches.items()
            }
            fixed = torch.nn.functional.pad(torch.ones(3, 12), (0, extra))
            masked = METHODS[method].weighting in ("logprob_mask", "model_difference", "ngram_difference", "nouns")
            losses.append(
                loss_of(model, reference, padded, method=method, token_weights=fixed if masked else None).loss.item()
            )
        assert losses[0] == pytest.approx(losses[1], abs=1e-9), method
