"""Texts that the original model writes by itself: those that it has by heart come out of it (Carlini et al. 2021, extraction).

Where texts are unlearned, the others that a model knows by heart are damaged first, and nobody says which these are. The model
continues a frequent first word; what it says is kept as it is, but for some of what it has by heart, which is measured.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from atwu.data.passages import cut_words, word_spans, wording_of
from atwu.data.row_parsing import is_text
from atwu.data.schema import Example
from atwu.data.wording import FEWEST_TEXT_WORDS
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
