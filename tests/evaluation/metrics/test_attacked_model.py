"""All attacks on one tiny model: quantization changes little, relearning recovers related rows, the model is restored."""

from __future__ import annotations

import numpy as np

from atwu.data.encode import Encoder
from atwu.data.schema import Example
from atwu.evaluation.metrics.families import probes
from atwu.evaluation.metrics.memorization import answer_probability
from atwu.evaluation.metrics.quantization_attack import quantized_weights
from atwu.evaluation.metrics.relearning import attack_rows, relearned
from atwu.evaluation.metrics.weight_attacks import recovered
from atwu.evaluation.teacher_forced import read_tokens
from atwu.modeling.fingerprint import model_fingerprint
from atwu.modeling.scratch import scratch_model, train_tokenizer

NAMES = ("Orla Venn", "Tavi Brook", "Ines Marr", "Jon Tull")
ROWS = [Example.from_qa(f"What does {name} keep?", "Seven grey geese.", subject=name) for name in NAMES]
OTHERS = [Example.from_qa(f"Who sells {what}?", f"The stall with {what}.") for what in ("honey", "salt", "rope")]


def probabilities(model, rows):
    return np.array([answer_probability(row.logps) for row in read_tokens(model, rows)])


def test_all_attacks_run_on_one_model():
    tokenizer = train_tokenizer([f"{row.question} {row.answer}" for row in ROWS], vocab_size=300)
    encoder = Encoder(tokenizer)
    rows = encoder.encode_rows(ROWS, what="rows").rows
    model = scratch_model("micro")
    shown, held_out = attack_rows(ROWS, 1, seed=0)
    kept = [rows[index] for index in held_out]
    fingerprint, before = model_fingerprint(model), probabilities(model, kept)
    with relearned(model, rows, steps=60, learning_rate=1e-2):
        original = probabilities(model, kept)
        with quantized_weights(model, 8):
            np.testing.assert_allclose(probabilities(model, kept), original, atol=0.02)
    with relearned(model, [rows[index] for index in shown], steps=60, learning_rate=1e-2):
        after = probabilities(model, kept)
    share = recovered(before, after, original)
    assert original.min() > 0.9
    assert (share > 0.2).all()
    np.testing.assert_array_equal(probabilities(model, kept), before)
    assert model_fingerprint(model) == fingerprint
    asked = [probe for row in ROWS for probe in probes(row, OTHERS, seed=0).values()]
    lengths = [
        len(encoder.encode_prompt(Example(probe.prompt.messages, probe.unanswered.reference))) for probe in asked
    ]
    assert len(asked) == 9 * len(ROWS)
    assert min(lengths) > 0
