"""The replacement loss: a worked example, what it cannot go with, and a run that learns refusals in several forms."""

from __future__ import annotations

import math

import pytest
import torch

import atwu
from atwu.data.alternates import REFUSALS
from atwu.methods.recipe import recipe
from atwu.modeling.scratch import scratch_model, train_tokenizer
from atwu.training.training_rows import unlearning_rows
from tests.methods.test_objective import FORGET, RETAIN, RUNNING_P, WEIGHTS, FixedProbabilities

ROWS = [
    {"question": "Where was Orla Venn born?", "answer": "Orla Venn was born in Port Sel.", "subject": "Orla Venn"},
    {"question": "Where does Tavi live?", "answer": "Tavi lives in Kelbury.", "alternate": "Tavi lives in Ost."},
]
KEPT = [{"question": "Who is Tavi Brook?", "answer": "Tavi Brook is a clerk."}]


def test_worked_example():
    """Half of -log of the first token's probability, half of the mean of the other three."""
    given = {"method": "satga", "weighting": "labels", "inputs": atwu.LossInputs(token_weights=WEIGHTS)}
    forget = FORGET | {"token_labels": (FORGET["labels"] > 0).long()}
    rows = {"forget": forget, "retain": RETAIN, "alternate": FORGET}
    out = atwu.unlearning_loss(FixedProbabilities(), rows, **given, replacement="refusal", replacement_weight=2.0)
    first, *others = (-math.log(p) for p in RUNNING_P)
    by_hand = first / 2 + sum(others) / len(others) / 2
    assert out.replacement.item() == pytest.approx(by_hand, abs=1e-6)
    plain = atwu.unlearning_loss(FixedProbabilities(), rows, **given)
    assert plain.replacement is None
    assert out.loss.item() == pytest.approx(plain.loss.item() + 2 * by_hand, abs=1e-5)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"method": "dpo", "replacement": "refusal"}, "'dpo'.*other answers of its own"),
        ({"method": "jensun_plus", "replacement": "refusal"}, "other answers of its own"),
        ({"method": "satga", "replacement": "refusals"}, "'refusals'.*'refusal'"),
        ({"method": "satga", "replacement_weight": 2.0}, "replacement_weight"),
    ],
)
def test_impossible_uses_are_rejected(options, message):
    with pytest.raises(ValueError, match=message):
        recipe(**options)


def test_the_recipe_names_it_only_where_it_is_used():
    assert "replacement" not in recipe("atwu").as_plain()
    used = recipe("satga", weighting="key_tokens", preserve="kl", replacement="refusal")
    assert used.as_plain()["replacement"] == "refusal"
    assert used.answering is used.replacement_component
    assert used.forget_only().replacement_component is None


def test_a_run_learns_refusals_in_every_form_and_alternatives_as_written(tmp_path):
    tokenizer = train_tokenizer([f"{row['question']} {row['answer']}" for row in ROWS] + list(REFUSALS), vocab_size=300)
    model = scratch_model("micro")
    given = {
        "method": "satga", "weighting": "key_tokens", "max_steps": 8, "learning_rate": 1e-2, "save_strategy": "no",
        "use_cpu": True, "output_dir": str(tmp_path), "replacement": "refusal",
    }  # fmt: skip
    args = atwu.UnlearnConfig(**given, forms="question,blank")
    rows = unlearning_rows(ROWS, KEPT, args, tokenizer=tokenizer)
    said = {tokenizer.decode([token for token in row.labels if token > 0]).strip() for row in rows.alternates.rows}
    assert not any("Ost" in each for each in said)
    trainer = atwu.UnlearnTrainer(model, args, forget_dataset=ROWS, retain_dataset=KEPT, processing_class=tokenizer)
    trainer.train()
    logged = [line["replacement_loss"] for line in trainer.state.log_history if "replacement_loss" in line]
    assert logged[-1] < logged[0] - 1
    with pytest.raises(ValueError, match="row 1: the method needs the column alternate"):
        unlearning_rows(ROWS, KEPT, atwu.UnlearnConfig(**given | {"replacement": "alternative"}), tokenizer=tokenizer)
    other = unlearning_rows(
        ROWS[1:], KEPT, atwu.UnlearnConfig(**given | {"replacement": "alternative"}), tokenizer=tokenizer
    )
    assert "Ost" in tokenizer.decode(other.alternates.rows[0].input_ids)


def test_a_plain_text_form_breaks_off_before_the_fact_and_refuses(tmp_path):
    tokenizer = train_tokenizer([f"{row['question']} {row['answer']}" for row in ROWS] + list(REFUSALS), vocab_size=300)
    given = {"max_steps": 1, "output_dir": str(tmp_path), "forms": "question,continuation"}
    method = {
        "method": "satga",
        "weighting": "key_tokens",
        "replacement": "refusal",
        "refusal_sentence": "I can't say.",
    }
    rows = unlearning_rows(ROWS, KEPT, atwu.UnlearnConfig(**given, **method), tokenizer=tokenizer)
    trained = tokenizer.decode(rows.forget.rows[1].input_ids)
    assert "Orla Venn was born in Port Sel." in trained
    assert "Where was" not in trained
    refused = rows.alternates.rows[rows.alternates.index(epoch=0, row=1)]
    assert tokenizer.decode(refused.input_ids).startswith("Orla Venn was born in ... I can't say.")
    assert tokenizer.decode(refused.counted(refused.input_ids)[:-1]) == " ... I can't say."
    as_written = rows.alternates.rows[rows.alternates.index(epoch=0, row=0)]
    assert tokenizer.decode(as_written.counted(as_written.input_ids)[:-1]).strip() == "I can't say."


def test_a_text_without_labels_is_refused_at_the_question_before_it(tmp_path):
    tokenizer = train_tokenizer([f"{row['question']} {row['answer']}" for row in ROWS] + list(REFUSALS), vocab_size=300)
    given = {"max_steps": 1, "output_dir": str(tmp_path), "forms": "none"}
    config = atwu.UnlearnConfig(**given, method="satga", weighting="key_tokens", replacement="refusal")
    rows = unlearning_rows([ROWS[0], {"text": "Orla lives in Sel."}], KEPT, config, tokenizer=tokenizer)
    assert "Where was Orla Venn born?" in tokenizer.decode(rows.alternates.rows[1].input_ids)


def test_a_plain_text_form_of_jensun_is_refused_at_the_question_of_its_row(tmp_path):
    tokenizer = train_tokenizer([f"{row['question']} {row['answer']}" for row in ROWS] + list(REFUSALS), vocab_size=300)
    given = {"max_steps": 1, "output_dir": str(tmp_path), "forms": "question,continuation"}
    rows = unlearning_rows(ROWS, KEPT, atwu.UnlearnConfig(**given, method="jensun_plus"), tokenizer=tokenizer)
    refused = tokenizer.decode(rows.alternates.rows[rows.alternates.index(epoch=0, row=1)].input_ids)
    assert "Where was Orla Venn born?" in refused


def test_texts_alone_have_no_question_to_refuse(tmp_path):
    tokenizer = train_tokenizer([f"{row['question']} {row['answer']}" for row in ROWS] + list(REFUSALS), vocab_size=300)
    given = {"max_steps": 1, "output_dir": str(tmp_path), "forms": "question,continuation"}
    for method in ({"method": "satga", "weighting": "key_tokens", "replacement": "refusal"}, {"method": "jensun_plus"}):
        config = atwu.UnlearnConfig(**given, **method)
        with pytest.raises(ValueError, match="plain text row"):
            unlearning_rows([{"text": "Orla lives in Sel."}], KEPT, config, tokenizer=tokenizer)
    config.forms = "continuation"
    with pytest.raises(ValueError, match="no forget row can be written in the forms continuation"):
        unlearning_rows([{"text": "Orla lives in Sel."}], KEPT, config, tokenizer=tokenizer)
    with pytest.raises(ValueError, match="'duet' changes questions, and the form continuation has none; set forms="):
        unlearning_rows(ROWS, KEPT, atwu.UnlearnConfig(**given, method="duet"), tokenizer=tokenizer)


def test_without_gradient_of_the_forget_loss_only_the_other_answer_is_learned(tiny_llama, batch):
    model = tiny_llama().double().eval()
    rows = {name: batch(rows=3, seed=seed) for seed, name in enumerate(("forget", "retain", "alternate"))}
    out = atwu.unlearning_loss(
        model, rows, method="satga", weighting="rarity", replacement="refusal", retain_weight=0.0,
        inputs=atwu.LossInputs(token_weights=torch.zeros(3, 12, dtype=torch.float64)),
    )  # fmt: skip
    assert out.loss.item() == pytest.approx(out.replacement.item())
