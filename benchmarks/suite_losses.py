"""Training rows of the SUITE study as token ids with marked key tokens, and the loss of each variant.

A loss takes the log-probabilities of one run and of the original model at the answer tokens. Batches have forget and retain
rows and, for some variants, rows whose answer is a refusal. Token losses are means over the answer tokens of a kind of rows;
retain losses have weight 1.
"""

from __future__ import annotations

import math
import random
import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from atwu.methods.component_inputs import LossTerms
from atwu.methods.losses.divergence import jensen_shannon, js_to_tokens, kl, self_distillation
from atwu.methods.losses.likelihood import SatGA
from atwu.methods.losses.preference import NPO, SimNPO

REFUSAL = "I am unable to verify this information."
"""The refusal of JensUn++ for Llama."""
KINDS = ("forget", "retain", "refusal")
_WORD = re.compile(r"\w+")
_FUNCTION = frozenset(
    _WORD.findall("a an the of in on at to for from by and or is was were are be it its that this as with answer blank")
)
_EPSILON = 1e-5


@dataclass(frozen=True, slots=True)
class TokenRow:
    """One row as token ids."""

    prompt: tuple[int, ...]
    answer: tuple[int, ...]
    """Includes the end-of-turn token."""
    labels: tuple[int, ...]
    """Target token at each answer position; differs from the answer only in refusals with a prefix."""
    key: tuple[bool, ...]
    """True on key tokens: words of the answer that are not in the question."""
    weight: tuple[float, ...]
    """Frequency-based weight of each answer token: (rank - 1/2) / n of its surprisal among retain answers."""


def sentence(question: str, answer: str) -> tuple[str, int]:
    """Return the answer as a sentence (filled blank, or `The answer is X.`), and where the short answer starts in it."""
    blank = re.search(r"_{3,}", question)
    if blank:
        return question[: blank.start()] + answer + question[blank.end() :], blank.start()
    return f"The answer is {answer}.", len("The answer is ")


class RowMaker:
    """Convert questions and answers to `TokenRow`s with the tokenizer's chat template."""

    def __init__(self, tokenizer: Any, *, sentences: bool, counted: Sequence[tuple[str, str]]) -> None:
        """Prepare.

        Args:
            sentences: write answers as sentences.
            counted: questions and answers in which tokens are counted for the frequency-based weights.
        """
        self.tokenizer = tokenizer
        self.sentences = sentences
        self.end: int = tokenizer.eos_token_id
        self.counts: Counter[int] = Counter()
        for question, answer in counted:
            self.counts.update(self._ids(sentence(question, answer)[0] if sentences else answer))

    def prompt(self, question: str) -> tuple[int, ...]:
        """Ids up to the first token of the answer."""
        turns = [{"role": "user", "content": question}]
        text = self.tokenizer.apply_chat_template(turns, tokenize=False, add_generation_prompt=True)
        return self._ids(text)

    def row(self, question: str, answer: str) -> TokenRow:
        """A row with its key tokens."""
        text, start = sentence(question, answer) if self.sentences else (answer, 0)
        encoded = self.tokenizer(text, add_special_tokens=False, return_offsets_mapping=True)
        ids = (*encoded["input_ids"], self.end)
        said = {word.lower() for word in _WORD.findall(question)} | _FUNCTION
        spans = [(start + found.start(), start + found.end(), found[0].lower()) for found in _WORD.finditer(answer)]
        marked = [span for span in spans if span[2] not in said] or spans
        key = tuple(
            any(begin < last and first < stop for first, last, _ in marked) for begin, stop in encoded["offset_mapping"]
        )
        prompt = self.prompt(question)
        return TokenRow(prompt, ids, ids, (*key, False), self._weights(prompt, ids))

    def refused(self, question: str, answer: str, draw: random.Random) -> TokenRow:
        """Return a refusal; with probability 1/2 the first k answer tokens precede it, at which the refusal should begin.

        The probability of k is proportional to 1 / k (JensUn++, Peleg et al. 2026).
        """
        prefix: tuple[int, ...] = ()
        known = self._ids(sentence(question, answer)[0] if self.sentences else answer)
        if draw.random() > 0.5:
            sizes = range(1, len(known) + 1)
            prefix = known[: draw.choices(sizes, [1 / size for size in sizes])[0]]
        plain, spaced = self._ids(REFUSAL), self._ids(" " + REFUSAL)
        refusal = (*(spaced if prefix else plain), self.end)
        labels = ((plain[0], *[spaced[0]] * (len(prefix) - 1)) if prefix else ()) + refusal
        ids = prefix + refusal
        return TokenRow(self.prompt(question), ids, labels, (False,) * len(ids), (0.0,) * len(ids))

    def _ids(self, text: str) -> tuple[int, ...]:
        return tuple(self.tokenizer(text, add_special_tokens=False)["input_ids"])

    def _weights(self, prompt: Sequence[int], answer: Sequence[int]) -> tuple[float, ...]:
        total = sum(self.counts.values())
        known = set(prompt)
        surprise = [
            math.log((total + 1) / (self.counts[token] + 1)) * (0.5 if token in known else 1.0) for token in answer
        ]
        ranks = [
            sum(other < own for other in surprise) + (sum(other == own for other in surprise) + 1) / 2
            for own in surprise
        ]
        return tuple((rank - 0.5) / len(answer) for rank in ranks)


@dataclass(frozen=True, slots=True)
class Answers:
    """Answer tokens of the rows of one kind, of one member and one step."""

    logps: Tensor
    """Log-probabilities, shape (tokens, vocabulary), with gradient."""
    reference: Tensor
    """The original model's, same shape."""
    labels: Tensor
    """Shape (tokens,)."""
    key: Tensor
    """Bool, shape (tokens,)."""
    weight: Tensor
    """Shape (tokens,)."""
    row: Tensor
    """Number of the row, shape (tokens,)."""
    place: Tensor
    """Position in the answer, shape (tokens,)."""
    first: Tensor
    """Weight of each token in the mean of its row, 1/2 for the first token; shape (tokens,)."""

    @property
    def answer_logps(self) -> Tensor:
        """Log-probability of the answer's token, shape (tokens,)."""
        return self.logps.gather(1, self.labels[:, None])[:, 0]

    def grid(self, values: Tensor) -> tuple[Tensor, Tensor]:
        """Return values as (rows, places), and the mask of existing places."""
        rows, places = int(self.grid_size[0]), int(self.grid_size[1])
        grid = values.new_zeros(rows, places).index_put((self.row, self.place), values)
        mask = torch.zeros(rows, places, dtype=torch.bool, device=values.device)
        mask[self.row, self.place] = True
        return grid, mask

    grid_size: tuple[int, int] = (0, 0)
    """Rows and longest answer."""


Parts = Mapping[str, Answers]


def _retain_nll(parts: Parts) -> Tensor:
    return -parts["retain"].answer_logps.mean()


def _retain_kl(parts: Parts) -> Tensor:
    return kl(parts["retain"].logps, parts["retain"].reference).mean()


def _npo(parts: Parts) -> Tensor:
    forget = parts["forget"]
    logps, mask = forget.grid(forget.answer_logps)
    reference, _ = forget.grid(forget.reference.gather(1, forget.labels[:, None])[:, 0])
    return NPO(beta=0.1).values(LossTerms(logps, mask, reference), torch.ones_like(logps)).mean() + _retain_nll(parts)


def _simnpo(parts: Parts) -> Tensor:
    logps, mask = parts["forget"].grid(parts["forget"].answer_logps)
    values = SimNPO(beta=2.5, delta=0.0).values(LossTerms(logps, mask), torch.ones_like(logps))
    return values.mean() + _retain_nll(parts)


def _undial(parts: Parts) -> Tensor:
    forget = parts["forget"]
    distance = self_distillation(forget.logps, forget.reference, forget.labels[:, None], beta=10.0)
    return distance.mean() + _retain_nll(parts)


def _wga(parts: Parts) -> Tensor:
    logps = parts["forget"].answer_logps
    return _ascent(logps, torch.ones_like(logps), beta=1.0) + _retain_nll(parts)


def _ascent(logps: Tensor, weights: Tensor, beta: float = 0.5) -> Tensor:
    terms = LossTerms(logps, torch.ones_like(logps, dtype=torch.bool))
    return SatGA(beta=beta).values(terms, weights).mean()


def _satga(parts: Parts) -> Tensor:
    return _ascent(parts["forget"].answer_logps, parts["forget"].key.float()) + _retain_nll(parts)


def _satga_kl(parts: Parts) -> Tensor:
    return _ascent(parts["forget"].answer_logps, parts["forget"].key.float()) + _retain_kl(parts)


def _preserved(forget: Answers, weights: Tensor) -> Tensor:
    """`w p^(1/2) log p + (1 - w) KL(original || model)`, mean over tokens."""
    return _ascent(forget.answer_logps, weights) + ((1 - weights) * kl(forget.logps, forget.reference)).mean()


def _preserve(parts: Parts) -> Tensor:
    return _preserved(parts["forget"], parts["forget"].key.float()) + _retain_kl(parts)


def _rarity_preserve(parts: Parts) -> Tensor:
    return _preserved(parts["forget"], parts["forget"].weight) + _retain_kl(parts)


def _refusal(parts: Parts) -> Tensor:
    """JS divergence to the refusal, in each row half for its first token."""
    refusal = parts["refusal"]
    return (refusal.first * js_to_tokens(refusal.logps, refusal.labels[:, None])).sum() / refusal.grid_size[0]


def _preserve_refusal(parts: Parts) -> Tensor:
    return _preserve(parts) + _refusal(parts)


def _jensunpp(parts: Parts) -> Tensor:
    """`gamma s L_f + L_r`, s the retain loss's gradient norm in its logits over that of the forget loss (Peleg et al. 2026)."""
    retain = parts["retain"]
    retain_loss = (retain.first * jensen_shannon(retain.logps, retain.reference)).sum() / retain.grid_size[0]
    forget_loss = _refusal(parts)
    norms = [
        _logit_gradient(loss, part.logps).norm()
        for loss, part in ((forget_loss, parts["refusal"]), (retain_loss, retain))
    ]
    scale = (norms[1] / (norms[0] + _EPSILON)).clamp(max=1e6)
    scale = torch.where((forget_loss > _EPSILON) & (retain_loss > _EPSILON), scale, torch.ones_like(scale)).detach()
    return 0.33 * scale * forget_loss + retain_loss


def _logit_gradient(loss: Tensor, logps: Tensor) -> Tensor:
    """Gradient in the logits behind `logps = log_softmax(logits)`."""
    (given,) = torch.autograd.grad(loss, logps, retain_graph=True)
    return given - logps.detach().exp() * given.sum(-1, keepdim=True)


@dataclass(frozen=True, slots=True)
class Variant:
    """One row of the study's table."""

    loss: Callable[[Parts], Tensor]
    kinds: tuple[str, ...] = ("forget", "retain")
    """Kinds of rows in its batches."""
    paired: bool = True
    """Whether each forget row comes with the retain row of its pair."""
    rate_of: str | None = None
    """Variant whose learning rate it uses."""


_PRESERVE = Variant(_preserve)
_JENSUNPP = Variant(_jensunpp, ("refusal", "retain"))
VARIANTS: Mapping[str, Variant] = {
    "jensunpp": _JENSUNPP,
    "preserve": _PRESERVE,
    "satga_kl": Variant(_satga_kl),
    "satga": Variant(_satga),
    "undial": Variant(_undial),
    "npo": Variant(_npo),
    "simnpo": Variant(_simnpo),
    "wga": Variant(_wga),
    "rarity_preserve": Variant(_rarity_preserve),
    "preserve_refusal": Variant(_preserve_refusal, KINDS),
    "preserve_shuffled": replace(_PRESERVE, paired=False, rate_of="preserve"),
    "jensunpp_shuffled": replace(_JENSUNPP, paired=False, rate_of="jensunpp"),
}
