"""From a method's name and the user's changes to a decided recipe: every part and every number of a run."""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from torch import Tensor

from atwu.methods.losses.reduction import shares
from atwu.methods.parts import (
    FORGET_LOSSES,
    HYPERPARAMETERS,
    RETAIN_LOSSES,
    WEIGHTINGS,
    ForgetLoss,
    LossTerms,
    RetainLoss,
    Weighting,
)
from atwu.methods.registry import load_plugins
from atwu.methods.table import METHODS, Method

Combination = Literal["product", "mean_of_ranks"]
_SIGNS: Mapping[str, Combination] = {"*": "product", "+": "mean_of_ranks"}


@dataclass(frozen=True, slots=True)
class Recipe:
    """A method with its parts looked up and every hyperparameter decided."""

    name: str
    weighting: str
    """One name, or two joined by `*` (product) or `+` (mean of their ranks in the row)."""
    forget_loss: str
    retain_loss: str
    values: Mapping[str, float]
    detach_saturation: bool
    legacy: bool = False
    """Losses with a corrected form follow the published code instead."""
    given: frozenset[str] = frozenset()
    """Hyperparameters that the user set."""

    @property
    def weighting_names(self) -> tuple[str, ...]:
        return split_weighting(self.weighting)[0]

    @property
    def weighters(self) -> tuple[Weighting, ...]:
        return tuple(WEIGHTINGS[name] for name in self.weighting_names)

    @property
    def combination(self) -> Combination | None:
        """How two weightings become one."""
        return split_weighting(self.weighting)[1]

    @property
    def forgetter(self) -> ForgetLoss:
        return FORGET_LOSSES[self.forget_loss]

    @property
    def retainer(self) -> RetainLoss | None:
        return RETAIN_LOSSES[self.retain_loss]

    @property
    def needs_retain(self) -> bool:
        return self.retainer is not None

    @property
    def needs_scorer(self) -> bool:
        return any(weighter.needs_scorer for weighter in self.weighters)

    @property
    def needs_labels(self) -> bool:
        return any(weighter.needs_labels for weighter in self.weighters)

    @property
    def needs_alternate(self) -> bool:
        return self.forgetter.needs_alternate

    @property
    def needs_retain_rows(self) -> bool:
        """The retain set is looked at, by the retain loss or by the weighting."""
        return self.needs_retain or any(weighter.needs_retain for weighter in self.weighters)

    @property
    def layered(self) -> bool:
        """Something reads the output of a decoder layer."""
        return self.forgetter.steers or (self.retainer is not None and self.retainer.layer)

    @property
    def needs_head(self) -> bool:
        """Something reads log-probabilities or final hidden states of the model."""
        if not self.forgetter.steers or (self.retainer is not None and not self.retainer.layer):
            return True
        return any(weighter.fixed is None and weighter is not WEIGHTINGS["uniform"] for weighter in self.weighters)

    def layer(self, layers: int) -> int:
        """Index of the decoder layer that is read, for a model with that many.

        Raises:
            ValueError: the layer was set by the user and the model has none of that index.
        """
        layer = int(self.values["layer"])
        if "layer" in self.given and layer >= layers:
            raise ValueError(f"layer must be between 0 and {layers - 1}, the layers of this model, got {layer}.")
        return min(layer, layers - 1)

    def numbers(self, names: tuple[str, ...]) -> dict[str, float]:
        """The values of some hyperparameters."""
        return {name: self.values[name] for name in names}

    def forget_values(self, terms: LossTerms, weights: Tensor) -> Tensor:
        """Forget loss per token, shape (batch, tokens), or per sequence, shape (batch,)."""
        loss = self.forgetter
        if loss.of is None:
            assert terms.distance is not None
            # A distance is minimised, so learned scores would all shrink; as shares of their row only ratios count.
            return (shares(weights, terms.mask) if self.needs_scorer else weights) * terms.distance
        options: dict[str, Any] = self.numbers(loss.hyperparameters)
        if loss.saturates:
            options["detach_saturation"] = self.detach_saturation
        return loss.of(terms, weights, **options)


def split_weighting(text: str) -> tuple[tuple[str, ...], Combination | None]:
    """Names and combination of `a`, `a*b` or `a+b`."""
    signs = [sign for sign in text if sign in _SIGNS]
    if not signs:
        return (text,), None
    return tuple(part.strip() for part in re.split(r"[*+]", text)), _SIGNS[signs[0]]


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
    legacy: bool = False,
    **hyperparameters: float | None,
) -> Recipe:
    """Decide the parts and numbers of a run.

    Args:
        method: a name from `METHODS`; the other arguments replace its parts and values.
        weighting: a name from `WEIGHTINGS`, or two joined by `*` (product) or `+` (mean of their ranks in the row).
        forget_loss: a name from `FORGET_LOSSES`.
        retain_loss: a name from `RETAIN_LOSSES`.
        detach_saturation: see `saturated_ascent`.
        legacy: JensUn as its published code computes it (docs/methods.md).
        hyperparameters: values by name; None means the method's default.

    Raises:
        ValueError: an unknown name, a number the method has no use for, or parts that do not go together.
    """
    load_plugins()
    row: Method = lookup("method", method, METHODS)
    parts = (weighting or row.weighting, forget_loss or row.forget_loss, retain_loss or row.retain_loss)
    names, combination = split_weighting(parts[0])
    if len(names) > 2 or not all(names):
        raise ValueError(f"a combination of weightings is a*b or a+b with two names, got {parts[0]!r}.")
    weighters: list[Weighting] = [lookup("weighting", name, WEIGHTINGS) for name in names]
    forgetter: ForgetLoss = lookup("forget loss", parts[1], FORGET_LOSSES)
    retainer: RetainLoss | None = lookup("retain loss", parts[2], RETAIN_LOSSES)
    _check_parts(parts, weighters, combination, forgetter)
    used = ["forget_weight", *(["retain_weight"] if retainer is not None else [])]
    used += [name for weighter in weighters for name in weighter.hyperparameters]
    used += [*forgetter.hyperparameters, *(["layer"] if retainer is not None and retainer.layer else [])]
    used = list(dict.fromkeys(used))
    given = {name: value for name, value in hyperparameters.items() if value is not None}
    for name, value in given.items():
        number = lookup("hyperparameter", name, HYPERPARAMETERS)
        if name not in used:
            raise ValueError(f"method {method!r} ({' x '.join(parts)}) has no {name!r}; it takes {', '.join(used)}.")
        if not (value > 0 if number.positive or _divides(name, forgetter) else value >= 0) or value == float("inf"):
            least = "> 0" if number.positive or _divides(name, forgetter) else ">= 0"
            raise ValueError(f"{name} must be a finite number {least}, got {value}.")
    values = {name: float(given.get(name, row.defaults.get(name, HYPERPARAMETERS[name].default))) for name in used}
    changed = parts != (row.weighting, row.forget_loss, row.retain_loss)
    name = " x ".join(parts[:2]) if changed else method
    return Recipe(name, *parts, values, detach_saturation, legacy, frozenset(given))


def _check_parts(
    parts: tuple[str, str, str], weighters: list[Weighting], combination: Combination | None, forgetter: ForgetLoss
) -> None:
    if len(weighters) == 2 and all(weighter.needs_scorer for weighter in weighters):
        raise ValueError(f"there is one scorer per run; {parts[0]!r} names it twice.")
    if combination == "mean_of_ranks" and any(weighter.needs_scorer for weighter in weighters):
        raise ValueError(f"ranks of a learned score carry no gradient; use 'scorer*...' instead of {parts[0]!r}.")
    if forgetter.reduction == "selected" and any(weighter.fixed is None for weighter in weighters):
        raise ValueError(
            f"forget loss {parts[1]!r} averages over a fixed selection of tokens; weighting {parts[0]!r} has none."
        )
    if forgetter.on_alternate and parts[0] != "uniform":
        raise ValueError(f"forget loss {parts[1]!r} learns another answer, whose tokens {parts[0]!r} does not weigh.")


def _divides(name: str, forgetter: ForgetLoss) -> bool:
    """Preference losses divide by beta."""
    return name == "beta" and forgetter.reduction == "sequences"
