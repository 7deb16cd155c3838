"""Frequency-based candidates, and functions that combine candidates.

A candidate is a function of `Rows` that returns an array per forget row, one value per answer token; only their order
matters.
"""

from __future__ import annotations

import functools
import itertools

import numpy as np
from rows import UNIT, Counts, counted, encode, token_keys
from scipy.stats import rankdata

from atwu.evaluation.weighting_scores import token_scores


def each(function):
    """Build a candidate from a function of (rows, index of the row)."""
    return lambda rows: [function(rows, place) for place in range(len(rows.ids))]


def ranks(values):
    return (rankdata(values) - 0.5) / len(values)


def ranked_sum(*candidates, shares=None):
    """Sum of the ranks within the row."""

    def candidate(rows):
        found = [[ranks(values) for values in one(rows)] for one in candidates]
        factors = shares or [1.0] * len(found)
        return [sum(f * one for f, one in zip(factors, row, strict=True)) for row in zip(*found, strict=True)]

    return candidate


def smoothed(candidate, side=0.25, *, of_ranks=False):
    """Smooth each token's value with its neighbours', repeating the ends."""

    def smooth(values):
        padded = np.pad(ranks(values) if of_ranks else values, 1, mode="edge")
        return (side * padded[:-2] + padded[1:-1] + side * padded[2:]) / (1 + 2 * side)

    return lambda rows: [smooth(values) for values in candidate(rows)]


def by_word(candidate, how):
    """Give every token the mean, maximum or first value of its word."""

    def spread(values, places):
        out = np.array(values, dtype=float)
        for word in set(places[places >= 0].tolist()):
            out[places == word] = how(out[places == word])
        return out

    return lambda rows: [
        spread(values, places) for values, (places, _) in zip(candidate(rows), rows.words, strict=True)
    ]


def tokens_counted(*, size=None, per=None, prompt=0.5, question=1.0, of=None):
    """Rarity of tokens among retain rows; the defaults give the weighting `rarity`.

    Args:
        size: count only this many rows from the start.
        per: count a token once in all rows that agree in this.
        prompt: factor on the surprisal of tokens in the prompt.
        question: factor on tokens of words in the question.
        of: returns other rows to count.
    """

    def candidate(rows):
        if of:
            pool, among = itertools.repeat(None), of(rows)
        else:
            pool = rows.pool[:size]
            among = rows.retain if size is None else encode(pool)
        counts = once((counted(row) for row in among), pool, per)

        def one(rows, place):
            values = counts.surprise(rows.ids[place])
            values[rows.in_prompt(place)] *= prompt
            values[rows.in_question(place)] *= question
            return values

        return each(one)(rows)

    return candidate


def once(keys, rows, per):
    """Count keys of rows, once in each group of rows."""
    groups = {}
    for number, (found, row) in enumerate(zip(keys, rows, strict=False)):
        groups.setdefault(per(row) if per else number, []).extend(found)
    return Counts(key for found in groups.values() for key in (set(found) if per else found))


def words_counted(
    *,
    question=0.0,
    size=None,
    key=str.lower,
    asked=None,
    per=lambda row: row.subject,
    questions=False,
    surprise=None,
    of=lambda rows: rows.pool,
):
    """The same with whole words; tokens outside words have no surprisal. The defaults give the weighting `word_rarity`.

    Args:
        key: what is counted of a word.
        asked: what of a word is searched in the question, if different.
        questions: also count words of questions.
        surprise: surprisal of words, instead of counts.
    """

    def candidate(rows):
        pool = of(rows)[:size]
        texts = (row.question + " " + row.answer if questions else row.answer for row in pool)
        of_words = surprise or once((map(key, UNIT.findall(text)) for text in texts), pool, per).surprise

        def one(rows, place):
            where, words = rows.words[place]
            values = np.append(of_words([key(word) for word in words]), 0.0)[where]
            values[rows.in_question(place, asked or key)] *= question
            return values

        return each(one)(rows)

    return candidate


def smoothed_words(candidate, side=0.25):
    """Smooth each word's value with its neighbouring words'."""

    def candidate_(rows):
        found = []
        for values, (where, words) in zip(candidate(rows), rows.words, strict=True):
            alone = np.zeros(len(words))
            alone[where[where >= 0]] = values[where >= 0]
            padded = np.pad(alone, 1, mode="edge")
            found.append(np.append((side * padded[:-2] + alone + side * padded[2:]) / (1 + 2 * side), 0.0)[where])
        return found

    return candidate_


def general_words(words):
    from wordfreq import word_frequency

    return np.array([-np.log(word_frequency(word, "en") + 1e-9) if word[0].isalnum() else 0.0 for word in words])


def follows(rows):
    """Surprisal of a token after the previous one, backing off to its own count (Dirichlet, 5 tokens' weight)."""
    pairs, firsts, own = {}, {}, Counts(token_keys(rows.retain))
    for row in rows.retain:
        ids = [row.input_ids[row.answer_start - 1], *counted(row)]
        for pair in itertools.pairwise(ids):
            pairs[pair], firsts[pair[0]] = pairs.get(pair, 0) + 1, firsts.get(pair[0], 0) + 1

    def one(rows, place):
        row = rows.encoded[place]
        ids = [row.input_ids[row.answer_start - 1], *rows.ids[place]]
        alone = np.exp(-own.surprise(ids[1:]))
        before = np.array([firsts.get(key, 0) for key in ids[:-1]])
        both = np.array([pairs.get(pair, 0) for pair in itertools.pairwise(ids)])
        values = -np.log((both + 5 * alone) / (before + 5))
        values[rows.in_prompt(place)] *= 0.5
        return values

    return each(one)(rows)


def of_model(function, reading="target"):
    return each(lambda rows, place: function(getattr(rows, reading), place))


def pooled(candidate, how=np.mean):
    """Give each token id the mean of its values over all rows of the subject."""

    def shared(rows):
        values, found = candidate(rows), {}
        for place, example in enumerate(rows.examples):
            for key, value in zip(rows.ids[place], values[place], strict=True):
                found.setdefault((example.subject, key), []).append(value)
        return [
            np.array([how(found[example.subject, key]) for key in ids])
            for ids, example in zip(rows.ids, rows.examples, strict=True)
        ]

    return shared


def typical(rows):
    """log odds of a token among the subject's answers against retain rows."""
    everywhere = Counts(token_keys(rows.retain))
    own = {}
    for example, ids in zip(rows.examples, rows.ids, strict=True):
        own.setdefault(example.subject, []).extend(ids)
    own = {subject: Counts(ids) for subject, ids in own.items()}
    return [
        everywhere.surprise(ids) - own[example.subject].surprise(ids)
        for ids, example in zip(rows.ids, rows.examples, strict=True)
    ]


def remembered(candidates):
    """Cache each candidate's values per rows."""
    return {name: functools.cache(one) for name, one in candidates.items()}


def added(base, candidates):
    """Add each candidate with half the weight of the base."""
    return {f"+ {name} / 2": ranked_sum(base, one, shares=(1, 0.5)) for name, one in candidates.items()}


def weighting(name):
    """Values of one of the package's weightings, on the target."""
    return lambda rows: token_scores(rows.context, [name])[name]
