"""Candidates that compare gradients or fit a linear layer, on precomputed hidden states.

`CONFLICT`: agreement of the gradient of a token's loss at the output layer, e h^T with e = p - onehot, with that of
retain rows; no backward pass is needed, since <e h^T, e' h'^T> = <e, e'> <h, h'>. `scorer`: trained on a frozen target without
labels. `distill`: a linear layer fitted to another candidate. `probe`, as an upper bound: fitted to labels of other subjects.
"""

from __future__ import annotations

import functools

import numpy as np
import torch
from rows import LAYERS, UNIT, Counts, load
from scipy.stats import rankdata

from atwu.evaluation.linear_probe import fit_probe, subject_folds
from atwu.methods.weightings.token_scorer import TokenScorer, scorer_objective


def errors(reading, place):
    """p - onehot at every answer token, (tokens, vocabulary); the target's entry without cancellation."""
    every = reading.logprobs(place)
    targets = reading.targets[place][:, None]
    return every.exp().scatter(1, targets, every.gather(1, targets).expm1())


def gradients_of(reading):
    states = reading.features()
    return ((errors(reading, place), states[place]) for place in range(len(states)))


@functools.cache
def agreement(rows, among):
    """For every token's gradient: its inner product with the normalized sum over the rows named by `among`, its
    norm, and the maximum and mean square of its cosines with single tokens of every fourth row.
    """
    total, parts = 0.0, []
    for place, (error, state) in enumerate(gradients_of(getattr(rows, among))):
        total = total + error.T @ state
        if place % 4 == 0:
            parts.append((error, state))
    total = total / total.norm()
    other_errors, other_states = (unit(torch.cat(each)) for each in zip(*parts, strict=True))
    found = []
    for error, state in gradients_of(rows.target):
        inner, size = (error @ total * state).sum(dim=1), error.norm(dim=1) * state.norm(dim=1)
        cosine = (unit(error) @ other_errors.T) * (unit(state) @ other_states.T)
        largest, square = cosine.max(dim=1).values, cosine.square().mean(dim=1)
        found.append({"inner": inner, "size": size, "largest": largest, "square": square})
    return [{name: values.double().numpy() for name, values in row.items()} for row in found]


def unit(vectors):
    return torch.nn.functional.normalize(vectors, dim=1)


def overlap(among, how):
    return lambda rows: [how(row) for row in agreement(rows, among)]


CONFLICT = {
    "gradient's size": overlap("known", lambda one: one["size"]),
    "against known rows": overlap("known", lambda one: -one["inner"]),
    "against known rows, cosine": overlap("known", lambda one: -one["inner"] / one["size"]),
    "against known rows, |cosine|": overlap("known", lambda one: -abs(one["inner"] / one["size"])),
    "against unknown rows": overlap("unknown", lambda one: -one["inner"]),
    "against unknown rows, cosine": overlap("unknown", lambda one: -one["inner"] / one["size"]),
    "against unknown rows, |cosine|": overlap("unknown", lambda one: -abs(one["inner"] / one["size"])),
    "nearest known token": overlap("known", lambda one: -one["largest"]),
    "nearest unknown token": overlap("unknown", lambda one: -one["largest"]),
    "all unknown tokens, squared": overlap("unknown", lambda one: -one["square"]),
}


def features(rows, layers, position, reading="target", *, scaled=False):
    read = getattr(rows, reading)
    found = [
        torch.cat(parts, dim=1) for parts in zip(*(read.features(layer, position) for layer in layers), strict=True)
    ]
    if not scaled:
        return found
    everything = torch.cat(found)
    mean, deviation = everything.mean(dim=0), everything.std(dim=0).clamp(min=1e-6)
    return [(row - mean) / deviation for row in found]


def scorer(*, layers=LAYERS[-1:], position="pred", scaled=False, rate=0.05, updates=25, budget_of_row=False, l2=1.0):
    """The scorer as `--learning-rate 0 --scorer-min-updates` trains it: hyperparameters of tofu-1b/atwu, batches of 32 rows."""

    def candidate(rows):
        seen = features(rows, layers, position, scaled=scaled)
        logps = [torch.tensor(values).float() for values in rows.target.logps]
        share = torch.tensor(new_words(rows) if budget_of_row else [0.2] * len(seen))
        model = TokenScorer(seen[0].shape[1])
        optimizer = torch.optim.SGD(model.parameters(), lr=rate, momentum=0.9, weight_decay=1e-4)
        generator = torch.Generator().manual_seed(0)
        for update in range(updates):
            batch = torch.randperm(len(seen), generator=generator)[:32].tolist()
            lengths = torch.tensor([len(seen[place]) for place in batch])
            scores = model(torch.cat([seen[place] for place in batch]))
            answer_logps = torch.cat([logps[place] for place in batch])
            objective = scorer_objective(
                scores,
                torch.repeat_interleave(torch.arange(len(batch)), lengths),
                forget=(scores * (7.0 * scores * answer_logps).detach().exp() * answer_logps).mean(),
                lambda_entropy=1.0,
                lambda_budget=10.0,
                budget="ste",
                rho=share[batch],
            )
            optimizer.zero_grad()
            (objective + l2 * model.squared_norm()).backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.param_groups[0]["lr"] = rate * (1 - update / updates)
            optimizer.step()
        with torch.no_grad():
            return [model.linear(row).squeeze(1).double().numpy() for row in seen]  # logits: scores may all round to 0

    return candidate


def new_words(rows):
    """Per row, the share of answer tokens whose word is rare among retain rows and not in the question."""
    counts = Counts(word.lower() for row in rows.pool for word in UNIT.findall(row.answer))
    limit = np.log(counts.total + 1) - np.log(6)  # at most five times
    shares = []
    for place, (where, words) in enumerate(rows.words):
        rare = np.append(counts.surprise([word.lower() for word in words]) >= limit, False)[where]
        shares.append(float((rare & ~rows.in_question(place)).mean()))
    return shares


def distill(teacher, *, layers=LAYERS[-1:], position="pred", reading="target", ridge=1.0):
    """Ridge regression of a candidate's ranks on hidden states, with `ridge` times the number of tokens; uses no
    labels."""

    def candidate(rows):
        seen = features(rows, layers, position, reading, scaled=True)
        wanted = torch.cat([torch.tensor((rankdata(row) - 0.5) / len(row) - 0.5).float() for row in teacher(rows)])
        x = torch.cat(seen)
        weight = torch.linalg.solve(x.T @ x + ridge * len(x) * torch.eye(x.shape[1]), x.T @ wanted)
        return [(row @ weight).double().numpy() for row in seen]

    return candidate


def probe(layers, position):
    """Upper bound: logistic regression on labels, five folds of subjects."""

    def candidate(rows):
        seen = [row.numpy() for row in features(rows, layers, position)]
        found = [np.empty(0)] * len(seen)
        for train, held_out in subject_folds([example.subject for example in rows.examples], folds=5, seed=0):
            fitted = fit_probe(
                np.concatenate([seen[at] for at in train]), np.concatenate([rows.labels[at] for at in train]), l2=0.01
            )
            for at in held_out:
                found[at] = fitted.decision_function(seen[at])
        return found

    return candidate


def transferred(layers, position):
    """The probe on the model before fine-tuning, fitted to labels of the other benchmark: people for TOFU, TOFU's
    authors for people."""

    def candidate(rows):
        other = load("authors" if rows.name == "people" else "people", {"tofu": None, "people": None})
        shown = torch.cat(features(other, layers, position, "base")).numpy()
        fitted = fit_probe(shown, np.concatenate(other.labels), l2=0.01)
        return [fitted.decision_function(row.numpy()) for row in features(rows, layers, position, "base")]

    return candidate
