"""Fit the coefficients of the weighting `key_token_model`, or measure it beside other weightings.

python scripts/fit_key_token_model.py                   writes the table of coefficients in the package
python scripts/fit_key_token_model.py --spans FILE      AUROC per row on tofu_data/forget10_filtered.json of
    github.com/gnueaj/unlearning-depth-score; ATWU_DATA is the folder that holds TOFU. Features and penalty were chosen on
    its first ten authors, so the last ten are the result.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import re
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import yaml

from atwu._file_reading import read_yaml
from atwu.benchmarks.people.people_rows import people
from atwu.data.schema import Example
from atwu.methods.weightings.key_token_model import TABLE, word_features
from atwu.methods.weightings.rarity import UNIT, WordCounts

ROWS = Path(__file__).with_name("key_token_rows.yaml")
PEOPLE_ROWS, PEOPLE_SHARE = 400, 0.2
"""Rows of `people:base:retain` that are fitted, and their share of the total weight; each row of a source weighs the same."""
PENALTY = 3e-3
"""Squared penalty on coefficients of standardized features, beside the mean cross entropy."""
HEADER = """\
# Coefficients of the weighting `key_token_model`, written by `python scripts/fit_key_token_model.py`.
# AUROC on entity spans of TOFU: `python scripts/fit_key_token_model.py --spans FILE`, figures in docs/research.md.
"""
AUTHORS = 10
"""Authors of the spans on which features were chosen; the others are for reporting."""


def marked_rows() -> Iterator[Example]:
    """Read the rows with key tokens in square brackets."""
    for subject, rows in read_yaml(ROWS).items():
        for question, marked in rows.items():
            plain, spans = "", []
            for piece in re.split(r"(\[[^]]+\])", marked):
                text = piece.strip("[]")
                if text != piece:
                    spans.append((len(plain), len(plain) + len(text)))
                plain += text
            if not spans:
                raise SystemExit(f"{ROWS.name}: the answer to {question!r} marks no [key tokens]; mark some.")
            yield Example.from_qa(question, plain, forget_spans=tuple(spans), subject=subject)


def read(rows: Sequence[Example], counts: WordCounts, weight: float) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return features, labels and weights of all words of some rows."""
    features, labels, weights = [], [], []
    for row in rows:
        features.append(np.stack([*word_features(row, counts).values()], axis=1))
        places = [unit.span() for unit in UNIT.finditer(row.answer)]
        labels += [any(start < b and a < end for a, b in row.forget_spans or ()) for start, end in places]
        weights += [weight / len(places)] * len(places)
    return np.concatenate(features), np.array(labels), np.array(weights)


def fit() -> None:
    """Fit on the rows of this folder and on people, and write the table."""
    from sklearn.linear_model import LogisticRegression
    from sklearn.preprocessing import StandardScaler

    own = [*marked_rows()]
    parts = []
    for subject in dict.fromkeys(row.subject for row in own):
        others = WordCounts.of(row for row in own if row.subject != subject)
        parts.append(read([row for row in own if row.subject == subject], others, (1 - PEOPLE_SHARE) / len(own)))
    invented = people("base").retain
    counts = WordCounts.of(invented[PEOPLE_ROWS:])
    parts.append(read(invented[:PEOPLE_ROWS], counts, PEOPLE_SHARE / PEOPLE_ROWS))
    features, labels, weights = (np.concatenate(arrays) for arrays in zip(*parts, strict=True))
    scaler = StandardScaler().fit(features, sample_weight=weights)
    model = LogisticRegression(C=1 / PENALTY, solver="newton-cholesky")
    model.fit(scaler.transform(features), labels, sample_weight=weights)
    found = model.coef_[0] / scaler.scale_
    table = {
        "intercept": round(float(model.intercept_[0] - found @ scaler.mean_), 4),
        "coefficients": {
            name: round(float(value), 4) for name, value in zip(word_features(own[0], counts), found, strict=True)
        },
    }
    TABLE.write_text(HEADER + yaml.safe_dump(table, sort_keys=False), encoding="utf-8")
    print(f"{TABLE}: {len(found)} coefficients from {len(labels)} words of {len(own) + PEOPLE_ROWS} rows")


def measure(spans: Path, noun_finder: str) -> None:
    """Print the AUROC per row of weightings on entity spans: mean, standard deviation, interval over authors."""
    from atwu.benchmarks.sources import load_rows
    from atwu.data.encode import Encoder
    from atwu.evaluation.auroc import per_sample_auroc
    from atwu.evaluation.intervals import Resampler, combine
    from atwu.methods.component_inputs import PrecomputeContext
    from atwu.methods.component_registry import WEIGHTINGS
    from atwu.modeling.open_model import ModelLoadArgs, open_model

    rows, retain = [], load_rows("tofu:retain90").rows
    for record in json.loads(spans.read_text(encoding="utf-8")):
        start = record["answer"].index(record["entity"], max(0, len(record["prefix"]) - 1))
        span = (start, start + len(record["entity"]))
        rows.append((record["idx"] // 20, Example.from_qa(record["question"], record["answer"], forget_spans=(span,))))
    encoder = Encoder(open_model("smollm2", ModelLoadArgs())[1])
    kept = encoder.encode_rows(retain, what="retain").rows
    finders = [{"noun_finder": finder} for finder in ("simple", noun_finder)]
    compared = [("key_token_model", {}), *(("rare_nouns", finder) for finder in finders)]
    compared += [(name, {}) for name in ("word_rarity", "rarity", "key_tokens")]
    for title, chosen in (("first ten authors", range(AUTHORS)), ("last ten authors", range(AUTHORS, 2 * AUTHORS))):
        authors, some = zip(*((author, row) for author, row in rows if author in chosen), strict=True)
        encoded = encoder.encode_rows(some, what="spans").rows
        unlabelled = [dataclasses.replace(row, forget_spans=None) for row in some]
        context = PrecomputeContext(encoded, kept, unlabelled, retain, list, lambda _: [])
        draw = Resampler([str(author) for author in authors])
        labels = [row.counted(row.token_labels or ())[:-1] for row in encoded]
        first = None
        print(f"{title}: {len(some)} rows; AUROC, standard deviation, interval, key_token_model minus this")
        for name, options in compared:
            weights = [values[:-1] for values in WEIGHTINGS[name](**options).precompute(context)]
            found = per_sample_auroc(weights, labels)
            mean = draw.mean(found.values)
            first = mean if first is None else first
            shown = " ".join(_percent(estimate) for estimate in (mean, combine(np.subtract, first, mean)))
            print(f"  {name:16} {options.get('noun_finder', ''):15} sd {100 * found.std:.1f} {shown}", flush=True)


def _percent(estimate) -> str:
    low, high = estimate.interval()
    return f"{100 * estimate.value:.1f} [{100 * low:.1f}, {100 * high:.1f}]"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--spans", type=Path, help="forget10_filtered.json: measure on it instead of fitting")
    parser.add_argument("--noun-finder", default="en_core_web_sm", help="spaCy model of rare_nouns, beside simple")
    given = parser.parse_args()
    if given.spans is None:
        fit()
    else:
        measure(given.spans, given.noun_finder)


if __name__ == "__main__":
    main()
