"""Candidates of each table in benchmarks/results/token-weights.md."""

from __future__ import annotations

import functools

import numpy as np
from counts import (
    added,
    by_word,
    each,
    follows,
    general_words,
    of_model,
    pooled,
    ranked_sum,
    remembered,
    smoothed,
    smoothed_words,
    tokens_counted,
    typical,
    weighting,
    words_counted,
)
from learned import CONFLICT, distill, probe, scorer, transferred
from rows import LAYERS, encode

from atwu.benchmarks.sources import load_rows


def subject(row):
    return row.subject


def itself(row):
    return row


RARITY = functools.cache(tokens_counted())
WORD_RARITY = functools.cache(words_counted())
NOUNS = each(lambda rows, place: rows.nouns[place])
NEW_NOUNS = each(lambda rows, place: rows.nouns[place] * ~rows.in_question(place))
POSITION = each(lambda rows, place: np.arange(len(rows.ids[place]), dtype=float))
GENERAL = words_counted(surprise=general_words)

RARE_NOUNS = ranked_sum(WORD_RARITY, NEW_NOUNS)

IMPORTANCE = of_model(lambda reading, place: -reading.logps[place])
ENTROPY = of_model(lambda reading, place: reading.entropies[place])
BASE_IMPORTANCE = of_model(lambda reading, place: -reading.logps[place], "base")
BASE_ENTROPY = of_model(lambda reading, place: reading.entropies[place], "base")
FINETUNING_GAIN = each(lambda rows, place: rows.target.logps[place] - rows.base.logps[place])
QUESTION_GAIN = each(lambda rows, place: rows.target.logps[place] - rows.unasked.logps[place])
MODEL = {
    "importance": IMPORTANCE,
    "entropy": ENTROPY,
    "base model's surprisal": BASE_IMPORTANCE,
    "base model's entropy": BASE_ENTROPY,
    "gain from fine-tuning": FINETUNING_GAIN,
    "gain from the question": QUESTION_GAIN,
}
DISTILLED = remembered(
    {
        "distilled from word_rarity": distill(WORD_RARITY),
        "distilled from word_rarity, ridge 10": distill(WORD_RARITY, ridge=10.0),
        "distilled from word_rarity, ridge .1": distill(WORD_RARITY, ridge=0.1),
        "distilled from word_rarity, own state": distill(WORD_RARITY, position="own"),
        "distilled from word_rarity, layer 20": distill(WORD_RARITY, layers=(20,)),
        "distilled from word_rarity, base model's states": distill(WORD_RARITY, reading="base"),
        "distilled from word_rarity, base model's layer 20": distill(WORD_RARITY, layers=(20,), reading="base"),
    }
)
FINAL = LAYERS[-1:]
TRANSFERRED = remembered(
    {
        "other benchmark's labels": transferred(FINAL, "pred"),
        "other benchmark's labels, both states": transferred(FINAL, "both"),
        "other benchmark's labels, layer 20": transferred((20,), "pred"),
        "other benchmark's labels, layer 20, both states": transferred((20,), "both"),
        "other benchmark's labels, layer 10, both states": transferred((10,), "both"),
    }
)

TABLES = {
    "counts": {
        "once per row": tokens_counted(per=itself),
        "once per subject": tokens_counted(per=subject),
        "mean over the word": by_word(RARITY, np.mean),
        "maximum over the word": by_word(RARITY, np.max),
        "first token of the word": by_word(RARITY, lambda values: values[0]),
        "neighbours 1/4": smoothed(RARITY),
        "neighbours 1/2": smoothed(RARITY, 0.5),
        "neighbours 1/4, ranks": smoothed(RARITY, of_ranks=True),
        "prompt's tokens x 0": tokens_counted(prompt=0.0),
        "prompt's tokens x 1": tokens_counted(prompt=1.0),
        "question's words x 1/2, too": tokens_counted(question=0.5),
        "question's words x 0, too": tokens_counted(question=0.0),
        "after the token before": follows,
        "position": POSITION,
        "+ position": ranked_sum(RARITY, POSITION),
        "+ position / 2": ranked_sum(RARITY, POSITION, shares=(1, 0.5)),
        "+ nouns": ranked_sum(RARITY, NOUNS),
        "+ nouns / 2": ranked_sum(RARITY, NOUNS, shares=(1, 0.5)),
    },
    "words": {
        "every occurrence": words_counted(per=None),
        "once per row": words_counted(per=itself),
        "every occurrence, question's x 1/2": words_counted(per=None, question=0.5),
        "every occurrence, question's x 1": words_counted(per=None, question=1.0),
        "questions counted, too": words_counted(questions=True),
        "case-sensitive": words_counted(key=str),
        "first 4 letters": words_counted(key=lambda word: word.lower()[:4]),
        "first 6 letters": words_counted(key=lambda word: word.lower()[:6]),
        "question's by 4 letters": words_counted(asked=lambda word: word.lower()[:4]),
        "neighbouring words 1/4": smoothed_words(WORD_RARITY),
        "neighbouring words 1/10": smoothed_words(WORD_RARITY, 0.1),
        "+ rarity": ranked_sum(WORD_RARITY, RARITY),
        "+ position / 4": ranked_sum(WORD_RARITY, POSITION, shares=(1, 0.25)),
        "+ nouns / 4": ranked_sum(WORD_RARITY, NOUNS, shares=(1, 0.25)),
        "+ nouns / 2": ranked_sum(WORD_RARITY, NOUNS, shares=(1, 0.5)),
        "+ nouns": ranked_sum(WORD_RARITY, NOUNS),
        "+ nouns not asked / 2": ranked_sum(WORD_RARITY, NEW_NOUNS, shares=(1, 0.5)),
        "+ nouns not asked": ranked_sum(WORD_RARITY, NEW_NOUNS),
    },
    "retain": {
        **{f"tokens of {size} rows": tokens_counted(size=size) for size in (10, 50, 200, 400)},
        **{f"words of {size} rows": words_counted(size=size) for size in (10, 50, 200, 400)},
        "tokens of foreign rows": tokens_counted(of=lambda rows: encode(foreign(rows))),
        "words of foreign rows": words_counted(of=lambda rows: foreign(rows)),
        "token number": each(lambda rows, place: np.array(rows.ids[place]) * np.where(rows.in_prompt(place), 0.5, 1)),
        "general English": GENERAL,
        "words of 50 rows + general English": ranked_sum(words_counted(size=50), GENERAL),
        "words of all rows + general English / 2": ranked_sum(WORD_RARITY, GENERAL, shares=(1, 0.5)),
        "general English + nouns not asked / 2": ranked_sum(GENERAL, NEW_NOUNS, shares=(1, 0.5)),
    },
    "model": {
        **MODEL,
        "rarity + base model's surprisal": ranked_sum(RARITY, BASE_IMPORTANCE),
        **added(WORD_RARITY, MODEL),
    },
    "subjects": {
        "base model's surprisal, pooled": pooled(BASE_IMPORTANCE),
        "importance, pooled": pooled(IMPORTANCE),
        "gain from the question, pooled": pooled(QUESTION_GAIN),
        "word_rarity, pooled": pooled(WORD_RARITY),
        "typical of the subject": typical,
        "+ typical / 4": ranked_sum(WORD_RARITY, typical, shares=(1, 0.25)),
        "- typical / 4": ranked_sum(WORD_RARITY, typical, shares=(1, -0.25)),
        "base model's surprisal, mean over the word": by_word(BASE_IMPORTANCE, np.mean),
        "base model's surprisal, first of the word": by_word(BASE_IMPORTANCE, lambda values: values[0]),
        "+ base model's, first of the word / 2": ranked_sum(
            WORD_RARITY, by_word(BASE_IMPORTANCE, lambda values: values[0]), shares=(1, 0.5)
        ),
    },
    "conflict": CONFLICT | added(WORD_RARITY, CONFLICT),
    "scorer": {
        "as published, 25 updates": scorer(),
        "own state": scorer(position="own"),
        "both states": scorer(position="both"),
        "layers 10, 20, 30": scorer(layers=LAYERS),
        "layer 20": scorer(layers=(20,)),
        "scaled states": scorer(scaled=True),
        "rate x 10": scorer(rate=0.5),
        "scaled, rate x 10": scorer(scaled=True, rate=0.5),
        "250 updates": scorer(updates=250),
        "without l2": scorer(l2=0.0),
        "scaled, without l2, 250 updates": scorer(scaled=True, l2=0.0, updates=250),
        "budget of the row": scorer(budget_of_row=True),
        "budget of the row, scaled, without l2": scorer(budget_of_row=True, scaled=True, l2=0.0),
    },
    "distilled": {
        "probe with labels": probe(FINAL, "pred"),
        "probe with labels, both states": probe(FINAL, "both"),
        "probe with labels, layer 20, both states": probe((20,), "both"),
        **DISTILLED,
        **added(WORD_RARITY, DISTILLED),
    },
    "transferred": TRANSFERRED
    | added(WORD_RARITY, TRANSFERRED)
    | {
        "rare_nouns": RARE_NOUNS,
        "rare_nouns + layer 20, both states": ranked_sum(
            RARE_NOUNS, TRANSFERRED["other benchmark's labels, layer 20, both states"]
        ),
    },
    "named": {  # for rows without questions, the package's weights exclude their subject's name
        "word_rarity without the name": weighting("word_rarity"),
        "rare_nouns": RARE_NOUNS,
        "rare_nouns without the name": weighting("rare_nouns"),
    },
    "weightings": {
        name: weighting(name)
        for name in (
            "saturation",
            "importance",
            "satimp",
            "entropy",
            "logprob_mask",
            "model_difference",
            "ngram_difference",
            "nouns",
            "rarity",
            "word_rarity",
            "rare_nouns",
        )
    },
}


def foreign(rows):
    """Rows of the other benchmark."""
    return load_rows("tofu:retain95" if rows.name == "people" else "people:base:retain").rows
