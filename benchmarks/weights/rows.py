"""Labelled rows, counts over retain rows, and model outputs on them: the data that candidates use.

Model outputs (hidden states of some layers) are cached under ATWU_CACHE, since computing them takes a minute each.
"""

from __future__ import annotations

import dataclasses
import functools
import re
from collections import Counter
from dataclasses import dataclass

import numpy as np
import torch

from atwu._cache import cache_folder, cached_tensors
from atwu.benchmarks.dataset_files import open_tables
from atwu.benchmarks.rwku import PROBES, RWKU_DATA, read_targets
from atwu.benchmarks.sources import load_rows
from atwu.benchmarks.tofu import proxy_spans
from atwu.data.encode import Encoder
from atwu.data.schema import IGNORE_INDEX, Example, Message, merged_spans
from atwu.evaluation.linear_probe import TokenStates, read_states
from atwu.evaluation.teacher_forced import TokenRow
from atwu.evaluation.weighting_scores import AuxiliaryLogps, ScoreContext
from atwu.methods.weightings.fixed_weights import noun_finder, noun_mask
from atwu.modeling.load import model_fingerprint
from atwu.modeling.open_model import ModelLoadArgs, open_model

LAYERS = (10, 20, 30)
"""Of SmolLM2's 30; the last one is taken after the final norm."""
PEOPLE_RETAIN_ROWS = 120
"""Number of retain rows of people for fine-tuning, which takes half an hour on one core."""
SUBJECTS = {"rwku": slice(0, 20), "rwku_more": slice(20, 40)}
"""Number of RWKU's forget subjects, of 200."""
PASSAGES = 4
"""Number of retain passages per other subject."""
UNIT = re.compile(r"\w+|[^\w\s]")


@dataclass(frozen=True, eq=False)
class Rows:
    """Forget rows with labels, and retain rows."""

    name: str
    examples: tuple
    pool: tuple
    training_rows: tuple
    """Retain rows that the model was fine-tuned on, together with the forget rows."""
    model: str

    @functools.cached_property
    def encoded(self):
        return encode(self.examples)

    @functools.cached_property
    def retain(self):
        return encode(self.pool)

    @functools.cached_property
    def ids(self):
        return [counted(row) for row in self.encoded]

    @functools.cached_property
    def content(self):
        """Per row, True on tokens of the answer's text."""
        return [np.array([offset is not None for offset in offsets(row)]) for row in self.encoded]

    @functools.cached_property
    def labels(self):
        return [
            np.array([mark for mark, label in zip(row.token_labels, row.labels, strict=True) if label != IGNORE_INDEX])
            for row in self.encoded
        ]

    @functools.cached_property
    def words(self):
        """Per row, the index of the answer's word of each answer token, -1 for none, and the words."""
        return [word_places(row, example.answer) for row, example in zip(self.encoded, self.examples, strict=True)]

    @functools.cached_property
    def nouns(self):
        find = noun_finder("simple")
        return [noun_mask(row, each.answer, find) for row, each in zip(self.encoded, self.examples, strict=True)]

    def in_prompt(self, place):
        return np.isin(self.ids[place], self.encoded[place].prompt_ids)

    def in_question(self, place, key=str.lower):
        """Whether the question contains the token's word."""
        asked = {key(word) for word in UNIT.findall(self.examples[place].question)}
        where, words = self.words[place]
        return np.array([at >= 0 and key(words[at]) in asked for at in where])

    @functools.cached_property
    def target(self):
        return Reading(self.model, self.encoded)

    @functools.cached_property
    def base(self):
        return Reading("smollm2", self.encoded)

    @functools.cached_property
    def context(self):
        """For the package's weightings; SU-LLM's two models are the target and the model before fine-tuning."""
        auxiliary = AuxiliaryLogps(self.target.logps, self.base.logps)
        tokens = self.target.tokens(self.encoded)
        return ScoreContext(tokens, self.encoded, self.examples, self.retain, self.pool, auxiliary)

    @functools.cached_property
    def unasked(self):
        """Output of the target when the question is replaced by one without a name."""
        other = Message("user", "Please go on.")
        rows = [dataclasses.replace(row, messages=(*row.messages[:-1], other)) for row in self.examples]
        return Reading(self.model, encode(rows))

    @functools.cached_property
    def known(self):
        """Output of the target on 50 retain rows that it was fine-tuned on."""
        return Reading(self.model, encode(self.training_rows[:: len(self.training_rows) // 50][:50]))

    @functools.cached_property
    def unknown(self):
        """The same on 50 rows that it was not fine-tuned on."""
        others = [row for row in self.pool if row not in set(self.training_rows)]
        return Reading(self.model, encode(others[:: len(others) // 50][:50]))


def load(name, models):
    """Load `authors` (TOFU's first ten, for choices), `tofu` (forget05, its last ten), `people` (eight of 80) or part
    of RWKU.

    TOFU's model was fine-tuned on the 200 rows of the first and of the last ten authors, that of people on the forget
    rows and `PEOPLE_RETAIN_ROWS` others; RWKU's model is the pretrained one.
    """
    if name in SUBJECTS:
        tables = open_tables(RWKU_DATA)
        known = read_targets(tables)
        chosen = known[SUBJECTS[name]]
        others = "|".join(subject for subject in known if subject not in chosen)
        pool = load_rows(f"rwku:{others}!{'|'.join(chosen)}:passages:{PASSAGES}").rows
        return Rows(name, tuple(filled_in(tables, chosen)), pool, (), "smollm2")
    if name == "people":
        forget, pool = load_rows("people:small:forget").rows, load_rows("people:small:retain").rows
        return Rows(name, forget, pool, pool[:PEOPLE_RETAIN_ROWS], models["people"])
    last, others = load_rows("tofu:forget05").rows, load_rows("tofu:retain95").rows
    if name == "tofu":
        return Rows(name, last, others, others[:200], models["tofu"])
    first = load_rows("tofu:retain_perturbed:200").rows
    marked = tuple(dataclasses.replace(row, forget_spans=proxy_spans(row)) for row in first)
    return Rows(name, marked, (*others[200:], *last), last, models["tofu"])


def filled_in(tables, subjects):
    """RWKU's fill-in-the-blank sentences, filled in, with the blank as the label; without duplicates."""
    blanks = {}
    for _, probe in tables.table(PROBES["fb"]):
        before, *after = re.split("_{3,}", probe["query"])
        if probe["subject"] in subjects and len(after) == 1 and probe["answer"].strip():
            key = probe["subject"], before + probe["answer"] + after[0]
            blanks.setdefault(key, set()).add((len(before), len(before) + len(probe["answer"])))
    for (subject, text), spans in blanks.items():
        yield Example((), text, subject=subject, forget_spans=merged_spans(spans))


class Reading:
    """Hidden states at the answer tokens of some rows, and values computed from the last ones."""

    def __init__(self, model, rows):
        network, _ = open_model(model, ModelLoadArgs(dtype="float32"))
        self.head = network.get_output_embeddings().weight.detach()
        self.targets = [torch.tensor(counted(row)) for row in rows]
        self.of = {"model": model_fingerprint(network), "rows": [row.input_ids for row in rows], "layers": LAYERS}

        def read():
            found = read_states(network, rows, layers=LAYERS, progress=True)
            states = {str(layer): state for layer, state in found.states.items()}
            return {**states, "own": torch.cat(found.own), "pred": torch.cat(found.pred)}

        found = self.cached("states", read)
        own, pred = self.by_row(found["own"]), self.by_row(found["pred"])
        self.states = TokenStates({layer: found[str(layer)] for layer in LAYERS}, own, pred)

    def cached(self, what, make):
        """Return a cached value, or compute and cache it."""
        return cached_tensors(cache_folder() / "readings", self.of | {"what": what}, make)

    def by_row(self, tokens):
        """Split one value per token into one tensor per row."""
        return tokens.split([len(targets) for targets in self.targets])

    def features(self, layer=LAYERS[-1], position="pred"):
        return self.states.features(layer, position)

    def logprobs(self, place):
        """Next-token log-probabilities at each answer token, (tokens, vocabulary)."""
        last = self.states.states[LAYERS[-1]][self.states.pred[place]]
        return torch.log_softmax(last @ self.head.T, dim=-1)

    @functools.cached_property
    def _numbers(self):
        found = self.cached("numbers", self._read_numbers)
        return {name: [row.numpy() for row in self.by_row(numbers)] for name, numbers in found.items()}

    def _read_numbers(self):
        found = {"logps": [], "entropies": [], "greedy": []}
        for place, targets in enumerate(self.targets):
            every = self.logprobs(place)
            found["logps"].append(every.gather(1, targets[:, None])[:, 0].double())
            found["entropies"].append(-(every.exp() * every).sum(dim=1).double())
            found["greedy"].append(every.argmax(dim=1))
        return {name: torch.cat(numbers) for name, numbers in found.items()}

    @property
    def logps(self):
        return self._numbers["logps"]

    @property
    def entropies(self):
        return self._numbers["entropies"]

    def tokens(self, rows):
        """The same as in the evaluation's metrics."""
        return [
            TokenRow(targets.numpy(), greedy, logps, entropies, None, None, tuple(offsets(row)))
            for targets, greedy, logps, entropies, row in zip(
                self.targets, self._numbers["greedy"], self.logps, self.entropies, rows, strict=True
            )
        ]


@functools.cache
def encoder():
    return Encoder(open_model("smollm2", ModelLoadArgs())[1])


def encode(examples):
    return encoder().encode_rows(examples, what="rows").rows


def counted(row):
    return [label for label in row.labels if label != IGNORE_INDEX]


def offsets(row):
    return [at for at, label in zip(row.answer_offsets, row.labels, strict=True) if label != IGNORE_INDEX]


def word_places(row, answer):
    found = list(UNIT.finditer(answer))
    places = []
    for at in offsets(row):
        piece = "" if at is None else answer[slice(*at)]
        start = 0 if at is None else at[0] + len(piece) - len(piece.lstrip())
        hits = [number for number, unit in enumerate(found) if unit.start() <= start < unit.end() and piece.strip()]
        places.append(hits[0] if hits else -1)
    return np.array(places), [unit[0] for unit in found]


class Counts:
    """Frequencies of keys among retain rows; `surprise` of a key is log((N + 1) / (count + 1))."""

    def __init__(self, keys):
        self.counts = Counter(keys)
        self.total = sum(self.counts.values())

    def surprise(self, keys):
        return np.array([np.log((self.total + 1) / (self.counts[key] + 1)) for key in keys])


def token_keys(rows, *, documents=False):
    return [key for row in rows for key in (set(counted(row)) if documents else counted(row))]
