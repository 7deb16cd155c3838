"""How often does a model that is asked again in paraphrases get the same verdict, by the rule before and by the rule now?

    python benchmarks/verdict_stability.py --output benchmarks/results/verdict-stability.md

A simulation from answer probabilities. A fact has a tendency to be stated, drawn once per model from a beta distribution. A
measurement draws the paraphrases anew, so that each answer states its fact with that tendency, changed by the form. Two
measurements of one model give two verdicts, which are equal or not. The rule before took the mean of each of 15 forms over
the facts and compared the worst with .1; the rule now takes the share of all answers, and the question as written, which
both measurements ask alike.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np

from atwu.data.arrays import FloatArray
from atwu.request.verdict import STATING_LIMIT

FACTS, FORMS = 12, 15
MODELS, MEASUREMENTS = 2000, 2
MEANS = (0.002, 0.005, 0.01, 0.015, 0.02, 0.03, 0.05, 0.1)
"""Mean tendencies of facts to be stated: from a model that forgot to one that did not."""
CONCENTRATION = 0.5
"""Sum of the parameters of the beta distribution of a fact's tendency: below 1, a few facts make most of the leaks."""
FORM_SPREAD = 0.8
"""Standard deviation of a form's logarithmic factor on the tendency: some forms bring more out than others."""
WORST_FORM_LIMIT = 0.1


def stated_answers(mean: float, draw: np.random.Generator) -> np.ndarray:
    """Draw which answers state their fact, shape (models, measurements, facts, forms)."""
    tendency = draw.beta(CONCENTRATION * mean, CONCENTRATION * (1 - mean), (MODELS, 1, FACTS, 1))
    form = np.exp(FORM_SPREAD * draw.standard_normal((MODELS, 1, 1, FORMS)) - FORM_SPREAD**2 / 2)
    chance = np.clip(tendency * form, 0, 1)
    return draw.random((MODELS, MEASUREMENTS, FACTS, FORMS)) < chance


def forgotten_before(stated: np.ndarray) -> np.ndarray:
    """Apply the rule before: no form is recalled above .1 in the mean over facts. Shape (models, measurements)."""
    worst: np.ndarray = stated.mean(2).max(2)
    return worst <= WORST_FORM_LIMIT


def forgotten_now(stated: np.ndarray, *, same_question: bool = True) -> np.ndarray:
    """Apply the rule now: few answers of all state a fact, and none to its own question. Shape (models, measurements).

    Args:
        stated: as from `stated_answers`. The first form stands for the question as written.
        same_question: the question as written is the same in both measurements, and so is its greedy answer.
    """
    own = stated[:, :, :, 0].any(2)
    if same_question:
        own = own[:, :1]
    return (stated.mean((2, 3)) <= STATING_LIMIT) & ~own


def equal_share(verdicts: np.ndarray) -> float:
    """Return the share of models whose measurements agree."""
    return float((verdicts[:, 0] == verdicts[:, 1]).mean())


def table() -> tuple[list[str], FloatArray]:
    """Return the lines of the table, and per mean tendency the shares of equal verdicts of each column."""
    lines = [
        "| mean share of answers that state a fact | forgotten: before, now | same verdict twice: before | now | "
        "now, if the question as written were another one, too |",
        "|---:|---:|---:|---:|---:|",
    ]
    shares = []
    for place, mean in enumerate(MEANS):
        stated = stated_answers(mean, np.random.default_rng(place))
        before, now = forgotten_before(stated), forgotten_now(stated)
        other = forgotten_now(stated, same_question=False)
        shares.append((equal_share(before), equal_share(now), equal_share(other)))
        lines.append(
            f"| {mean:.3f} | {before.mean():.2f}, {now.mean():.2f} | "
            + " | ".join(f"{share:.3f}" for share in shares[-1])
            + " |"
        )
    return lines, np.array(shares)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--output", type=Path, default=Path("benchmarks/results/verdict-stability.md"))
    lines, shares = table()
    text = [
        "# Is the same model judged alike twice?",
        "",
        f"{MODELS} simulated models for each line, {FACTS} facts in {FORMS} forms, two measurements with other paraphrases "
        "(`python benchmarks/verdict_stability.py`; its first lines state the assumptions). *Before*: no form above .1 in the "
        f"mean over facts. *Now*: at most {100 * STATING_LIMIT:g} % of all answers, and no fact to its own question.",
        "",
        *lines,
        "",
        f"Least agreement: {shares[:, 0].min():.3f} before, {shares[:, 1].min():.3f} now. The part about the question as "
        f"written would turn over with its words ({shares[:, 2].min():.3f}); it stays, because this is the question of "
        "which a person expects no answer. How facts and forms spread is assumed, not measured.",
    ]
    given = parser.parse_args()
    given.output.write_text("\n".join(text) + "\n", encoding="utf-8")
    print("\n".join(text))


if __name__ == "__main__":
    main()
