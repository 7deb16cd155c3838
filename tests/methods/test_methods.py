"""The table of methods, the choice of a recipe from it, and additions from outside."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
import torch

import atwu
from atwu.methods.citations import CITATIONS
from atwu.methods.losses import divergence, likelihood
from atwu.methods.options import Range, number, options_of
from atwu.methods.part import FixedWeighting, ForgetLoss, Weighting
from atwu.methods.parts import FORGET_LOSSES, RETAIN_LOSSES, WEIGHTINGS, part_options
from atwu.methods.recipe import recipe, split_weighting
from atwu.methods.table import METHODS, Method
from atwu.methods.weightings import live
from atwu.training.config import UnlearnConfig

NAMES = {
    *("grad_ascent", "grad_diff", "dpo", "npo", "simnpo", "jensun", "rmu", "undial", "fundial", "wga", "satimp", "etw"),
    *("seul", "su_llm", "su_ngram", "satga", "gt_ga", "gt_satga"),
    *("atwu_ga", "atwu_satga", "atwu", "atwu_dpo", "atwu_npo", "atwu_simnpo"),
}
PUBLISHED = {
    "grad_diff": {"forget_weight": 0.12, "retain_weight": 0.80},
    "dpo": {"forget_weight": 3.80, "retain_weight": 0.15, "beta": 0.21},
    "npo": {"forget_weight": 0.12, "retain_weight": 4.10, "beta": 0.10},
    "simnpo": {"forget_weight": 1.49, "retain_weight": 1.28, "beta": 2.82, "delta": 0.03},
    "jensun": {"forget_weight": 0.82, "retain_weight": 0.79},
    "rmu": {"forget_weight": 0.66, "retain_weight": 1.27, "steering_coeff": 4.39, "layer": 4.0},
    "fundial": {"forget_weight": 0.157, "retain_weight": 0.626, "beta": 11.6},
    "wga": {"forget_weight": 1.16, "retain_weight": 0.79, "beta": 2.14},
    "satimp": {"forget_weight": 0.87, "retain_weight": 0.49, "beta1": 1.43, "beta2": 0.17},
    "etw": {"forget_weight": 0.033, "retain_weight": 1.31, "temperature": 0.16},
    "atwu": {"forget_weight": 3.00, "retain_weight": 0.50, "beta": 7.00},
}
BORROWED = {
    **dict.fromkeys(("seul", "su_llm", "su_ngram", "gt_ga"), PUBLISHED["grad_diff"]),
    "undial": {"forget_weight": 1.0, "retain_weight": 1.0, "beta": 10.0},
    "satga": PUBLISHED["wga"],
    "gt_satga": PUBLISHED["atwu"],
    "atwu_ga": {"forget_weight": 3.00, "retain_weight": 0.50},
    "atwu_satga": PUBLISHED["atwu"],
    "atwu_dpo": PUBLISHED["dpo"],
    "atwu_npo": PUBLISHED["npo"],
    "atwu_simnpo": PUBLISHED["simnpo"] | {"score_scale": 1.0},
}


@pytest.fixture
def tables():
    """Forgets what a test registers."""
    before = [(table, dict(table)) for table in (METHODS, WEIGHTINGS, FORGET_LOSSES, RETAIN_LOSSES)]
    yield
    for table, entries in before:
        table.clear()
        table.update(entries)


def test_the_table_has_these_methods():
    assert set(METHODS) == NAMES
    assert set(PUBLISHED) | set(BORROWED) | {"grad_ascent"} == NAMES


@pytest.mark.parametrize("name", sorted(NAMES))
def test_every_row_is_made_of_known_parts_numbers_and_references(name):
    row, decided = METHODS[name], recipe(name)
    for part in split_weighting(row.weighting)[0]:
        assert part in WEIGHTINGS
    assert row.forget_loss in FORGET_LOSSES
    assert row.retain_loss in RETAIN_LOSSES
    assert set(decided.values) <= {name for name, option in part_options().items() if option.number}
    assert set(row.defaults) <= set(decided.values)
    assert set(row.search) <= set(decided.values)
    assert decided.name == name
    assert len(CITATIONS[row.cite]) > 30
    for key, value in decided.values.items():
        where = row.search.get(key, decided.options[key].search)
        # ETW's forget weight was published, and lies outside the range that was published for it.
        assert where is None or where.low <= value <= where.high or (name, key) == ("etw", "forget_weight"), (
            key,
            value,
        )


def test_parts_tell_what_they_are_and_what_they_take():
    for part in (*WEIGHTINGS.values(), *FORGET_LOSSES.values(), *filter(None, RETAIN_LOSSES.values())):
        assert part.formula
        for option in options_of(part):
            assert option.help
            assert option.checked(option.default) == option.default
            assert option.kind is part_options()[option.name].kind
    assert set(CITATIONS) == {row.cite for row in METHODS.values()}


@pytest.mark.parametrize(("name", "values"), [*PUBLISHED.items(), *BORROWED.items()])
def test_published_values(name, values):
    assert recipe(name).values == values
    assert (METHODS[name].lender is not None) == (name in BORROWED)


def test_published_searches():
    linear = {
        (name, key)
        for name, row in METHODS.items()
        for key in recipe(name).values
        if (where := row.search.get(key, recipe(name).options[key].search)) is not None and not where.log
    }
    assert linear == {
        *((name, key) for name in ("simnpo", "atwu_simnpo") for key in ("beta", "delta")),
        *((name, "beta") for name in ("atwu", "atwu_satga")),
        ("satimp", "beta1"),
        ("rmu", "layer"),
    }
    assert recipe("fundial").options["beta"].search == Range(1.0, 30.0)
    assert recipe("npo").options["beta"].search == recipe("atwu_npo").options["beta"].search == Range(0.05, 0.2)
    assert METHODS["atwu_satga"].search == {"beta": recipe("atwu").options["beta"].search}
    assert METHODS["gt_satga"].search == {"beta": Range(0.1, 10.0)}
    assert {name: row.first for name, row in METHODS.items() if row.first} == {
        "grad_diff": {"forget_weight": 0.5, "retain_weight": 1.0},
        "dpo": {"beta": 0.4},
        "npo": {"forget_weight": 1.0, "retain_weight": 1.0, "beta": 0.1},
        "simnpo": {"forget_weight": 0.125, "beta": 3.5, "delta": 0.0},
        "jensun": {"forget_weight": 0.5, "retain_weight": 0.5},
        "wga": {"beta": 1.0},
        "satimp": {"forget_weight": 1.0, "retain_weight": 0.1, "beta1": 5.0, "beta2": 1.0},
        "undial": {"forget_weight": 1.0, "retain_weight": 1.0, "beta": 10.0},
        "fundial": {"forget_weight": 1.0, "retain_weight": 1.0, "beta": 10.0},
        "atwu": {"forget_weight": 5.0, "retain_weight": 0.5, "beta": 5.0},
    }


@pytest.mark.parametrize(("low", "high", "log"), [(2.0, 1.0, False), (0.0, 1.0, True), (float("nan"), 1.0, True)])
def test_a_range_that_cannot_be_drawn_from_is_refused(low, high, log):
    with pytest.raises(ValueError, match="range needs"):
        Range(low, high, log=log)


def test_the_table_loads_without_torch():
    code = "import atwu.methods.table, sys; print('torch' in sys.modules, 'transformers' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["False", "False"]


def test_any_weighting_goes_under_any_loss_that_can_use_it():
    for weighting, weighter in WEIGHTINGS.items():
        for forget_loss, loss in FORGET_LOSSES.items():
            if loss.reduction == "selected" and not issubclass(weighter, FixedWeighting):
                continue
            if loss.learns == "alternate" and weighting != "uniform":
                continue
            decided = recipe("grad_diff", weighting=weighting, forget_loss=forget_loss)
            taken = [option for part in (weighter, loss) for option in options_of(part) if option.number]
            wanted = {option.name for option in taken if weighting == "scorer" or not option.learned}
            assert set(decided.values) == {"forget_weight", "retain_weight"} | wanted


def test_methods_of_other_parts_have_other_names():
    assert recipe("grad_diff", retain_loss="kl").name == "uniform x ga x kl"
    assert recipe("grad_diff", retain_loss="js").name == "uniform x ga x js"
    assert recipe("grad_diff", weighting="entropy").name == "entropy x ga"


def test_given_numbers_win_over_published_ones():
    assert recipe("wga", beta=1.0, forget_weight=None).values == PUBLISHED["wga"] | {"beta": 1.0}
    assert recipe("atwu", retain_loss="none").values.keys() == {"forget_weight", "beta"}
    assert recipe("atwu", weighting="entropy", forget_loss="satga").name == "entropy x satga"
    assert recipe("grad_diff", retain_loss="activation", layer=2).values["layer"] == 2
    assert recipe("wga", beta=0.0).values["beta"] == 0.0


@pytest.mark.parametrize(
    ("text", "names", "combination"),
    [
        ("entropy", ("entropy",), None),
        ("scorer*rarity", ("scorer", "rarity"), "product"),
        ("importance + entropy", ("importance", "entropy"), "mean_of_ranks"),
    ],
)
def test_two_weightings_make_one(text, names, combination):
    decided = recipe("atwu", weighting=text)
    assert (decided.weighting_names, decided.combination) == (names, combination)
    assert (decided.scores is not None) == ("scorer" in names)


def test_a_weighting_may_need_retain_rows_that_the_loss_does_not():
    decided = recipe("grad_ascent", weighting="importance*rarity")
    assert decided.retainer is None
    assert "retain" in decided.needs
    assert "retain" not in recipe("grad_ascent").needs
    assert "retain" in recipe("atwu", retain_loss="none", scorer_prior="rarity").needs


def test_the_layer_of_a_small_model_is_its_last_unless_it_was_asked_for():
    assert recipe("rmu").layer(32) == 4
    assert recipe("rmu").layer(2) == 1
    assert recipe("rmu", layer=1).layer(2) == 1
    with pytest.raises(ValueError, match="layer must be between 0 and 1, the layers of this model, got 4"):
        recipe("rmu", layer=4).layer(2)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"method": "atvu"}, r"unknown method 'atvu'; choose from grad_ascent, .* Did you mean 'atwu'\?"),
        ({"method": "atwu", "weighting": "entropi"}, r"unknown weighting .* Did you mean 'entropy'\?"),
        ({"method": "atwu", "weighting": "scorer*rarety"}, r"unknown weighting 'rarety'; .* Did you mean 'rarity'\?"),
        ({"method": "atwu", "forget_loss": "satgaplus"}, r"unknown forget loss .* Did you mean 'satga_plus'\?"),
        ({"method": "atwu", "retain_loss": "nil"}, r"unknown retain loss .* Did you mean 'nll'\?"),
        ({"method": "grad_diff", "beta": 1.0}, "has no 'beta'; it takes forget_weight, retain_weight"),
        ({"method": "grad_ascent", "retain_weight": 1.0}, "has no 'retain_weight'; it takes forget_weight"),
        ({"method": "atwu", "betta": 1.0}, r"unknown option 'betta'; .* Did you mean 'beta'\?"),
        ({"method": "wga", "beta": -1.0}, "beta must be a finite number >= 0, got -1.0"),
        ({"method": "wga", "beta": float("nan")}, "beta must be a finite number"),
        ({"method": "wga", "beta": float("inf")}, "beta must be a finite number"),
        ({"method": "npo", "beta": 0.0}, "beta must be a finite number > 0, got 0.0"),
        ({"method": "etw", "temperature": 0.0}, "temperature must be a finite number > 0"),
        ({"method": "grad_diff", "weighting": "importance*entropy*rarity"}, "a combination of weightings is a"),
        ({"method": "atwu", "weighting": "scorer*scorer"}, "one scorer per run; .* names it twice"),
        ({"method": "atwu", "weighting": "scorer+entropy"}, r"carry no gradient; use 'scorer\*\.\.\.'"),
        (
            {"method": "atwu", "forget_loss": "masked_ga"},
            "'masked_ga' averages over a fixed selection of tokens; weighting 'scorer' has none",
        ),
        ({"method": "fundial", "weighting": "nouns*importance"}, "weighting 'nouns.importance' has none"),
        (
            {"method": "jensun", "weighting": "labels", "configuration": "authors"},
            "'labels x js_refusal x js' with legacy=True counts every position",
        ),
        ({"method": "rmu", "layer": 4.7}, "layer must be a whole number, got 4.7"),
        (
            {"method": "wga", "forget_loss": "refusal"},
            "'refusal' learns another answer, whose tokens 'saturation' does not weigh",
        ),
    ],
)
def test_wrong_choices_say_what_is_allowed(arguments, message):
    with pytest.raises(ValueError, match=message):
        recipe(arguments.pop("method"), **arguments)


class Half(Weighting):
    formula = "1/2"

    def weights(self, seen):
        return torch.full_like(seen.logps, 0.5)


class DoubleAscent(ForgetLoss):
    formula = "s w log p"
    scale: float = number(2.0, help="factor on everything", search=Range(1.0, 4.0))

    def values(self, terms, weights):
        return self.scale * likelihood.gradient_ascent(terms.logps, weights)


class TwiceKL(divergence.KL):
    formula = "2 KL"

    def values(self, out, reference):
        return 2 * super().values(out, reference)


def test_parts_and_methods_from_outside(tables, tiny_llama, batch):
    atwu.register_weighting("half", Half)
    atwu.register_forget_loss("double_ga", DoubleAscent)
    atwu.register_retain_loss("twice", TwiceKL)
    atwu.register_method(
        "half_of_double", Method("Half", "half", "double_ga", "nll", "nobody", {"forget_weight": 0.12})
    )
    model, reference, forget, retain = tiny_llama(), tiny_llama(1), batch(seed=1), batch(seed=2)
    ours = atwu.unlearning_loss(model, forget, retain, method="half_of_double", retain_weight=0.8)
    plain = atwu.unlearning_loss(model, forget, retain, method="grad_diff")
    assert ours.loss.item() == pytest.approx(plain.loss.item(), abs=1e-6)
    tripled = atwu.unlearning_loss(model, forget, retain, method="half_of_double", retain_weight=0.8, scale=6.0)
    assert tripled.forget.item() == pytest.approx(3 * plain.forget.item(), rel=1e-6)
    once, twice = (
        atwu.unlearning_loss(model, forget, retain, method="grad_diff", retain_loss=name, reference=reference).retain
        for name in ("kl", "twice")
    )
    assert twice.item() == pytest.approx(2 * once.item(), abs=1e-6)
    assert recipe("atwu", weighting="half*rarity").weighting_names == ("half", "rarity")


def test_a_number_of_ones_own_works_like_any_other(tables, tmp_path):
    atwu.register_forget_loss("double_ga", DoubleAscent)
    config = UnlearnConfig(output_dir=str(tmp_path), method="grad_diff", forget_loss="double_ga", scale=3)
    assert config.recipe().values["scale"] == 3.0
    assert config.as_plain()["scale"] == 3
    assert part_options()["scale"].search == Range(1.0, 4.0)
    with pytest.raises(ValueError, match="scale must be a finite number >= 0"):
        UnlearnConfig(output_dir=str(tmp_path), method="grad_diff", forget_loss="double_ga", scale=-1)
    with pytest.raises(
        ValueError, match=r"method 'wga' .* has no 'scale'; it takes forget_weight, retain_weight, beta"
    ):
        UnlearnConfig(output_dir=str(tmp_path), method="wga", scale=1.0)


def surprising(logps, mask, *, tau=2.0):
    """1 - p^tau"""
    return (1 - (tau * logps).exp()) * mask


def bounded(logps, weights, *, cap=3.0):
    return (weights * logps).clamp(min=-cap)


def test_plain_functions_are_parts(tables, tiny_llama, batch, tmp_path):
    model, forget, retain = tiny_llama(), batch(seed=1), batch(seed=2)
    found = atwu.unlearning_loss(
        model, forget, retain, method="grad_diff", weighting=surprising, forget_loss=bounded, tau=1.0, cap=100.0
    )
    expected = (1 - found.logps.exp()) * found.mask
    torch.testing.assert_close(found.token_weights, expected)
    assert found.forget.item() == pytest.approx(float((expected * found.logps).sum() / found.mask.sum()))
    config = UnlearnConfig(output_dir=str(tmp_path), method="grad_diff", weighting=surprising, tau=0.5)
    assert config.weighting.startswith(f"{surprising.__module__}.surprising#")
    assert config.recipe().values == {"forget_weight": 0.12, "retain_weight": 0.8, "tau": 0.5}
    assert config.recipe().weighters[0].formula == "1 - p^tau"
    with pytest.raises(ValueError, match="takes 'hidden'; a function may take logps, mask"):
        recipe("grad_diff", weighting=lambda hidden: hidden)


def made_with(value):
    return lambda mask: mask * value


def made_with_default(value):
    def capped(mask, *, cap=value):
        return mask * cap

    return capped


ONE, TWO = (lambda mask: mask * 1.0), (lambda mask: mask * 2.0)


@pytest.mark.parametrize("function", [made_with(1.0), [].append, torch.exp, ONE, TWO])
def test_functions_that_their_source_does_not_tell_apart_are_refused(function, tables):
    with pytest.raises(ValueError, match="with def"):
        recipe("grad_diff", weighting=function)
    with pytest.raises(ValueError, match="with def"):
        recipe("grad_diff", forget_loss=function)


@pytest.mark.parametrize("kind", ["weighting", "forget_loss"])
def test_a_function_is_never_taken_for_one_of_the_same_source(kind, tables):
    for _ in range(2):  # as in a notebook, whose cells are run again
        assert recipe("grad_diff", **{kind: made_with_default(1.0)}).values["cap"] == 1.0
    with pytest.raises(ValueError, match=r"before with the defaults \{'cap': 1.0\} and now has \{'cap': 5.0\}"):
        recipe("grad_diff", **{kind: made_with_default(5.0)})


class Unhelpful(Weighting):
    formula = "1"
    beta: bool = number(0, help="another thing elsewhere")


@pytest.mark.parametrize(
    ("register", "name", "entry", "message"),
    [
        (atwu.register_weighting, "uniform", live.Uniform, "is a weighting 'uniform' already"),
        (atwu.register_forget_loss, "npo", DoubleAscent, "is a forget loss 'npo' already"),
        (atwu.register_retain_loss, "none", TwiceKL, "is a retain loss 'none' already"),
        (atwu.register_method, "atwu", METHODS["atwu"], "is a method 'atwu' already"),
        (atwu.register_weighting, "a*b", Half, "made of letters, digits and underscores"),
        (atwu.register_weighting, "new", DoubleAscent, "a weighting is a subclass of atwu.Weighting"),
        (atwu.register_retain_loss, "new", Half, "a retain loss is a subclass of atwu.RetainLoss"),
        (atwu.register_weighting, "new", Unhelpful, "'beta' is a float elsewhere; choose another name"),
        (atwu.register_method, "new", Method("", "uniform", "gaa", "nll", ""), "unknown forget loss 'gaa'"),
        (atwu.register_method, "new", Method("", "scorer", "masked_ga", "nll", ""), "weighting 'scorer' has none"),
        (atwu.register_method, "new", Method("", "uniform", "ga", "nll", "", {"tau": 1.0}), "unknown option 'tau'"),
    ],
)
def test_a_taken_name_or_an_unusable_entry_is_refused(tables, register, name, entry, message):
    before = [dict(table) for table in (METHODS, WEIGHTINGS, FORGET_LOSSES, RETAIN_LOSSES)]
    with pytest.raises(ValueError, match=message):
        register(name, entry)
    assert before == [METHODS, WEIGHTINGS, FORGET_LOSSES, RETAIN_LOSSES]


PLUGIN = """
import atwu

def register():
    atwu.register_method("borrowed_npo", atwu.Method("Borrowed", "entropy", "npo", "kl", "Venn 2030", {"beta": 0.3}))

def fails():
    raise RuntimeError("Kelbury is closed")
"""


def test_an_installed_package_registers_and_a_failing_one_is_only_a_warning(tmp_path):
    (tmp_path / "orla_methods.py").write_text(PLUGIN)
    info = tmp_path / "orla_methods-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: orla-methods\nVersion: 1.0\n")
    points = "broken = orla_methods:fails\nabsent = orla_missing:register\norla = orla_methods:register\n"
    (info / "entry_points.txt").write_text(f"[atwu.methods]\n{points}")
    done = subprocess.run(
        [sys.executable, "-c", "from atwu.cli import main; main()", "methods", "borrowed_npo"],
        env=os.environ | {"PYTHONPATH": str(tmp_path), "OMP_NUM_THREADS": "1", "COLUMNS": "120"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "Borrowed (borrowed_npo)" in done.stdout
    assert "Venn 2030" in done.stdout
    assert "entry point broken = orla_methods:fails failed and was left out: Kelbury is closed" in done.stderr
    assert "entry point absent = orla_missing:register failed and was left out: No module named" in done.stderr
