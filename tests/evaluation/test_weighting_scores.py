"""Scores of all weightings: worked values, inputs, and equality with the weights of training."""

from __future__ import annotations

import dataclasses
import json
from contextlib import nullcontext
from pathlib import Path

import numpy as np
import pytest

from atwu.benchmarks.people_rows import people
from atwu.data.encode import EncodedRow, Encoder
from atwu.data.pairing import collate_rows
from atwu.data.schema import Example
from atwu.evaluation.metrics.score_auroc import score_auroc, score_aurocs
from atwu.evaluation.teacher_forced import TokenRow, read_tokens
from atwu.evaluation.weighting_scores import (
    AuxiliaryModels,
    ScoreContext,
    ScoreInputs,
    auxiliary_models_of,
    available,
    check_scores,
    find_auxiliary_models,
    scored_weightings,
    token_scores,
)
from atwu.methods.component import Weighting, number
from atwu.methods.component_registry import WEIGHTINGS
from atwu.methods.objective import unlearning_loss
from atwu.modeling.scratch import scratch_model, train_tokenizer
from atwu.report.heatmap import score_rows
from atwu.training.config import UnlearnConfig
from atwu.training.precompute import OriginalModel, fixed_tables
from atwu.training.training_rows import unlearning_rows

ANSWER = "She met Orla Venn."


def token_row(logps, **changes):
    count = len(logps)
    row = TokenRow(
        targets=np.arange(count),
        predictions=np.arange(count),
        logps=np.array(logps, dtype=float),
        entropy=np.zeros(count),
        scores=None,
        labels=None,
        offsets=(*((i, i + 1) for i in range(count - 1)), None),
    )
    return dataclasses.replace(row, **changes)


def encoded_row(answer_ids, offsets, labels=None, prompt=(7, 8)):
    return EncodedRow(
        input_ids=(*prompt, *answer_ids),
        labels=(*(-100 for _ in prompt), *answer_ids),
        token_labels=None if labels is None else (*(0 for _ in prompt), *labels),
        answer_offsets=(*(None for _ in prompt), *offsets),
        has_terminal=True,
    )


@pytest.fixture
def worked():
    """Tokens She | met | Orla | Venn | . | end, with the name as the secret."""
    offsets = ((0, 3), (3, 7), (7, 12), (12, 17), (17, 18), None)
    return ScoreContext(
        tokens=[
            token_row(
                np.log([0.8, 0.5, 0.25, 0.5, 1.0, 0.5]),
                entropy=np.array([0.5, 1.0, 2.0, 0.0, 0.0, 1.0]),
                scores=np.array([0.1, 0.2, 0.9, 0.8, 0.3, 0.0]),
                labels=np.array([0, 0, 1, 1, 0, 0]),
                offsets=offsets,
            )
        ],
        encoded=[encoded_row([10, 11, 12, 13, 14, 2], offsets, [0, 0, 1, 1, 0, 0])],
        examples=[Example.from_qa("Whom?", ANSWER)],
        # "She met Orla." and "She."
        retain=[encoded_row([10, 11, 12, 14, 2], [None] * 5), encoded_row([10, 14, 2], [None] * 3)],
        retain_text=[Example.from_qa("Who?", "She met Orla."), Example.from_qa("Who?", "She.")],
        auxiliary={
            "forget": [np.log([0.9, 0.95, 0.8, 0.99, 0.5, 0.5])],
            "retain": [np.log([0.88, 0.1, 0.6, 0.98, 0.5, 0.5])],
        },
    )


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("scorer", [0.1, 0.2, 0.9, 0.8, 0.3, 0.0]),
        ("saturation", [0.8, 0.5, 0.25, 0.5, 1.0, 0.5]),
        ("importance", [0.2, 0.5, 0.75, 0.5, 0.0, 0.5]),
        ("satimp", [p**1.43 * (1 - p) ** 0.17 for p in [0.8, 0.5, 0.25, 0.5, 1.0, 0.5]]),
        ("entropy", [0.25, 0.5, 1.0, 0.0, 0.0, 0.5]),
        # mean log p = log(.025) / 6 = -.615: all of .5 and .25 lie below, and the gap of one is filled.
        ("logprob_mask", [0, 1, 1, 1, 1, 1]),
        # Trigrams: forget 1 everywhere; retain 1, 1/2 (met after She), 1, then 0; |differences| 0, 1/2, 0, 1, 1, 1 have
        # the mean 7/12, and each token above it takes the two before it along.
        ("ngram_difference", [0, 1, 1, 1, 1, 1]),
        # |differences| .02, .85, .2, .01, 0, 0 have the mean .18; values above it include the two tokens before.
        ("model_difference", [1, 1, 1, 0, 0, 0]),
        ("nouns", [0, 0, 1, 1, 0, 0]),
        # Retain counts 2 1 1 0 2 2: the fewer, the higher the rank, and ties share theirs.
        ("rarity", [1.5 / 6, 4 / 6, 4 / 6, 5.5 / 6, 1.5 / 6, 1.5 / 6]),
        # Subjects 2 1 1 0 2 and none for the end, which is lowest.
        ("word_rarity", [2 / 6, 4 / 6, 4 / 6, 5.5 / 6, 2 / 6, 0.5 / 6]),
        # With the ranks 2.5 2.5 5.5 5.5 2.5 2.5 of nouns: each mean rank minus 1/2, of 6.
        ("rare_nouns", [2 / 6, 3 / 6, 4.5 / 6, 5.25 / 6, 2 / 6, 1.25 / 6]),
        ("labels", [0, 0, 1, 1, 0, 0]),
    ],
)
def test_worked_values(worked, name, expected):
    (found,) = token_scores(worked, [name])[name]
    np.testing.assert_allclose(found, expected, atol=1e-12)


def test_every_weighting_has_a_score_but_a_constant_and_one_that_reads_changed_rows():
    assert set(WEIGHTINGS) - set(scored_weightings()) == {"uniform", "contrast"}
    assert next(iter(scored_weightings())) == "scorer"


def test_scores_stay_in_range_if_rounding_lifts_a_probability_above_one(worked):
    context = dataclasses.replace(worked, tokens=[dataclasses.replace(worked.tokens[0], logps=np.full(6, 1e-9))])
    for name, (values,) in token_scores(context, ["saturation", "importance", "satimp"]).items():
        assert ((values >= 0) & (values <= 1)).all(), name


def test_unavailable_scores_are_not_offered_and_their_error_names_what_is_missing(worked):
    bare = ScoreContext(
        tokens=[dataclasses.replace(worked.tokens[0], scores=None)],
        encoded=[dataclasses.replace(worked.encoded[0], token_labels=None)],
        examples=worked.examples,
    )
    assert available(worked.inputs) == [*scored_weightings()]
    own = [name for name in available(bare.inputs) if "#" not in name]  # without functions of other tests
    assert own == [
        "saturation",
        "importance",
        "satimp",
        "entropy",
        "logprob_mask",
        "nouns",
        "key_tokens",
    ]
    for name, what in (
        ("scorer", "folder"),
        ("labels", "forget_spans"),
        ("rarity", "retain"),
        ("word_rarity", "retain"),
        ("ngram_difference", "retain"),
        ("model_difference", "su_llm"),
        ("sharpness", "scorer, saturation"),
    ):
        with pytest.raises(ValueError, match=f"{name}.*{what}"):
            token_scores(bare, [name])
    check_scores(["nouns"], ScoreInputs())


@pytest.fixture(scope="module")
def world():
    benchmark = people("tiny")
    tokenizer = train_tokenizer(benchmark.texts(), vocab_size=300)
    return scratch_model("micro").eval(), tokenizer, benchmark.forget[:12], benchmark.retain[:16]


@pytest.mark.parametrize("name", ["model_difference", "rarity", "logprob_mask", "word_rarity"])
def test_fixed_scores_on_the_original_model_equal_those_of_training(world, name, tmp_path):
    model, tokenizer, forget, retain = world
    two = AuxiliaryModels(*(str(tmp_path / which) for which in ("forget", "retain")))
    for seed, folder in enumerate((two.forget, two.retain) if name == "model_difference" else ()):
        scratch_model("micro", seed=seed).save_pretrained(folder)
    folders = {"auxiliary_forget": two.forget, "auxiliary_retain": two.retain} if name == "model_difference" else {}
    config = UnlearnConfig(
        output_dir=str(tmp_path), method="grad_diff", weighting=name, noun_finder="simple", **folders
    )
    chosen = config.recipe()
    rows = unlearning_rows(forget, retain, config, tokenizer=tokenizer)
    start = OriginalModel(model, tmp_path, autocast=nullcontext, progress=False)
    trained_with = fixed_tables(chosen, rows, start, Encoder(tokenizer))[name]

    encoder = Encoder(tokenizer)
    encoded = encoder.encode_rows(forget, what="forget").rows
    kept = encoder.encode_rows(retain, what="retain").rows
    auxiliary = auxiliary_models_of(chosen.settings)
    assert auxiliary == (two if folders else None)
    said = None if auxiliary is None else auxiliary.logps(encoded, device="cpu")
    context = ScoreContext(
        read_tokens(model, encoded), encoded, forget, retain=kept, retain_text=retain, auxiliary=said
    )
    found = token_scores(context, [name])[name]
    for index, values in enumerate(found):
        np.testing.assert_allclose(values, trained_with.rows([index]).numpy(), atol=1e-6)
    assert 0 < np.concatenate(found).mean() < 1


class Later(Weighting):
    """As in examples/a_method_of_your_own.py."""

    formula = "t / n"

    def weights(self, seen):
        return seen.mask.cumsum(dim=1) / seen.mask.sum(dim=1, keepdim=True)


class Numbered(Weighting):
    """Further inputs of a weighting, some above 1."""

    formula = "k H exp(log p) of odd tokens"
    factor: float = number(3.0, help="k")
    entropy_temperature = 1.0

    def weights(self, seen):
        return self.factor * seen.entropy * seen.logps.exp() * (seen.forget.input_ids[:, 1:] % 2)


@pytest.fixture
def own(monkeypatch):
    """Registered weightings."""
    for name, weighting in (("later", Later), ("numbered", Numbered)):
        monkeypatch.setitem(WEIGHTINGS, name, weighting)


def test_a_custom_weighting_can_be_used_as_a_score(worked, world, own):
    assert available(worked.inputs)[-2:] == ["later", "numbered"]
    (found,) = token_scores(worked, ["later"])["later"]
    np.testing.assert_allclose(found, np.arange(1, 7) / 6)
    model, tokenizer, forget, _ = world
    (shown,) = score_rows(model, tokenizer, forget[:1], scores={"mine": "later"})
    values = [word.score for word in shown.words["mine"]]
    assert values == sorted(values)
    assert values[0] < values[-1]


@pytest.mark.parametrize("name", ["satimp", "entropy", "numbered"])
def test_model_based_scores_equal_the_weights_of_a_training_step(world, own, name):
    model, tokenizer, forget, _ = world
    encoded = Encoder(tokenizer).encode_rows(forget, what="forget").rows
    batch = collate_rows(encoded)
    numbers = {"beta1": 1.43, "beta2": 0.17} if name == "satimp" else {}
    out = unlearning_loss(model, {"forget": batch}, method="grad_ascent", weighting=name, **numbers)
    found = token_scores(ScoreContext(read_tokens(model, encoded), encoded, forget), [name])[name]
    for scores, weights, counted in zip(found, out.token_weights, out.mask, strict=True):
        largest = max(1.0, weights.max().item())
        np.testing.assert_allclose(scores, weights[counted] / largest, atol=1e-5)
        assert 0 < scores.max() <= 1


def test_a_weighting_with_an_unavailable_input_is_left_out(worked, own, monkeypatch):
    bare = dataclasses.replace(worked, retain=None, retain_text=None)
    assert "later" in available(bare.inputs)
    monkeypatch.setattr(Later, "reads_retain", True)
    assert "later" not in available(bare.inputs)
    with pytest.raises(ValueError, match="'later' compares with retain answers"):
        token_scores(bare, ["later"])
    monkeypatch.setattr(Later, "is_score", False)
    assert "later" not in scored_weightings()


def test_auxiliary_models_come_from_the_record_if_they_still_exist(tmp_path):
    (tmp_path / "mask").mkdir()
    settings = {"auxiliary_forget": str(tmp_path / "mask"), "auxiliary_retain": "owner/base"}
    (tmp_path / "run.json").write_text(json.dumps({"recipe": {"settings": settings}}))
    assert find_auxiliary_models(tmp_path) == AuxiliaryModels(str(tmp_path / "mask"), "owner/base")
    (tmp_path / "mask").rmdir()
    assert find_auxiliary_models(tmp_path) is None
    assert find_auxiliary_models("owner/name") is None
    for odd in (None, [], {"recipe": None}, {"recipe": {"settings": {"auxiliary_forget": 3}}}):
        (tmp_path / "run.json").write_text(json.dumps(odd))
        assert find_auxiliary_models(tmp_path) is None


@pytest.mark.parametrize("name", ["runs/mask", "mask"])
def test_a_missing_relative_folder_is_not_looked_up_on_the_hub(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    settings = {"auxiliary_forget": name, "auxiliary_retain": "owner/base"}
    Path(name).mkdir(parents=True)
    assert auxiliary_models_of(settings) == AuxiliaryModels(name, "owner/base")
    Path(name).rmdir()
    assert auxiliary_models_of(settings) is None


def test_word_scores_exist_for_every_score(world):
    model, tokenizer, forget, retain = world
    shown = score_rows(model, tokenizer, forget[:2], retain=retain)
    assert [*shown[0].words] == [
        name for name in scored_weightings() if name not in ("scorer", "labels", "model_difference", "contrast")
    ]
    assert all(word.score is not None for row in shown for words in row.words.values() for word in words)
    named = score_rows(model, tokenizer, forget[:1], scores={"secret": "labels", "capitals": "nouns"})
    assert [*named[0].words] == ["secret", "capitals"]


def test_an_unavailable_score_is_rejected_before_the_model_is_used(world):
    _, tokenizer, forget, _ = world
    for name, what in (("rarity", "retain"), ("scorer", "scorer"), ("noun", "'noun'")):
        with pytest.raises(ValueError, match=what):
            score_rows(None, tokenizer, forget[:1], scores={name: name})


def test_the_noun_finder_is_the_one_asked_for():
    assert scored_weightings()["nouns"].noun_finder == "simple"
    for name in ("nouns", "rare_nouns"):
        assert scored_weightings("en_core_web_sm")[name].noun_finder == "en_core_web_sm"
    from atwu.evaluation.registry import EvaluateConfig
    from atwu.experiments.benchmark_settings import find_setting

    for setting in ("tofu-8b", "rwku-phi3"):  # FUNDIAL trains with spaCy there
        assert EvaluateConfig(**find_setting(setting).evaluation).noun_finder == "en_core_web_sm"
    assert EvaluateConfig(**find_setting("people-small").evaluation).noun_finder == "simple"


def scored_rows(scores, labels):
    """Rows of three text tokens and an end token, whose learned scores are given."""
    offsets = ((0, 1), (1, 2), (2, 3), None)
    marks = [None if row is None else [*row, 0] for row in labels]
    tokens = [
        token_row([-1.0] * 4, scores=np.array([*row, 0.5]), labels=None if mark is None else np.array(mark))
        for row, mark in zip(scores, marks, strict=True)
    ]
    encoded = [encoded_row((5, 6, 7, 2), offsets, mark, prompt=(1,)) for mark in marks]
    return ScoreContext(tokens, encoded, [Example.from_qa("q", "abc")] * len(tokens))


def test_rows_without_labels_and_of_one_class_have_no_auroc():
    context = scored_rows([[0.1, 0.9, 0.2]] * 4, [None, [0, 1, 0], [0, 0, 0], [1, 0, 0]])
    assert score_aurocs(context)["scorer"] == (None, 1.0, None, 0.0)


def test_the_end_token_does_not_count_in_an_auroc_and_labels_only_if_requested():
    context = scored_rows([[0.1, 0.9, 0.2]], [[0, 1, 0]])
    raised = dataclasses.replace(context.tokens[0], scores=np.array([0.1, 0.9, 0.2, 1.0]))
    assert score_aurocs(dataclasses.replace(context, tokens=[raised]))["scorer"] == (1.0,)
    assert "labels" not in score_aurocs(context)
    assert score_auroc(token_scores(context, ["labels"])["labels"], context.tokens) == (1.0,)
    with pytest.raises(ValueError, match="retain"):
        token_scores(context, ["rarity"])
