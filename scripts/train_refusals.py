"""Compute the weights of `is_refusal` from labelled answers: `python scripts/train_refusals.py`.

Reads scripts/refusal_examples.jsonl (`language`, `refusal`, `question`, `text`), the refusals that the package itself teaches,
and the answers of a small model to general questions that it ships, which are no refusals. Writes
src/atwu/judge/rules/refusals.safetensors. With `--folds N` it writes nothing, and prints how the answers of
each N-th are told by the weights from the others.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import save_file
from scipy.sparse import csr_matrix
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import StratifiedKFold

from atwu.data.alternates import REFUSALS
from atwu.judge.rules.refusals import FEATURES, HASHES, WEIGHTS_FILE, refusal_features

EXAMPLES = Path(__file__).with_name("refusal_examples.jsonl")
ANSWERS = Path(str(files("atwu.evaluation").joinpath("shipped_generations.json")))
LEAST_ANSWERS = 2
"""Answers in which a word, or part of one, must be to have a weight."""
INVERSE_PENALTY = 1.5
"""C of scikit-learn; 1.5 to 15 tell the folds equally well."""
PLAIN_WEIGHT = 0.1
"""Of a shipped answer, since all of them are English and easy."""


def examples() -> list[dict[str, Any]]:
    """Return the labelled answers of the file."""
    return [json.loads(line) for line in EXAMPLES.read_text(encoding="utf-8").splitlines()]


def further_examples() -> list[dict[str, Any]]:
    """Return the refusals that are taught, and plain answers, without which every long answer would be taken for a refusal."""
    shipped = json.loads(ANSWERS.read_text(encoding="utf-8")).values()
    taught = [{"refusal": True, "question": "", "text": text} for text in REFUSALS]
    plain = [
        {"refusal": False, "question": "", "text": text, "weight": PLAIN_WEIGHT} for text, _ in shipped if text.strip()
    ]
    return taught + plain


def train(answers: Sequence[dict[str, Any]]) -> np.ndarray:
    """Return the weights, of shape (FEATURES,)."""
    answers = [*answers, *further_examples()]
    features = [refusal_features(answer["text"], answer["question"]) for answer in answers]
    rows = np.concatenate([np.full(len(places), row) for row, (places, _) in enumerate(features)])
    columns, values = (np.concatenate(parts) for parts in zip(*features, strict=True))
    inputs = csr_matrix((values, (rows, columns)), shape=(len(answers), FEATURES))
    frequency = np.asarray((inputs > 0).sum(axis=0)).ravel()
    # Rare words tell more; with the inverse document frequency they may have larger weights at the same penalty.
    scale = np.log((1 + len(answers)) / (1 + frequency)) + 1
    scale[frequency < LEAST_ANSWERS] = 0
    scale[HASHES:] = 1
    model = LogisticRegression(C=INVERSE_PENALTY, max_iter=3000, fit_intercept=False)
    model.fit(
        inputs.multiply(scale).tocsr(),
        [answer["refusal"] for answer in answers],
        sample_weight=[answer.get("weight", 1.0) for answer in answers],
    )
    return (model.coef_[0] * scale).astype(np.float16)


def cross_validate(answers: Sequence[dict[str, Any]], folds: int) -> None:
    """Print precision and recall on answers that the weights were not computed from, by language."""
    labels = np.array([answer["refusal"] for answer in answers])
    found = np.zeros(len(answers), bool)
    for train_places, test_places in StratifiedKFold(folds, shuffle=True, random_state=0).split(labels, labels):
        weights = train([answers[place] for place in train_places]).astype(np.float64)
        for row in test_places:
            places, values = refusal_features(answers[row]["text"], answers[row]["question"])
            found[row] = weights[places] @ values > 0
    languages = np.array([answer["language"] for answer in answers])
    for language in [*sorted(set(languages)), "all"]:
        chosen = (languages == language) | (language == "all")
        right = (found & labels & chosen).sum()
        recall, precision = right / (labels & chosen).sum(), right / (found & chosen).sum()
        print(f"{language}: recall {recall:.3f}, precision {precision:.3f}, {chosen.sum()} answers")


def main() -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(description=str(__doc__).splitlines()[0])
    parser.add_argument("--folds", type=int, metavar="N", help="print how well N folds are told by the others")
    options = parser.parse_args()
    if options.folds:
        cross_validate(examples(), options.folds)
    else:
        save_file({"weights": train(examples())}, WEIGHTS_FILE)


if __name__ == "__main__":
    main()
