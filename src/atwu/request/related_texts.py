"""Other texts of the kind where texts are unlearned: famous openings and what the model writes by itself.

These are damaged first, and nobody says which the model has by heart; some come out when it continues a frequent first word
(Carlini et al. 2021, extraction). Of some the neighbour set has those that the original model recites; the others are trained
on as they are. Small models recite hardly any famous text, and a fine-tuned one its training texts, so that given texts that
must stay are the best neighbours.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from atwu.benchmarks.base import evenly_spaced
from atwu.data.general_rows import known_texts
from atwu.data.passages import FEWEST_TEXT_WORDS, cut_words, has_wording, word_spans, wording_of
from atwu.data.row_parsing import is_text
from atwu.data.schema import Example
from atwu.evaluation.facts.askings import AS_WRITTEN, recitation_askings
from atwu.evaluation.facts.fact_table import answerer, ask_facts
from atwu.evaluation.facts.readable import is_broken
from atwu.evaluation.generations import Decoding, GenerationStore, Prompt
from atwu.request.row_facts import ModelReader

FIRST_WORDS = (
    "The A I In It We When To And My There This If He She You What All No As For On Not But They That So At By His"
)
"""Frequent first words of English texts. A model that was fine-tuned on a few texts goes on with one of them."""
TEXTS_DRAWN, OWN_TEMPERATURE = 2, 0.7
"""Sampled texts from each word, beside the greedy one. At a temperature of 1, small models leave what they know by heart."""
BY_HEART = 0.7
"""Probability per token (geometric mean) from which a text is known by heart. A greedy text is continued as it is by any model,
so that its continuation says nothing."""
MEASURED_TEXT = 3
"""One text by heart in so many is measured instead of trained on."""
MEASURED_TEXTS = 24
"""Texts of the neighbour set, at most, beside given ones."""
ASKED_TEXTS, MEASURED_RETAIN_TEXTS = 48, 12
"""Given texts that are asked, and those of them that are measured, at most. Not measured."""
SAME_TEXT = 6
"""Words in one run that two texts share from which they are taken to be the same; "that all men are created" has five."""


@dataclass(frozen=True, slots=True)
class OwnTexts:
    kept: tuple[Example, ...]
    """Texts to train on as they are."""
    by_heart: tuple[Example, ...]
    """Further texts, which the model recites, to measure; they share no wording with those."""


def write_own_texts(read: ModelReader, removed: Sequence[Example], chance_run: int) -> OwnTexts:
    """Return what a model writes by itself, without the texts to be forgotten.

    Args:
        read: reads with the original model.
        removed: texts to be forgotten, now and earlier.
        chance_run: words in one run that a model says of a text that it never saw.
    """
    texts = [text for text in _sampled(read) if not any(same_text(text, row.answer) for row in removed)]
    rows = [Example((), text, chance_run=chance_run) for text in texts]
    recited = ask_facts(read.answers, recitation_askings(rows, cuts=(AS_WRITTEN,))).stating
    logps = read.logps(rows)
    groups = _groups(texts)
    known: dict[int, Example] = {}
    for place in sorted(record.fact for record in recited):
        if float(np.exp(logps[place].mean())) >= BY_HEART:
            known.setdefault(groups[place], rows[place])
    measured = dict([*known.items()][::MEASURED_TEXT])
    return OwnTexts(
        tuple(Example((), text) for text, group in zip(texts, groups, strict=True) if group not in measured),
        tuple(measured.values()),
    )


def same_text(one: str, other: str) -> bool:
    """Return whether two texts share a run of `SAME_TEXT` words."""
    return not _runs(one).isdisjoint(_runs(other))


@functools.lru_cache(maxsize=4096)
def _runs(text: str) -> frozenset[tuple[str, ...]]:
    """Return all runs of so many words in a text; each text is compared with all others."""
    words = wording_of(text)
    return frozenset(tuple(words[start : start + SAME_TEXT]) for start in range(len(words) - SAME_TEXT + 1))


def _sampled(read: ModelReader) -> list[str]:
    """Return different texts that can be read, cut before the last word, which may be half a one."""
    greedy = [Prompt((), prefill=beginning) for beginning in FIRST_WORDS.split()]
    drawn = [replace(prompt, draw=draw) for prompt in greedy for draw in range(TEXTS_DRAWN)]
    said: list[str] = []
    for prompts, temperature in ((greedy, 0.0), (drawn, OWN_TEMPERATURE)):
        ask = answerer(
            read.generator,
            decoding=Decoding(temperature=temperature),
            store=GenerationStore(),
            progress="its own texts",
        )
        answers = zip(prompts, ask(prompts), strict=True)
        said += [
            f"{prompt.prefill} {answer}" for prompt, answer in answers if is_text(answer) and not is_broken(answer)
        ]
    texts = [
        cut_words(text, len(word_spans(text)) - 1)[0] for text in said if len(word_spans(text)) > FEWEST_TEXT_WORDS
    ]
    return list(dict.fromkeys(texts))


def _groups(texts: Sequence[str]) -> list[int]:
    """Return for each text the place of the first one that it shares its wording with."""
    groups: list[int] = []
    for place, text in enumerate(texts):
        same = (groups[other] for other in range(place) if same_text(text, texts[other]))
        groups.append(next(same, place))
    return groups


def texts_to_keep(
    read: ModelReader, forget: Sequence[Example], *, earlier: Sequence[Example] = ()
) -> tuple[Example, ...]:
    """Return other texts to train on as they are; none if no forget row is a text to be recited.

    Args:
        read: reads with the original model.
        forget: forget rows with their facts marked.
        earlier: forget rows of earlier requests, which are left out, too.
    """
    chance_run = _chance_run(forget)
    if chance_run is None:
        return ()
    removed = [row for row in (*forget, *earlier) if not row.messages]
    return (*_without(known_texts("kept"), removed), *write_own_texts(read, removed, chance_run).kept)


def texts_to_measure(
    read: ModelReader, forget: Sequence[Example], *, earlier: Sequence[Example] = ()
) -> tuple[Example, ...]:
    """Return other texts that the model recites and that are not trained on, at most `MEASURED_TEXTS`.

    Args:
        read, forget, earlier: as of `texts_to_keep`.
    """
    chance_run = _chance_run(forget)
    if chance_run is None:
        return ()
    removed = [row for row in (*forget, *earlier) if not row.messages]
    measured = [replace(row, chance_run=chance_run) for row in _without(known_texts("measured"), removed)]
    said = ask_facts(read.answers, recitation_askings(measured, cuts=(AS_WRITTEN,)))
    famous = [measured[record.fact] for record in said.stating]
    return (*famous, *write_own_texts(read, removed, chance_run).by_heart)[:MEASURED_TEXTS]


def recited_retain_texts(read: ModelReader, retain: Sequence[Example], forget: Sequence[Example]) -> dict[int, Example]:
    """Return given texts that the model recites, to be measured beside those that it writes; none without texts to forget.

    Returns:
        Place among the retain rows -> text, at most `MEASURED_RETAIN_TEXTS`.
    """
    chance_run = _chance_run(forget)
    if chance_run is None:
        return {}
    places = [place for place, row in enumerate(retain) if has_wording(row)]
    places = list(evenly_spaced(places, ASKED_TEXTS))
    texts = [replace(retain[place], chance_run=chance_run) for place in places]
    said = ask_facts(read.answers, recitation_askings(texts, cuts=(AS_WRITTEN,)))
    return {places[record.fact]: texts[record.fact] for record in said.stating[:MEASURED_RETAIN_TEXTS]}


def _chance_run(forget: Sequence[Example]) -> int | None:
    """Return the words in one run that a model says of a text that it never saw; None without texts to forget."""
    return next((row.chance_run for row in forget if row.chance_run is not None), None)


def _without(texts: Sequence[Example], removed: Sequence[Example]) -> tuple[Example, ...]:
    """Return texts that are not among those to be forgotten, nor a part of one."""
    return tuple(text for text in texts if not any(same_text(row.answer, text.answer) for row in removed))
