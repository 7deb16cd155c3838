"""From a method's name and the user's changes to a decided recipe: every part, with every number of a run."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, TypeVar

from atwu._names import lookup
from atwu.methods.component import (
    NEEDS,
    Component,
    FixedWeighting,
    ForgetLoss,
    PreserveLoss,
    RetainLoss,
    TermWeights,
    Weighting,
)
from atwu.methods.component_options import ComponentOption, options_of_component
from atwu.methods.components import FORGET_LOSSES, PRESERVE_LOSSES, RETAIN_LOSSES, WEIGHTINGS, component_options
from atwu.methods.configurations import CONFIGURATIONS
from atwu.methods.functions import check_same, forget_loss_of, name_of, weighting_of
from atwu.methods.method_table import METHODS, Method
from atwu.methods.plugins import load_plugins
from atwu.methods.weightings.learned import LearnedScores

if TYPE_CHECKING:
    from atwu.methods.weightings.combine import Combination
    from atwu.modeling.reference import ReferenceSpec

_SIGNS: Mapping[str, Combination] = {"*": "product", "+": "mean_of_ranks"}
P = TypeVar("P", bound=Component)


@dataclass(frozen=True, slots=True)
class Recipe:
    """A method with its parts made and every number decided."""

    name: str
    weighting: str
    """One name, or two joined by `*` (product) or `+` (mean of their ranks in the row)."""
    forget_loss: str
    retain_loss: str
    factors: TermWeights
    weighters: tuple[Weighting, ...]
    forgetter: ForgetLoss
    retainer: RetainLoss | None
    preserve: str = "none"
    preserver: PreserveLoss | None = None
    given: frozenset[str] = frozenset()
    """Options that the user set."""

    @property
    def parts(self) -> tuple[Component, ...]:
        return (self.factors, *self.weighters, self.forgetter, *filter(None, [self.retainer, self.preserver]))

    @property
    def options(self) -> dict[str, ComponentOption]:
        """Every option that counts here: numbers first, then settings, each in the order of the parts."""
        taken = _taken(self.parts, learned=self.scores is not None, retained=self.retainer is not None)
        found = {name: options[-1] for name, options in taken.items()}
        return dict(sorted(found.items(), key=lambda entry: not entry[1].number))

    @property
    def values(self) -> dict[str, float]:
        """The numbers of the method by name."""
        return {name: self._value(name) for name, option in self.options.items() if option.number}

    @property
    def settings(self) -> dict[str, Any]:
        """How its parts do it, by name; what is None is left out."""
        found = {name: self._value(name) for name, option in self.options.items() if not option.number}
        return {name: value for name, value in found.items() if value is not None}

    def _value(self, name: str) -> Any:
        return next(getattr(part, name) for part in self.parts if hasattr(part, name))

    def as_plain(self) -> dict[str, Any]:
        """As plain JSON, for `run.json`."""
        names = ("name", "weighting", "forget_loss", "retain_loss", "values", "settings")
        plain = {name: getattr(self, name) for name in names}
        plain |= {} if self.preserver is None else {"preserve": self.preserve}
        return plain | {"given": sorted(self.given)}

    @property
    def weighting_names(self) -> tuple[str, ...]:
        return split_weighting(self.weighting)[0]

    @property
    def combination(self) -> Combination | None:
        """How two weightings become one."""
        return split_weighting(self.weighting)[1]

    @property
    def scores(self) -> LearnedScores | None:
        """The learned weighting, or None for a method without one."""
        return next((weighter for weighter in self.weighters if isinstance(weighter, LearnedScores)), None)

    @property
    def needs(self) -> tuple[str, ...]:
        """What it needs besides forget rows: keys of `NEEDS`."""
        asked = {need for part in self.parts for need in part.needs}
        return tuple(need for need in NEEDS if need in asked)

    @property
    def everywhere(self) -> frozenset[str]:
        """Sets of rows of which every position is counted: where distributions are compared, no token has to be known."""
        if not self.forgetter.everywhere:
            return frozenset()
        compares = self.retainer is not None and "reference_distributions" in self.retainer.needs
        return frozenset({"forget", "retain"} if compares else {"forget"})

    @property
    def entropy_temperature(self) -> float | None:
        """Temperature of the entropy that a weighting looks at, or None."""
        return next((t for weighter in self.weighters if (t := weighter.entropy_temperature) is not None), None)

    @property
    def reads_head(self) -> bool:
        """Something reads log-probabilities or final hidden states of the model."""
        kept = self.retainer is not None and self.retainer.reads_head
        return (
            kept
            or self.preserver is not None
            or self.forgetter.reads_head
            or any(weighter.reads_head for weighter in self.weighters)
        )

    def layer(self, layers: int) -> int | None:
        """Index of the decoder layer that is read, for a model with that many; None when none is.

        Raises:
            ValueError: the layer was set by the user and the model has none of that index.
        """
        read = next((layer for part in self.parts if (layer := part.reads_layer(layers)) is not None), None)
        if read is not None and "layer" in self.given and self.values["layer"] >= layers:
            asked = int(self.values["layer"])
            raise ValueError(f"layer must be between 0 and {layers - 1}, the layers of this model, got {asked}.")
        return read

    @property
    def layered(self) -> bool:
        """Something reads the output of a decoder layer."""
        return self.layer(1 << 30) is not None

    def wanted(self, layers: int) -> dict[str, ReferenceSpec]:
        """What of the starting model the losses need in every step, by set of rows.

        Args:
            layers: decoder layers of the model.
        """
        from atwu.modeling.reference import ReferenceSpec

        found = self.forgetter.wanted()
        if self.preserver is not None and (spec := self.preserver.wanted()) is not None:
            known = found.get("forget", ReferenceSpec())
            found = {**found, "forget": ReferenceSpec(logps=known.logps, states=known.states or spec.states)}
        kept = None if self.retainer is None else self.retainer.wanted(layers)
        return found if kept is None else {**found, "retain": kept}


def split_weighting(text: str) -> tuple[tuple[str, ...], Combination | None]:
    """Names and combination of `a`, `a*b` or `a+b`."""
    signs = [sign for sign in text if sign in _SIGNS]
    if not signs:
        return (text,), None
    return tuple(part.strip() for part in re.split(r"[*+]", text)), _SIGNS[signs[0]]


def named_component(kind: Literal["weighting", "forget loss"], part: str | Callable[..., Any]) -> str:
    """The name of a part; a plain function is added to the table under its own."""
    if isinstance(part, str):
        return part
    name = name_of(part)
    if kind == "weighting":
        check_same(WEIGHTINGS.setdefault(name, weighting_of(part)), part)
    else:
        check_same(FORGET_LOSSES.setdefault(name, forget_loss_of(part)), part)
    return name


def recipe(
    method: str,
    *,
    weighting: str | Callable[..., Any] | None = None,
    forget_loss: str | Callable[..., Any] | None = None,
    retain_loss: str | None = None,
    preserve: str | None = None,
    configuration: str = "ours",
    **options: Any,
) -> Recipe:
    """Decide the parts and numbers of a run.

    Args:
        method: a name from `METHODS`; the other arguments replace its parts and values.
        weighting: a name from `WEIGHTINGS`, or two joined by `*` (product) or `+` (mean of their ranks in the row); or a
            function (`atwu.methods.functions`).
        forget_loss: a name from `FORGET_LOSSES`, or a function.
        retain_loss: a name from `RETAIN_LOSSES`.
        preserve: a name from `PRESERVE_LOSSES`; none by default.
        configuration: a name from `CONFIGURATIONS`: values of settings that are not given.
        options: numbers and settings of the parts by name; None means not given.

    Raises:
        ValueError: an unknown name, a number the method has no use for, or parts that do not go together.
    """
    load_plugins()
    row: Method = lookup("method", method, METHODS)
    named = (
        named_component("weighting", weighting or row.weighting),
        named_component("forget loss", forget_loss or row.forget_loss),
    )
    parts = (*named, retain_loss or row.retain_loss)
    names, combination = split_weighting(parts[0])
    if len(names) > 2 or not all(names):
        raise ValueError(f"a combination of weightings is a*b or a+b with two names, got {parts[0]!r}.")
    weighters: list[type[Weighting]] = [lookup("weighting", name, WEIGHTINGS) for name in names]
    forgetter: type[ForgetLoss] = lookup("forget loss", parts[1], FORGET_LOSSES)
    retainer: type[RetainLoss] | None = lookup("retain loss", parts[2], RETAIN_LOSSES)
    preserver: type[PreserveLoss] | None = lookup("preserve loss", preserve or "none", PRESERVE_LOSSES)
    _check_parts(parts, weighters, combination, forgetter)
    if preserver is not None:
        _check_preserve(preserver, parts, forgetter)
    classes: list[type[Component]] = [TermWeights, *weighters, forgetter, *filter(None, [retainer, preserver])]
    taken = _taken(classes, learned=LearnedScores in weighters, retained=retainer is not None)
    given = {name: value for name, value in options.items() if value is not None}
    _check_given(given, taken, f"method {method!r} ({' x '.join(parts)})")
    start = {**lookup("configuration", configuration, CONFIGURATIONS), **row.defaults, **given}
    values = {name: value for name, value in start.items() if name in taken}
    changed = parts != (row.weighting, row.forget_loss, row.retain_loss)
    name = " x ".join(parts[: 2 if parts[2] == "nll" else 3]) if changed else method
    made = Recipe(
        name if preserver is None else f"{name} + preserve {preserve}",
        *parts,
        factors=_make(TermWeights, values),
        weighters=tuple(_make(weighter, values) for weighter in weighters),
        forgetter=_make(forgetter, values),
        retainer=None if retainer is None else _make(retainer, values),
        preserve=preserve or "none",
        preserver=None if preserver is None else _make(preserver, values),
        given=frozenset(given) & frozenset(taken),
    )
    if made.everywhere and "labels" in made.needs:
        raise ValueError(
            f"{made.name!r} with legacy=True counts every position, and forget_spans are known of answers alone; set "
            "legacy=False, or leave the labels out."
        )
    return made


def _taken(
    parts: Iterable[Component | type[Component]], *, learned: bool, retained: bool
) -> dict[str, list[ComponentOption]]:
    """Every option that counts under some parts, as each part that takes it has it."""
    found: dict[str, list[ComponentOption]] = {}
    for part in parts:
        for option in options_of_component(part):
            if (learned or not option.learned) and (retained or option.name != "retain_weight"):
                found.setdefault(option.name, []).append(option)
    return found


def _check_given(given: Mapping[str, Any], taken: Mapping[str, list[ComponentOption]], who: str) -> None:
    known = component_options()
    for name, value in given.items():
        if name in taken:
            for option in taken[name]:
                option.checked(value)
            continue
        option = lookup("option", name, known)
        if option.number:
            numbers = [each for each, (first, *_) in taken.items() if first.number]
            raise ValueError(f"{who} has no {name!r}; it takes {', '.join(numbers)}.")
        if option.refused and value != option.default:
            raise ValueError(f"{name} is for methods with learned weights; {who} has none.")


def _make(part: type[P], values: Mapping[str, Any]) -> P:
    """The part with its options set, numbers as float."""
    own = {option.name: option for option in options_of_component(part)}
    chosen = {name: own[name].checked(value) for name, value in values.items() if name in own}
    defaults = {name: float(option.default) for name, option in own.items() if option.number and name not in chosen}
    return part(**defaults, **chosen)


def _check_parts(
    parts: tuple[str, str, str],
    weighters: list[type[Weighting]],
    combination: Combination | None,
    forgetter: type[ForgetLoss],
) -> None:
    learned = sum(issubclass(weighter, LearnedScores) for weighter in weighters)
    if learned == 2:
        raise ValueError(f"there is one scorer per run; {parts[0]!r} names it twice.")
    if combination == "mean_of_ranks" and learned:
        raise ValueError(f"ranks of a learned score carry no gradient; use 'scorer*...' instead of {parts[0]!r}.")
    if forgetter.reduction == "selected" and not all(issubclass(weighter, FixedWeighting) for weighter in weighters):
        raise ValueError(
            f"forget loss {parts[1]!r} averages over a fixed selection of tokens; weighting {parts[0]!r} has none."
        )
    if forgetter.learns == "alternate" and parts[0] != "uniform":
        raise ValueError(f"forget loss {parts[1]!r} learns another answer, whose tokens {parts[0]!r} does not weigh.")


def _check_preserve(preserver: type[PreserveLoss], parts: tuple[str, str, str], forgetter: type[ForgetLoss]) -> None:
    """Refuse a preserve loss where nothing is spared or where the forget loss leaves no answer token to read."""
    if parts[0] == "uniform":
        raise ValueError(
            "preserve needs a token weighting: 'uniform' gives every token weight 1 and spares none; give weighting, "
            "such as rare_nouns or scorer."
        )
    if forgetter.learns == "alternate" or not forgetter.reads_head:
        raise ValueError(f"preserve reads the tokens of the forget answers, which forget loss {parts[1]!r} does not.")
    if "reference_distributions" in preserver.needs and forgetter.comparison is not ForgetLoss.comparison:
        raise ValueError(
            f"forget loss {parts[1]!r} compares distributions on forget rows itself; take preserve='nll', or another "
            "forget loss such as satga."
        )
