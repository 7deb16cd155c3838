"""The table of methods: each is a token weighting x a forget loss x a retain loss, with published defaults.

A new token weighting or forget loss is one function and one entry here; a new method is one row of `METHODS`.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from torch import Tensor

from atwu.losses import likelihood
from atwu.weighting import probability


@dataclass(frozen=True, slots=True)
class Hyperparameter:
    """A number that some methods take."""

    help: str
    default: float
    search: tuple[float, float]
    """Published search range."""


HYPERPARAMETERS: Mapping[str, Hyperparameter] = {
    "forget_weight": Hyperparameter("gamma: factor on the forget loss; larger forgets more", 1.0, (0.1, 5.0)),
    "retain_weight": Hyperparameter("alpha: factor on the retain loss; larger keeps more", 1.0, (0.1, 5.0)),
    "beta": Hyperparameter("saturation exponent; larger lets go of a forgotten token earlier", 1.0, (0.1, 10.0)),
    "beta1": Hyperparameter("SatImp's saturation exponent", 5.0, (1.0, 10.0)),
    "beta2": Hyperparameter("importance exponent; larger concentrates on unlikely tokens", 1.0, (0.1, 5.0)),
    "temperature": Hyperparameter("temperature of the entropy weights; large is uniform", 1.0, (0.1, 4.0)),
}


@dataclass(frozen=True, slots=True)
class ForgetLoss:
    """A token-wise forget loss: per-token values of (logps, weights), and how they are averaged."""

    per_token: Callable[..., Tensor]
    summary: str
    hyperparameters: tuple[str, ...] = ()
    saturates: bool = False
    """Takes `detach_saturation`."""
    over_selected: bool = False
    """Divide by the total weight instead of the number of tokens."""


@dataclass(frozen=True, slots=True)
class Weighting:
    """A token weighting; `of` maps what it needs to weights of shape (batch, tokens)."""

    of: Callable[..., Tensor] | None
    summary: str
    hyperparameters: tuple[str, ...] = ()
    needs_entropy: bool = False
    needs_labels: bool = False
    needs_scorer: bool = False


FORGET_LOSSES: Mapping[str, ForgetLoss] = {
    "ga": ForgetLoss(likelihood.gradient_ascent, "w log p, mean over tokens"),
    "masked_ga": ForgetLoss(likelihood.gradient_ascent, "w log p, mean over selected tokens", over_selected=True),
    "satga": ForgetLoss(likelihood.saturated_ascent, "w p^beta log p", ("beta",), saturates=True),
    "satga_plus": ForgetLoss(likelihood.modulated_ascent, "w p^(beta w) log p", ("beta",), saturates=True),
}

WEIGHTINGS: Mapping[str, Weighting] = {
    "uniform": Weighting(probability.uniform, "1 for every token"),
    "saturation": Weighting(probability.saturation, "p^beta", ("beta",)),
    "importance": Weighting(probability.importance, "(1 - p)^beta2", ("beta2",)),
    "satimp": Weighting(probability.satimp, "p^beta1 (1 - p)^beta2", ("beta1", "beta2")),
    "entropy": Weighting(probability.entropy_share, "n H / sum H", ("temperature",), needs_entropy=True),
    "labels": Weighting(None, "1 on annotated secret tokens, else 0", needs_labels=True),
    "scorer": Weighting(None, "learned: sigmoid(<w, h> + b)", needs_scorer=True),
}

RETAIN_LOSSES: Mapping[str, str] = {"nll": "negative log-likelihood of retain answers", "none": "no retain term"}


@dataclass(frozen=True, slots=True)
class Method:
    """One row of the table."""

    title: str
    weighting: str
    forget_loss: str
    retain_loss: str
    cite: str
    defaults: Mapping[str, float] = field(default_factory=dict)
    """Published tuned values (TOFU forget10, Llama-3.2-1B)."""
    borrowed: bool = False
    """No values were published for this method; `defaults` are those of its closest relative."""

    @property
    def needs_scorer(self) -> bool:
        return WEIGHTINGS[self.weighting].needs_scorer

    @property
    def needs_labels(self) -> bool:
        return WEIGHTINGS[self.weighting].needs_labels

    @property
    def needs_retain(self) -> bool:
        return self.retain_loss != "none"


_WGA = {"forget_weight": 1.16, "retain_weight": 0.79, "beta": 2.14}
_DIFF = {"forget_weight": 0.12, "retain_weight": 0.80}
_ATWU = {"forget_weight": 3.0, "retain_weight": 0.5}

METHODS: Mapping[str, Method] = {
    "grad_ascent": Method("GradAscent", "uniform", "ga", "none", "Jang et al. 2023"),
    "grad_diff": Method("GradDiff", "uniform", "ga", "nll", "Liu et al. 2022", _DIFF),
    "wga": Method("WGA", "saturation", "ga", "nll", "Wang et al. 2025", _WGA),
    "satimp": Method(
        "SatImp",
        "satimp",
        "ga",
        "nll",
        "Yang et al. 2025",
        {"forget_weight": 0.87, "retain_weight": 0.49, "beta1": 1.43, "beta2": 0.17},
    ),
    "satga": Method("SatGA", "uniform", "satga", "nll", "Wang et al. 2025", _WGA, borrowed=True),
    "gt_ga": Method("GT-GA", "labels", "masked_ga", "nll", "ATWU paper", _DIFF, borrowed=True),
    "gt_satga": Method("GT-SatGA", "labels", "satga", "nll", "ATWU paper", _ATWU | {"beta": 7.0}, borrowed=True),
    "atwu_ga": Method("ATWU-GA", "scorer", "ga", "nll", "ATWU paper", _ATWU, borrowed=True),
    "atwu_satga": Method("ATWU-SatGA", "scorer", "satga", "nll", "ATWU paper", _ATWU | {"beta": 7.0}, borrowed=True),
    "atwu": Method("ATWU", "scorer", "satga_plus", "nll", "ATWU paper", _ATWU | {"beta": 7.0}),
}


@dataclass(frozen=True, slots=True)
class Recipe:
    """A method with its parts looked up and every hyperparameter decided."""

    name: str
    weighting: str
    forget_loss: str
    retain_loss: str
    values: Mapping[str, float]
    detach_saturation: bool

    @property
    def weighter(self) -> Weighting:
        return WEIGHTINGS[self.weighting]

    @property
    def forgetter(self) -> ForgetLoss:
        return FORGET_LOSSES[self.forget_loss]

    @property
    def needs_retain(self) -> bool:
        return self.retain_loss != "none"

    def forget_values(self, logps: Tensor, weights: Tensor) -> Tensor:
        """Per-token forget loss, same shape as `logps`."""
        options: dict[str, Any] = {name: self.values[name] for name in self.forgetter.hyperparameters}
        if self.forgetter.saturates:
            options["detach_saturation"] = self.detach_saturation
        return self.forgetter.per_token(logps, weights, **options)


def lookup(kind: str, name: str, table: Mapping[str, Any]) -> Any:
    """`table[name]`, with an error that names what is allowed and the closest entry."""
    if name in table:
        return table[name]
    close = difflib.get_close_matches(name, table, n=1)
    hint = f" Did you mean {close[0]!r}?" if close else ""
    raise ValueError(f"unknown {kind} {name!r}; choose from {', '.join(table)}.{hint}")


def recipe(
    method: str,
    *,
    weighting: str | None = None,
    forget_loss: str | None = None,
    retain_loss: str | None = None,
    detach_saturation: bool = True,
    **hyperparameters: float | None,
) -> Recipe:
    """Decide the parts and numbers of a run.

    Args:
        method: a name from `METHODS`; the other arguments replace its parts and values.
        weighting: a name from `WEIGHTINGS`.
        forget_loss: a name from `FORGET_LOSSES`.
        retain_loss: a name from `RETAIN_LOSSES`.
        detach_saturation: see `saturated_ascent`.
        hyperparameters: values by name; None means the method's default.

    Raises:
        ValueError: an unknown name, a number the method has no use for, or parts that do not go together.
    """
    row: Method = lookup("method", method, METHODS)
    parts = (weighting or row.weighting, forget_loss or row.forget_loss, retain_loss or row.retain_loss)
    weighter: Weighting = lookup("weighting", parts[0], WEIGHTINGS)
    forgetter: ForgetLoss = lookup("forget loss", parts[1], FORGET_LOSSES)
    lookup("retain loss", parts[2], RETAIN_LOSSES)
    if forgetter.over_selected and not weighter.needs_labels:
        raise ValueError(
            f"forget loss {parts[1]!r} averages over a fixed 0/1 selection; weighting {parts[0]!r} has none."
        )
    used = ["forget_weight", *(["retain_weight"] if parts[2] != "none" else [])]
    used += [name for name in (*weighter.hyperparameters, *forgetter.hyperparameters) if name not in used]
    given = {name: value for name, value in hyperparameters.items() if value is not None}
    for name, value in given.items():
        lookup("hyperparameter", name, HYPERPARAMETERS)
        if name not in used:
            raise ValueError(f"method {method!r} ({' x '.join(parts)}) has no {name!r}; it takes {', '.join(used)}.")
        if not 0 <= value < float("inf") or (name == "temperature" and value == 0):
            raise ValueError(
                f"{name} must be a finite number {'> 0' if name == 'temperature' else '>= 0'}, got {value}."
            )
    values = {name: float(given.get(name, row.defaults.get(name, HYPERPARAMETERS[name].default))) for name in used}
    changed = parts != (row.weighting, row.forget_loss, row.retain_loss)
    return Recipe("+".join(parts[:2]) if changed else method, *parts, values, detach_saturation)
