"""One model and its rows while they are measured: every pass is made once, whichever metrics ask for it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from atwu.benchmarks.rwku.probes import RwkuProbes
from atwu.data.encode import EncodedRow, Encoder
from atwu.data.render import with_system
from atwu.data.schema import Example, Message
from atwu.evaluation.generations import GenerationStore, generate_all
from atwu.evaluation.panel.config import EvaluateConfig
from atwu.evaluation.prompts import Decoding, Generation, Generator, Prompt
from atwu.evaluation.result import Direction, EvalResult, MetricValue, row_id
from atwu.evaluation.teacher_forced import TokenRow, read_tokens
from atwu.judge.verdicts import Claim, Judge, Pair, Preference, Verdict
from atwu.methods.weightings.scorer import TokenScorer

FORGET, RETAIN, HOLDOUT, INSTRUCTIONS, RWKU, TASKS = "forget", "retain", "holdout", "instructions", "rwku", "tasks"
ROWS = "forget or retain"
"""Stands for any set of rows to forget or to keep."""
APART = (HOLDOUT, INSTRUCTIONS, RWKU, TASKS)
"""Sets with a purpose of their own; every other one holds rows to forget or to keep."""


@dataclass(frozen=True, slots=True)
class Recorded:
    """One metric on one set, a value per row."""

    values: tuple[float | None, ...]
    direction: Direction
    unscored: int = 0
    digits: int = 3
    shown: bool = True
    """False for values that only serve other metrics."""


class Session:
    """What the groups of metrics work with."""

    def __init__(
        self,
        *,
        model: Any | None,
        tokenizer: Any | None,
        generator: Generator,
        sets: Mapping[str, Sequence[Example]],
        pool: Sequence[Example] = (),
        judge: Judge,
        config: EvaluateConfig,
        scorer: TokenScorer | None = None,
        store: GenerationStore | None = None,
        original: EvalResult | None = None,
        probes: RwkuProbes | None = None,
        moments: bool = False,
        progress: bool = True,
    ) -> None:
        """Take what is needed and check nothing; `evaluate` has checked.

        Args:
            model: the causal language model, or None when only its generations can be had.
            tokenizer: its tokenizer, or None without a model.
            generator: continues prompts with this model.
            sets: set name -> rows.
            pool: every retain row there is: for demonstrations, counts and the relearning attack.
            judge: checks answers.
            config: settings.
            scorer: learned scorer of the model.
            store: where generations are kept.
            original: result of the starting model.
            probes: RWKU's own probes.
            moments: whether the shared pass also takes the moments that min-k++ needs.
            progress: whether to show progress bars.
        """
        self.model, self.tokenizer, self.generator = model, tokenizer, generator
        self.sets = {name: tuple(rows) for name, rows in sets.items()}
        self.pool = tuple(pool)
        self.judge, self.config, self.scorer, self.store, self.original = judge, config, scorer, store, original
        self.probes = probes
        self.progress = progress
        self.encoder = (
            Encoder(tokenizer, max_length=config.max_length, system=config.system) if model is not None else None
        )
        self.warnings: list[str] = []
        self.recorded: dict[str, dict[str, Recorded]] = {}
        self.texts: dict[str, dict[str, tuple[str, ...]]] = {}
        self.curves: dict[str, Any] = {}
        self.extra: dict[str, dict[str, MetricValue]] = {}
        self.generated_tokens = 0
        self._moments = moments
        self._encoded: dict[str, tuple[EncodedRow, ...]] = {}
        self._tokens: dict[str, list[TokenRow]] = {}
        self._generations: dict[Prompt, Generation] = {}
        self._verdicts: dict[Claim, Verdict] = {}
        self._preferences: dict[Pair, Preference] = {}

    @property
    def network(self) -> Any:
        """The model, for groups that need its weights."""
        assert self.model is not None
        return self.model

    @property
    def answered(self) -> dict[str, tuple[Example, ...]]:
        """The sets of rows to forget or to keep."""
        return {split: rows for split, rows in self.sets.items() if split not in APART}

    @property
    def decoding(self) -> Decoding:
        """Greedy, as every metric without a reason to differ decodes."""
        return self.decoding_of(self.config.max_new_tokens)

    def decoding_of(self, max_new_tokens: int) -> Decoding:
        """Greedy decoding of another length."""
        return Decoding(max_new_tokens=max_new_tokens)

    def encoded(self, split: str) -> tuple[EncodedRow, ...]:
        """The rows of a set as tokens."""
        if split not in self._encoded:
            assert self.encoder is not None
            encoded = self.encoder.encode_rows(self.sets[split], what=split)
            self.warnings += encoded.warnings
            self._encoded[split] = encoded.rows
        return self._encoded[split]

    def encoded_pool(self) -> tuple[EncodedRow, ...]:
        """The pool as tokens."""
        assert self.encoder is not None
        return self.encoder.encode_rows(self.pool, what="retain").rows

    def tokens(self, split: str) -> list[TokenRow]:
        """What the model says about every token of a set under teacher forcing; read once."""
        if split not in self._tokens:
            rows = self.read(self.encoded(split), label=f"read {split}", moments=self._moments)
            if any(np.isnan(row.logps).any() for row in rows):
                raise ValueError(
                    f"the model gives NaN on {split} rows; check its weights and the dtype it is loaded with."
                )
            self._tokens[split] = rows
        return self._tokens[split]

    def read(self, rows: Sequence[EncodedRow], *, label: str, moments: bool = False) -> list[TokenRow]:
        """A teacher-forced pass over rows, with the model as it is now."""
        assert self.model is not None
        return read_tokens(
            self.model,
            rows,
            scorer=self.scorer,
            batch_tokens=self.config.batch_tokens,
            moments=moments,
            progress=label if self.progress else None,
        )

    def generate(
        self,
        prompts: Iterable[Prompt],
        *,
        label: str,
        decoding: Decoding | None = None,
        generator: Generator | None = None,
    ) -> dict[Prompt, Generation]:
        """Generations of distinct prompts, from the store where they are there.

        The system turn is put before them here, so that every backend sees it and the store tells it apart.
        """
        distinct = list(dict.fromkeys(prompts))
        system = self.config.system
        found = generate_all(
            generator or self.generator,
            [replace(prompt, messages=with_system(prompt.messages, system)) for prompt in distinct],
            decoding or self.decoding,
            store=self.store,
            progress=label if self.progress else None,
        )
        self.generated_tokens += sum(generation.tokens for generation in found)
        return dict(zip(distinct, found, strict=True))

    def answer_all(self, prompts: Iterable[Prompt]) -> None:
        """Answer the prompts of all groups, greedily and in one go."""
        self._generations |= self.generate(prompts, label="generate")

    def answer(self, prompt: Prompt) -> str:
        """The model's answer to a prompt that some group asked for."""
        return self._generations[prompt].text

    def judge_all(self, claims: Sequence[Claim], pairs: Sequence[Pair]) -> None:
        """Judge the distinct claims and pairs of all groups in one go."""
        if claims:
            self._verdicts = dict(zip(claims, self.judge.judge(claims), strict=True))
        if pairs:
            self._preferences = dict(zip(pairs, self.judge.prefer(pairs), strict=True))

    def verdict(self, claim: Claim) -> bool | None:
        """Whether an answer was right; None without a readable verdict."""
        return self._verdicts[claim].correct

    def preference(self, pair: Pair) -> Preference:
        """How two answers were rated."""
        return self._preferences[pair]

    def record(
        self,
        split: str,
        metric: str,
        values: Sequence[float | None],
        *,
        direction: Direction | None = None,
        unscored: int = 0,
        digits: int = 3,
        shown: bool = True,
    ) -> None:
        """Keep the values of one metric; without a direction, lower is better on forget rows and higher elsewhere."""
        natural: Direction = "down" if split == FORGET else "none" if split == HOLDOUT else "up"
        kept = tuple(None if value is None else float(value) for value in values)
        self.recorded.setdefault(split, {})[metric] = Recorded(kept, direction or natural, unscored, digits, shown)

    def ids(self, split: str) -> tuple[str, ...]:
        """Names of the rows of a set."""
        return tuple(row_id(row) for row in self.sets[split])


def question_prompt(row: Example, question: str | None = None, before: tuple[Message, ...] = ()) -> Prompt:
    """The prompt of a row, with another wording of its question or turns before it if given."""
    turns = row.messages
    if question is not None:
        turns = (*turns[:-1], replace(turns[-1], content=question))
    lead = 1 if turns[0].role == "system" else 0
    return Prompt((*turns[:lead], *before, *turns[lead:]))


def variants(row: Example, count: int) -> list[str | None]:
    """The row's own question (None) and at most `count` other wordings; nothing for a plain text row."""
    return [None, *row.paraphrases[:count]] if row.messages else []


def facts(row: Example) -> tuple[str, ...]:
    """The words of the answer that carry its secret, where the row says so."""
    return tuple(row.answer[start:end] for start, end in row.forget_spans or ())


def claim(row: Example, answer: str) -> Claim:
    """An answer to a row, to be judged by the row's own question whatever its wording was."""
    return Claim(question=row.question, reference=row.answer, answer=answer, facts=facts(row))
