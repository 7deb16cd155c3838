"""What single methods do over a run: the retain weight of PDU, own answers of BS-S and ELM, the direction of LUNAR."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from transformers import AutoModelForCausalLM

from atwu import UnlearnConfig, UnlearnTrainer
from atwu.data.encode import Encoder
from atwu.data.schema import IGNORE_INDEX, Example
from atwu.methods.losses.representation import REFUSED
from atwu.modeling.generate import generate
from atwu.modeling.load import load_tokenizer
from atwu.training.training_rows import _SAMPLE, unlearning_rows, up_to_next_turn
from tests.training.conftest import make_rows, make_trainer, weights

PDU = {
    "method": "pdu",
    "retain_weight": 2.0,
    "retain_bound": 1.0,
    "dual_step": 0.5,
    "dual_warmup": 0.0,
    "max_steps": 4,
}
BS_S = {"method": "bs_s", "forget": 8, "save_strategy": "steps", "save_steps": 1, "save_total_limit": 4}


def with_retain_weight(trainer):
    return [entry for entry in trainer.state.log_history if "retain_weight" in entry]


def test_the_weight_of_pdu_follows_the_retain_loss_of_each_optimizer_step(model_folder, tmp_path):
    """Micro-batches of 2 x 2 give the weights of batches of 4, which are those of the formula."""
    found = []
    for also in ({}, {"per_device_train_batch_size": 2, "gradient_accumulation_steps": 2}):
        trainer = make_trainer(model_folder, tmp_path, **PDU, **also)
        trainer.train()
        found.append([entry["retain_weight"] for entry in with_retain_weight(trainer)])
    expected, weight = [], 2.0
    for entry in with_retain_weight(trainer):
        expected.append(weight)
        weight = max(0.0, weight + 0.5 * (entry["retain_loss"] - 1.0))
    assert found[1] == pytest.approx(expected, rel=1e-5)
    assert found[0] == pytest.approx(found[1], rel=1e-4)
    assert trainer.recipe.values["retain_weight"] == 2.0  # the record keeps the initial value


def test_the_weight_of_pdu_stays_constant_before_the_warmup_ends(model_folder, tmp_path):
    """24 rows in batches of 4: 6 steps an epoch."""
    trainer = make_trainer(model_folder, tmp_path, **PDU | {"dual_warmup": 1.0, "max_steps": 9})
    trainer.train()
    changed = [entry["retain_weight"] != 2.0 for entry in with_retain_weight(trainer)]
    assert changed == [False] * 7 + [True] * 2


def test_own_answers_follow_their_questions_and_change_with_the_epoch(model_folder, tmp_path):
    """8 rows in batches of 4: 2 steps an epoch. A run resumed within an epoch goes on with its answers."""
    whole = make_trainer(model_folder, tmp_path / "whole", **BS_S)
    seen = []
    forward = whole._token_loss

    def spied(model, inputs, counts):
        seen.append({name: rows.clone() for name, rows in inputs["alternate"].items()} | {"rows": inputs["rows"]})
        return forward(model, inputs, counts)

    whole._token_loss = spied
    whole.train()
    by_epoch = []
    for steps in (seen[:2], seen[2:]):
        answers = {}
        for step in steps:
            for row, ids, labels in zip(step["rows"].tolist(), step["input_ids"], step["labels"], strict=True):
                prompt = torch.tensor(whole.rows.forget.rows[row].prompt_ids)
                assert torch.equal(ids[: len(prompt)], prompt)
                assert (labels[: len(prompt)] == IGNORE_INDEX).all()
                answers[row] = labels[labels != IGNORE_INDEX].tolist()
        assert len(answers) == 8
        assert all(answers.values())
        by_epoch.append(answers)
    assert by_epoch[0] != by_epoch[1]
    for checkpoint in (1, 2):
        again = make_trainer(model_folder, tmp_path / f"again-{checkpoint}", **BS_S)
        again.train(resume_from_checkpoint=str(tmp_path / "whole" / f"checkpoint-{checkpoint}"))
        assert torch.equal(weights(again), weights(whole))


@pytest.mark.night  # by day: other own answers, above, and the loss in tests/test_every_method.py
def test_own_answers_of_elm_come_from_the_original_model_and_stay(model_folder, tmp_path):
    """A run resumed within the second epoch goes on with the answers of its checkpoint."""
    options = BS_S | {"method": "elm", "eta": 10.0}
    whole = make_trainer(model_folder, tmp_path / "whole", **options)
    seen = []
    forward = whole._token_loss

    def spied(model, inputs, counts):
        labels = inputs["alternate"]["labels"]
        each = zip(inputs["rows"].tolist(), labels, strict=True)
        seen.extend((row, own[own != IGNORE_INDEX].tolist()) for row, own in each)
        return forward(model, inputs, counts)

    whole._token_loss = spied
    whole.train()
    assert dict(seen[:8]) == dict(seen[8:])
    asked = [list(row.prompt_ids) for row in whole.rows.forget.rows]
    expert, novice = ([list(row.prompt_ids) for row in whole.rows.prompted[name]] for name in ("expert", "novice"))
    original, tokenizer = AutoModelForCausalLM.from_pretrained(model_folder), whole.processing_class
    assert whole.recipe.settings["novice_prompt"] in tokenizer.decode(novice[0])
    for row, answer in dict(seen).items():
        seed = int(np.random.default_rng([_SAMPLE, whole.args.seed, 0, row]).integers(2**63))
        drawn, *_ = generate(
            original,
            tokenizer,
            [asked[row], expert[row], novice[row]],
            max_new_tokens=len(answer),
            temperature=1.0,
            noise_seeds=[seed] * 3,
            factors=(1.0, -3.0, 3.0),
            progress=False,
        )
        assert list(drawn) == answer[: len(drawn)]
        assert len(drawn) >= len(answer) - 1
    again = make_trainer(model_folder, tmp_path / "again", **options)
    again.train(resume_from_checkpoint=str(tmp_path / "whole" / "checkpoint-3"))
    assert torch.equal(weights(again), weights(whole))


def test_lunar_counts_every_token_of_a_row_once(model_folder, tmp_path):
    trainer = make_trainer(model_folder, tmp_path, method="lunar", forget=4, layer=0)
    assert trainer.rows.retain is not None
    for rows in (trainer.rows.forget, trainer.rows.retain):
        for row in rows.rows:
            assert row.input_ids[-1] != row.input_ids[-2]
            assert row.labels == (-100, *row.input_ids[1:])


def test_lunar_moves_one_matrix_towards_refused_questions(model_folder, tmp_path):
    trainer = make_trainer(model_folder, tmp_path, method="lunar", forget=4, max_steps=20, learning_rate=1e-2, layer=0)
    model, tokenizer = trainer.loaded.model, trainer.processing_class
    before = {name: weight.detach().clone() for name, weight in model.named_parameters()}

    def end_of(questions):
        encoder = Encoder(tokenizer)
        prompts = [encoder.encode(Example.from_qa(question, "-")).prompt_ids for question in questions]
        with torch.no_grad():
            states = [model(torch.tensor([ids]), output_hidden_states=True).hidden_states[1][0, -1] for ids in prompts]
        return torch.stack(states).mean(0)

    asked = [row.question for row in trainer.rows.forget.examples]
    start = end_of(asked)
    direction = end_of(REFUSED) - start
    torch.testing.assert_close(trainer.precomputed.refusal_direction, direction, atol=1e-5, rtol=1e-4)
    trainer.train()
    changed = [name for name, weight in model.named_parameters() if not torch.equal(weight, before[name])]
    assert changed == ["model.layers.0.mlp.down_proj.weight"]
    assert torch.cosine_similarity(end_of(asked) - start, direction, dim=0) > 0.5
    mixed = [{"question": "Who?", "answer": "Orla."}, {"text": "Orla."}]
    with pytest.raises(ValueError, match="row 2: a plain text row has no question to redirect"):
        unlearning_rows(mixed, make_rows(2, 30), trainer.args, tokenizer=tokenizer)


@pytest.mark.parametrize(
    ("written", "kept"),
    [
        (" In Kelbury.\n\nQuestion: Who?\nAnswer: No", " In Kelbury."),
        (" In Kelbury.\nQuite.", " In Kelbury.\nQuite."),
        ("\nQuestion:", ""),
    ],
)
def test_own_samples_end_before_a_question_that_the_model_invents(written, kept, model_folder):
    tokenizer = load_tokenizer(str(model_folder))
    tokenizer.chat_template = None
    assert tokenizer.decode(up_to_next_turn(tuple(tokenizer(written)["input_ids"]), tokenizer)) == kept
    tokenizer.chat_template = "{{ messages }}"
    assert tokenizer.decode(up_to_next_turn(tuple(tokenizer(written)["input_ids"]), tokenizer)) == written


def test_a_model_in_memory_needs_its_tokenizer(model_folder, tmp_path):
    config = UnlearnConfig(output_dir=str(tmp_path), use_cpu=True)
    with pytest.raises(ValueError, match="needs the tokenizer; pass it as processing_class"):
        UnlearnTrainer(
            AutoModelForCausalLM.from_pretrained(model_folder),
            config,
            forget_dataset=make_rows(4),
            retain_dataset=make_rows(4, 4),
        )
