"""Resolve a method name and the user's changes to a recipe: all components with all hyperparameters of a run."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

from atwu._names import lookup
from atwu.methods.component import (
    Component,
    ComponentOption,
    FixedWeighting,
    ForgetLoss,
    Loss,
    PreserveLoss,
    RetainLoss,
    RowsName,
    TermWeights,
    Weighting,
    options_of_component,
)
from atwu.methods.component_registry import (
    FORGET_LOSSES,
    PRESERVE_LOSSES,
    REPLACEMENT_LOSSES,
    RETAIN_LOSSES,
    WEIGHTINGS,
    component_options,
    load_plugins,
)
from atwu.methods.losses.likelihood import ReplacementLoss
from atwu.methods.method_table import METHODS, Method
from atwu.methods.weightings.model_based import LearnedScores

if TYPE_CHECKING:
    from atwu.methods.weightings.model_based import Combination
    from atwu.modeling.reference import ReferenceSpec

CONFIGURATIONS: Mapping[str, Mapping[str, Any]] = {
    "ours": {},
    "authors": {"hidden_position": "own", "score_scale": 2.0, "legacy": True},
    # Where the paper's text and its code differ, `authors` has the code.
    "paper": {
        "hidden_position": "own",
        "scorer_bias": False,
        "detach_saturation": False,
        "budget": "soft",
        "lambda_budget": 15.0,
        "scorer_gamma": "forget_weight",
        "scorer_schedule": "constant",
    },
}
"""Configuration -> values that differ from the options' defaults. `authors` follows the published code, `paper` the text of
the paper (both average losses over the whole optimizer step). `ours` uses the corrected JensUn loss, unscaled scores, and
scores read from the predicting state, which identified key tokens better in every measurement (people-weighted-methods.md and
tofu-scorer.md in benchmarks/results)."""

_SIGNS: Mapping[str, Combination] = {"*": "product", "+": "mean_of_ranks"}
P = TypeVar("P", bound=Component)


@dataclass(frozen=True, slots=True)
class Recipe:
    name: str
    weighting: str
    """One name, or two names joined by `*` (product) or `+` (mean of ranks within the row)."""
    forget_loss: str
    retain_loss: str
    factors: TermWeights
    weighting_components: tuple[Weighting, ...]
    forget_component: ForgetLoss
    retain_component: RetainLoss | None
    preserve: str = "none"
    preserve_component: PreserveLoss | None = None
    replacement: str = "none"
    replacement_component: ReplacementLoss | None = None
    user_options: frozenset[str] = frozenset()

    @property
    def components(self) -> tuple[Component, ...]:
        optional = (self.retain_component, self.preserve_component, self.replacement_component)
        others = (component for component in optional if component is not None)
        return (self.factors, *self.weighting_components, self.forget_component, *others)

    @property
    def options(self) -> dict[str, ComponentOption]:
        """All options of this method: hyperparameters first, then settings, each in the order of the components."""
        taken = _taken(self.components, learned=self.scores is not None, retained=self.retain_component is not None)
        # Of a name that two components declare, the help of the later one: the loss, not the weighting.
        options = {name: declared[-1] for name, declared in taken.items()}
        return dict(sorted(options.items(), key=lambda entry: not entry[1].number))

    @property
    def values(self) -> dict[str, float]:
        return {name: self._value(name) for name, option in self.options.items() if option.number}

    @property
    def settings(self) -> dict[str, Any]:
        """Settings of the components by name, without those that are None."""
        values = {name: self._value(name) for name, option in self.options.items() if not option.number}
        return {name: value for name, value in values.items() if value is not None}

    def _value(self, name: str) -> Any:
        # Components that share an option have the same value of it.
        return next(getattr(component, name) for component in self.components if hasattr(component, name))

    def as_plain(self) -> dict[str, Any]:
        """Return the recipe as JSON-compatible data for `run.json`."""
        names = ["name", "weighting", "forget_loss", "retain_loss", "values", "settings"]
        # Most methods have neither, and the record of a run names what it has.
        names += [name for name in ("preserve", "replacement") if getattr(self, name) != "none"]
        plain = {name: getattr(self, name) for name in names}
        return plain | {"given": sorted(self.user_options)}

    def forget_only(self) -> Recipe:
        return dataclasses.replace(
            self,
            retain_loss="none",
            retain_component=None,
            preserve="none",
            preserve_component=None,
            replacement="none",
            replacement_component=None,
        )

    @property
    def weighting_names(self) -> tuple[str, ...]:
        return split_weighting(self.weighting)[0]

    @property
    def combination(self) -> Combination | None:
        """How two weightings are combined; None for a single one."""
        return split_weighting(self.weighting)[1]

    @property
    def scores(self) -> LearnedScores | None:
        """The learned weighting, or None for a method without one."""
        return next(
            (weighting for weighting in self.weighting_components if isinstance(weighting, LearnedScores)), None
        )

    @property
    def needs(self) -> tuple[str, ...]:
        """What the method needs besides forget rows, in words and each once."""
        return tuple(dict.fromkeys(words for component in self.components for words in component.needs()))

    @property
    def reads_retain(self) -> bool:
        return any(component.reads_retain for component in self.components)

    @property
    def reads_labels(self) -> bool:
        return any(component.reads_labels for component in self.components)

    @property
    def original(self) -> frozenset[str]:
        """What the losses read of the original model in every step."""
        losses = (component for component in self.components if isinstance(component, Loss))
        return frozenset(output for loss in losses for output in loss.original)

    @property
    def auxiliary(self) -> dict[str, RowsName]:
        """Options that name further models, with the rows that each is fine-tuned on where none is given."""
        fixed = (weighting for weighting in self.weighting_components if isinstance(weighting, FixedWeighting))
        return {option: rows for weighting in fixed for option, rows in weighting.auxiliary.items()}

    @property
    def reads_original(self) -> bool:
        """Whether a weighting reads rows with the original model before training."""
        fixed = (weighting for weighting in self.weighting_components if isinstance(weighting, FixedWeighting))
        return any(weighting.reads_original for weighting in fixed)

    @property
    def answering(self) -> ForgetLoss | ReplacementLoss | None:
        """The loss that reads other answers to the forget questions, or None."""
        losses = (self.forget_component, self.replacement_component)
        return next((loss for loss in losses if loss is not None and loss.reads_alternates), None)

    @property
    def prefers_as_written(self) -> bool:
        """Whether a loss reads answers that belong to each question as it is written."""
        losses = (self.answering, self.retain_component)
        return any(loss is not None and loss.from_column for loss in losses)

    @property
    def changes_questions(self) -> bool:
        """Whether it reads the question of each forget row, so that no row may be a text without one."""
        return bool(self.forget_component.teacher_prompts() or self.forget_component.refused_questions())

    @property
    def all_positions(self) -> dict[str, bool]:
        """Sets of rows in which every position is counted: the forget set, and the retain set if it is compared with the
        original model.

        A set is True if its loss reads predictions: that of the last position belongs to a token that has to be appended. A
        loss of hidden states would count that token as a second last one.
        """
        if not self.forget_component.all_positions:
            return {}
        sets = {"forget": self.forget_component.reads_head}
        if self.retain_component is not None and {"distributions", "layer"} & set(self.retain_component.original):
            sets["retain"] = self.retain_component.reads_head
        return sets

    @property
    def entropy_temperature(self) -> float | None:
        """Temperature of the entropy that a weighting uses, or None."""
        temperatures = (weighting.entropy_temperature for weighting in self.weighting_components)
        return next((temperature for temperature in temperatures if temperature is not None), None)

    @property
    def reads_head(self) -> bool:
        """Whether a component uses log-probabilities or final hidden states of the model."""
        return any(component.reads_head for component in self.components)

    def layer(self, layers: int) -> int | None:
        """Return the index of the decoder layer whose output is used, or None.

        Raises:
            ValueError: the user set a layer that the model does not have.
        """
        indices = [component.reads_layer(layers) for component in self.components]
        layer = next((index for index in indices if index is not None), None)
        if layer is not None and "layer" in self.user_options and self.values["layer"] >= layers:
            requested = int(self.values["layer"])
            raise ValueError(f"layer must be between 0 and {layers - 1} for this model, got {requested}.")
        return layer

    @property
    def layered(self) -> bool:
        """Whether a component uses the output of a decoder layer."""
        return self.layer(1 << 30) is not None  # of so many layers, none that is asked for is missing

    def reference_specs(self, layers: int) -> dict[str, ReferenceSpec]:
        """Return which quantities of the original model the losses need in every step, by set of rows."""
        specs = self.forget_component.reference_specs("forget", layers)
        if self.preserve_component is not None:
            kept = self.preserve_component.reference_specs("forget", layers)
            # Both losses read the forget rows; what the forget loss needs of them must not be lost.
            both = {name: dataclasses.replace(specs[name], states=True) for name in specs.keys() & kept}
            specs = {**specs, **kept, **both}
        if self.retain_component is not None:
            specs = {**specs, **self.retain_component.reference_specs("retain", layers)}
        return specs


def split_weighting(text: str) -> tuple[tuple[str, ...], Combination | None]:
    """Split `a`, `a*b` or `a+b` into names and combination."""
    signs = [sign for sign in text if sign in _SIGNS]
    if not signs:
        return (text,), None
    return tuple(name.strip() for name in re.split(r"[*+]", text)), _SIGNS[signs[0]]


def recipe(
    method: str,
    *,
    weighting: str | None = None,
    forget_loss: str | None = None,
    retain_loss: str | None = None,
    preserve: str | None = None,
    replacement: str | None = None,
    configuration: str = "ours",
    **options: Any,
) -> Recipe:
    """Resolve the components and hyperparameters of a run.

    Args:
        method: a name from `METHODS`; the other arguments replace its components and values.
        weighting: a name from `WEIGHTINGS`, or two joined by `*` (product) or `+` (mean of ranks within the row).
        configuration: a name from `CONFIGURATIONS`, which sets options that are not given.
        options: hyperparameters and settings of the components by name; None means not given.

    Raises:
        ValueError: an unknown name, a hyperparameter that the method does not have, or components that cannot be combined.
    """
    # A method of an installed package is in the table only after its entry point was called.
    load_plugins()
    row = METHODS.find(method)
    chosen = (weighting or row.weighting, forget_loss or row.forget_loss, retain_loss or row.retain_loss)
    names, _ = split_weighting(chosen[0])
    if len(names) > 2 or not all(names):
        raise ValueError(f"weighting must be one name, or a*b or a+b with two names, got {chosen[0]!r}.")
    preserve, replacement = preserve or "none", replacement or "none"  # no method of the table has one by itself
    weighting_classes = [WEIGHTINGS.find(name) for name in names]
    forget_class = FORGET_LOSSES.find(chosen[1])
    retain_class = RETAIN_LOSSES.find(chosen[2])
    preserve_class = PRESERVE_LOSSES.find(preserve)
    replacement_class = REPLACEMENT_LOSSES.find(replacement)
    classes: list[type[Component]] = [
        TermWeights,
        *weighting_classes,
        forget_class,
        *filter(None, [retain_class, preserve_class, replacement_class]),
    ]
    taken = _taken(classes, learned=LearnedScores in weighting_classes, retained=retain_class is not None)
    chosen_options = {name: value for name, value in options.items() if value is not None}
    _check_given(chosen_options, taken, f"method {method!r} ({' x '.join(chosen)})")
    # Later entries win: what the user sets, then the method's published values, then those of the configuration.
    published = _published_values(row, chosen, forget_class)
    start = {**lookup("configuration", configuration, CONFIGURATIONS), **published, **chosen_options}
    values = {name: value for name, value in start.items() if name in taken}
    changed = chosen != (row.weighting, row.forget_loss, row.retain_loss)
    name = method
    if changed:
        shown: tuple[str, ...] = chosen
        if chosen[2] == "nll":  # most methods have it
            shown = chosen[:2]
        name = " x ".join(shown)
    if preserve_class is not None:
        name += f" + preserve {preserve}"
    if replacement_class is not None:
        name += f" + {replacement}"
    decided = Recipe(
        name,
        *chosen,
        factors=_make(TermWeights, values),
        weighting_components=tuple(_make(weighting_class, values) for weighting_class in weighting_classes),
        forget_component=_make(forget_class, values),
        retain_component=_make_optional(retain_class, values),
        preserve=preserve,
        preserve_component=_make_optional(preserve_class, values),
        replacement=replacement,
        replacement_component=_make_optional(replacement_class, values),
        user_options=frozenset(chosen_options) & frozenset(taken),
    )
    _check_combination(decided)
    return decided


def register_method(name: str, method: Method) -> None:
    """Add a method whose components are registered already.

    Raises:
        ValueError: the name is taken or invalid, a component is unknown, or no component takes one of the numbers.
    """
    if not isinstance(method, Method):
        raise ValueError(f"a method must be an atwu.Method, got {type(method).__name__}.")
    METHODS.add(name, method)
    try:
        # Resolving it once finds unknown components and numbers now, not in somebody's run.
        recipe(name, **dict[str, Any](method.defaults))
    except BaseException:
        del METHODS[name]
        raise


def _published_values(row: Method, chosen: tuple[str, str, str], forget_class: type[ForgetLoss]) -> Mapping[str, float]:
    """Return the values of a method; of a forget loss that replaces the method's, those of the method that has this loss.

    Its weight goes with it: NPO sums over an answer and SatGA averages over tokens, so that a gamma tuned for one says nothing
    about the other.
    """
    weighting, forget_loss, retain_loss = chosen
    owners = [method for method in METHODS.values() if method.forget_loss == forget_loss]
    if row in owners or not owners:
        return row.defaults
    # The most similar one, so that ATWU with the loss npo has the values of atwu_npo; of equally similar ones the first.
    owner = max(owners, key=lambda method: (method.weighting == weighting, method.retain_loss == retain_loss))
    of_loss = {"forget_weight", *(option.name for option in options_of_component(forget_class))}
    if owner.retain_loss == retain_loss:
        of_loss.add("retain_weight")
    others = {name: value for name, value in row.defaults.items() if name not in of_loss}
    return others | {name: value for name, value in owner.defaults.items() if name in of_loss}


def _taken(
    components: Iterable[Component | type[Component]], *, learned: bool, retained: bool
) -> dict[str, list[ComponentOption]]:
    """Return all options of some components, by name, as declared by each component that has it."""
    taken: dict[str, list[ComponentOption]] = {}
    for component in components:
        for option in options_of_component(component):
            # `TermWeights` has both weights, also for a method without retain loss, where one would have no effect.
            if (learned or not option.learned) and (retained or option.name != "retain_weight"):
                taken.setdefault(option.name, []).append(option)
    return taken


def _check_given(chosen_options: Mapping[str, Any], taken: Mapping[str, list[ComponentOption]], who: str) -> None:
    # A hyperparameter that nothing reads is an error, since it would change the meaning of the run; a setting is ignored, so
    # that one command can list those of several methods.
    known = component_options()
    for name, value in chosen_options.items():
        if name in taken:
            for option in taken[name]:
                option.value(value)
            continue
        option = lookup("option", name, known)
        if option.number:
            numbers = [known_name for known_name, declared in taken.items() if declared[0].number]
            raise ValueError(f"{who} has no hyperparameter {name!r}; it has {', '.join(numbers)}.")
        if option.strict and value != option.default:
            raise ValueError(f"{name} requires a method with learned weights; {who} has none.")


def _make(component: type[P], values: Mapping[str, Any]) -> P:
    own = options_of_component(component)
    return component(**{option.name: option.value(values.get(option.name, option.default)) for option in own})


def _make_optional(component: type[P] | None, values: Mapping[str, Any]) -> P | None:
    """Make a component that a method may do without: `none` in the tables is None."""
    if component is None:
        return None
    return _make(component, values)


def _check_combination(decided: Recipe) -> None:
    forget, preserve = decided.forget_component, decided.preserve_component
    learned = sum(isinstance(weighting, LearnedScores) for weighting in decided.weighting_components)
    if learned == 2:
        raise ValueError(f"a run has one scorer, but weighting {decided.weighting!r} names it twice.")
    if decided.combination == "mean_of_ranks" and learned:
        raise ValueError(
            f"weighting {decided.weighting!r} takes ranks of learned scores, which have no gradient; use 'scorer*...'."
        )
    # The divisor is the number of selected tokens of the whole optimizer step, known beforehand only of weights that are.
    if forget.reduction == "selected" and not all(
        isinstance(weighting, FixedWeighting) for weighting in decided.weighting_components
    ):
        raise ValueError(
            f"forget loss {decided.forget_loss!r} averages over a fixed selection of tokens, but weighting "
            f"{decided.weighting!r} selects none; use a precomputed weighting."
        )
    if forget.trained_answer == "alternate" and decided.weighting != "uniform":
        raise ValueError(
            f"forget loss {decided.forget_loss!r} trains on alternate answers, which weighting {decided.weighting!r} does not "
            "weight; use uniform."
        )
    retain = decided.retain_component
    if forget.balanced and retain is not None and type(retain).slope is Loss.slope:
        raise ValueError(
            f"forget loss {decided.forget_loss!r} compares gradients with retain loss js_first; got {decided.retain_loss!r}."
        )
    if preserve is not None and decided.weighting == "uniform":
        raise ValueError(
            "preserve needs a token weighting: 'uniform' gives every token weight 1 and spares none; set weighting, "
            "such as rare_nouns or scorer."
        )
    if preserve is not None and (forget.trained_answer == "alternate" or not forget.reads_head):
        raise ValueError(
            f"preserve reads the tokens of the forget answers, but forget loss {decided.forget_loss!r} does not."
        )
    compares = type(forget).from_distributions is not Loss.from_distributions
    if preserve is not None and compares and "distributions" in preserve.original:
        raise ValueError(
            f"forget loss {decided.forget_loss!r} compares distributions on forget rows itself; use preserve='nll', or "
            "another forget loss such as satga."
        )
    if decided.replacement_component is not None and forget.reads_alternates:
        raise ValueError(
            f"forget loss {decided.forget_loss!r} has other answers of its own; use it without replacement."
        )
    if decided.all_positions and decided.reads_labels:
        raise ValueError(
            f"{decided.name!r} counts every position, but forget_spans label answers only; use a weighting without labels "
            "(jensun: or set legacy=False)."
        )
