"""Compute the weights of `is_refusal` from labelled answers: `python scripts/train_refusals.py`.

Reads scripts/refusal_examples.jsonl (`language`, `refusal`, `question`, `text`), the refusals of the package itself, and
plain answers: sentences of everyday life (scripts/plain_sentences.jsonl), answers of a small model to general questions, names,
and frequent words. Writes
src/atwu/judge/rules/refusals.safetensors. With `--folds N` it writes nothing, and prints how the answers of each N-th are
told by the weights from the others.
"""

from __future__ import annotations

import argparse
import json
from collections import Counter
from collections.abc import Sequence
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import save_file
from scipy.sparse import csr_matrix
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import StratifiedKFold
from wordfreq import top_n_list

from atwu.data.alternates import REFUSALS
from atwu.judge.rules.refusals import FEATURES, HASHES, WEIGHTS_FILE, refusal_features
from atwu.methods.weightings.related_names import names_by_kind

EXAMPLES = Path(__file__).with_name("refusal_examples.jsonl")
SENTENCES = Path(__file__).with_name("plain_sentences.jsonl")
ANSWERS = Path(str(files("atwu.evaluation").joinpath("shipped_generations.json")))
LEAST_ANSWERS = 2
"""Answers in which a word, or part of one, must be to have a weight."""
INVERSE_PENALTY = 1.5
"""C of scikit-learn; 1.5 to 15 tell the folds equally well."""
SHIFT = 0.8
"""Added to the log-odds, so that the folds have about the same recall and precision (in steps of .2)."""
PLAIN_WEIGHT = 0.1
"""Of a shipped answer or a word, since these are easy."""
SENTENCE_WEIGHT = 0.3
"""Of a plain sentence, such as "Ich liebe dich.": with 1, fewer of the hard answers are found."""
LANGUAGES = ("ar", "de", "en", "es", "fr", "it", "ja", "ko", "nl", "pt", "ru", "zh")
WORDS = slice(2000, 12000, 200)
"""Ranks of frequent words that stand for answers of a word or two; more frequent ones are words of refusals, too."""


def examples() -> list[dict[str, Any]]:
    """Return the labelled answers of the file."""
    return [json.loads(line) for line in EXAMPLES.read_text(encoding="utf-8").splitlines()]


def further_examples() -> list[dict[str, Any]]:
    """Return the refusals of the package, and plain answers, long and short, which would be taken for refusals otherwise."""
    shipped = json.loads(ANSWERS.read_text(encoding="utf-8")).values()
    short = [name for names in names_by_kind().values() for name in names]
    for language in LANGUAGES:
        words = top_n_list(language, WORDS.stop)[WORDS.start :: WORDS.step]
        short += [*words, *map(" ".join, zip(words[::2], words[1::2], strict=False))]
    own = [{"refusal": True, "question": "", "text": text} for text in REFUSALS]
    plain = [
        {"refusal": False, "question": "", "text": text, "weight": PLAIN_WEIGHT}
        for text in [*short, *(text for text, _ in shipped if text.strip())]
    ]
    sentences = [json.loads(line)["text"] for line in SENTENCES.read_text(encoding="utf-8").splitlines()]
    plain += [{"refusal": False, "question": "", "text": text, "weight": SENTENCE_WEIGHT} for text in sentences]
    return own + plain


def balance(answers: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return answers with a weight, so that refusals and others have the same in each language."""
    counts = Counter((answer["language"], answer["refusal"]) for answer in answers)
    balanced = []
    for answer in answers:
        language, refusal = answer["language"], answer["refusal"]
        weight = 1.0
        if not refusal:
            weight = counts[language, True] / counts[language, False]
        balanced.append({**answer, "weight": weight})
    return balanced


def train(answers: Sequence[dict[str, Any]]) -> np.ndarray:
    """Return the weights, of shape (FEATURES,)."""
    answers = [*balance(answers), *further_examples()]
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
    weights = model.coef_[0] * scale
    weights[-1] += SHIFT
    return weights.astype(np.float16)


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
