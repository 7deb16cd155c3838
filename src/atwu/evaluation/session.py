"""State of one evaluation: model, rows and cached passes, shared by all metrics so that each pass runs once."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from types import SimpleNamespace
from typing import Any

import numpy as np

from atwu.benchmarks.base import Probe, Probes
from atwu.data.encode import EncodedRow, Encoder
from atwu.data.render import with_system, without_thoughts
from atwu.data.schema import Example
from atwu.errors import AtwuError
from atwu.evaluation.columns import RETAIN, apply_known
from atwu.evaluation.generations import Decoding, GenerationStore, Generator, Prompt, generate_all
from atwu.evaluation.result import EvalResult, MetricValue, RowValues, row_id
from atwu.evaluation.teacher_forced import TokenRow, read_tokens
from atwu.evaluation.weighting_scores import AuxiliaryModels
from atwu.judge.verdicts import Claim, Judge, Pair, Preference, Verdict
from atwu.methods.weightings.token_scorer import TokenScorer
from atwu.modeling.open_model import ModelLoadArgs


@dataclass(frozen=True, slots=True)
class ReferenceModels:
    """Folders or Hub names of the original and the retain-only model, for metrics that compute with their weights."""

    original: str
    retain_only: str
    loading: ModelLoadArgs = field(default_factory=ModelLoadArgs)


@dataclass(kw_only=True)
class Session:
    """State that the metrics share. Inputs were validated by `evaluate`."""

    model: Any
    """Causal language model; None if only a generator is available."""
    tokenizer: Any
    generator: Generator
    sets: Mapping[str, Sequence[Example]]
    pool: Sequence[Example]
    """All retain rows, for in-context examples, frequency counts and the relearning attack."""
    apart: Collection[str]
    """Names of the sets that are neither forget nor retain sets."""
    judge: Judge
    config: SimpleNamespace
    scorer: TokenScorer | None
    auxiliary: AuxiliaryModels | None = None
    """Auxiliary models of a SU-LLM run."""
    store: GenerationStore | None
    original: EvalResult | None
    reference_models: ReferenceModels | None = None
    probes: Probes | None
    moments: bool
    """Whether the shared pass also computes the moments for min-k++."""
    progress: bool
    warnings: list[str] = field(default_factory=list)
    task_values: dict[str, MetricValue] = field(default_factory=dict)
    """Values of lm-evaluation-harness tasks, which have no row values."""
    generated_tokens: int = 0

    def __post_init__(self) -> None:
        self.rows: dict[str, RowValues] = {}
        """Set -> what the metrics recorded."""
        for split, rows in self.sets.items():
            # Rows without a subject are clusters of their own in the bootstrap.
            ids = tuple(map(row_id, rows))
            self.rows[split] = RowValues(ids, tuple(row.subject or name for row, name in zip(rows, ids, strict=True)))
        self._encoded: dict[str, Sequence[EncodedRow]] = {}
        self._tokens: dict[str, list[TokenRow]] = {}
        self._answers: dict[Prompt, str | None] = {}
        self._verdicts: dict[Claim, Verdict] = {}
        self._preferences: dict[Pair, Preference] = {}

    @property
    def forget_and_retain_sets(self) -> dict[str, Sequence[Example]]:
        return {split: rows for split, rows in self.sets.items() if split not in self.apart}

    @property
    def question_prompts(self) -> list[Prompt]:
        return [Prompt(row.messages) for rows in self.forget_and_retain_sets.values() for row in rows if row.messages]

    def question_answers(self, split: str) -> list[str | None]:
        """Return the answer to every row's own question; None for a row without question or where a server gave none."""
        return [self.answer(Prompt(row.messages)) if row.messages else None for row in self.sets[split]]

    @property
    def benchmark_probes(self) -> Sequence[Probe]:
        assert self.probes is not None
        return self.probes.probes

    def score_answers(self, split: str, formula: Callable[[Example, str], float | None]) -> list[float | None]:
        """Apply a formula to each row and the answer to its own question; None without an answer."""
        return apply_known(formula, self.sets[split], self.question_answers(split))

    @cached_property
    def _encoder(self) -> Encoder:
        return Encoder(self.tokenizer, max_length=self.config.max_length, system=self.config.system)

    def encode(self, rows: Sequence[Example], *, what: str) -> Sequence[EncodedRow]:
        encoded = self._encoder.encode_rows(rows, what=what)
        self.warnings += encoded.warnings
        return encoded.rows

    def encode_set(self, split: str) -> Sequence[EncodedRow]:
        if split not in self._encoded:
            self._encoded[split] = self.encode(self.sets[split], what=split)
        return self._encoded[split]

    def encode_pool(self) -> Sequence[EncodedRow]:
        # Most often the pool is the retain set, which is encoded already.
        if self.pool == self.sets.get(RETAIN):
            return self.encode_set(RETAIN)
        return self.encode(self.pool, what="pool")

    def tokens(self, split: str) -> list[TokenRow]:
        """Return the teacher-forced outputs for every token of a set; the pass runs once."""
        if split not in self._tokens:
            rows = self.read(self.encode_set(split), label=f"read {split}", moments=self.moments)
            # One NaN would make every mean NaN, long after the cause.
            if any(np.isnan(row.logps).any() for row in rows):
                raise ValueError(
                    f"the model gives NaN on {split} rows; check its weights and the dtype it is loaded with."
                )
            self._tokens[split] = rows
        return self._tokens[split]

    def read(self, rows: Sequence[EncodedRow], *, label: str, moments: bool = False) -> list[TokenRow]:
        progress = None
        if self.progress:
            progress = label
        return read_tokens(
            self.model,
            rows,
            scorer=self.scorer,
            batch_tokens=self.config.batch_tokens,
            moments=moments,
            progress=progress,
        )

    def generate(
        self,
        prompts: Iterable[Prompt],
        *,
        label: str,
        decoding: Decoding | None = None,
        generator: Generator | None = None,
    ) -> dict[Prompt, str | None]:
        """Return the answers to distinct prompts, without thoughts; None where a server gave none. Stored ones are reused.

        The system prompt is added here, so that all backends use it and it is part of the store's key.
        """
        distinct = list(dict.fromkeys(prompts))
        system = self.config.system
        generations = generate_all(
            generator or self.generator,
            [replace(prompt, messages=with_system(prompt.messages, system)) for prompt in distinct],
            decoding or Decoding(max_new_tokens=self.config.max_new_tokens),
            store=self.store,
            progress=label if self.progress else None,
        )
        # A model that still thinks has not answered, which is not the same as not knowing.
        cut = sum(without_thoughts(generation.text) is None for generation in generations)
        if cut:
            self.warnings.append(
                f"{cut} of {len(generations)} answers ({label}) end within their thoughts and are measured as empty; raise "
                "max_new_tokens, or turn thinking off with chat_template_kwargs."
            )
        errors = [generation.error for generation in generations if generation.error is not None]
        if errors:
            self.warnings.append(
                f"{len(errors)} of {len(generations)} prompts ({label}) got no answer and are not scored. "
                f"First error: {errors[0]}"
            )
        self.generated_tokens += sum(generation.tokens for generation in generations)
        answers: dict[Prompt, str | None] = {}
        for prompt, generation in zip(distinct, generations, strict=True):
            answers[prompt] = generation.answer
            if generation.error is not None:
                answers[prompt] = None
        return answers

    def answer_all(self, prompts: Iterable[Prompt]) -> None:
        """Answer the prompts of all metrics greedily in one pass.

        Raises:
            AtwuError: a server answered no prompt.
        """
        self._answers = self.generate(prompts, label="generate")
        # Some prompts without an answer are a warning; none with one is an error of the server.
        if self._answers and all(answer is None for answer in self._answers.values()):
            raise AtwuError(self.warnings[-1])

    def answer(self, prompt: Prompt) -> str | None:
        """Return the answer to a prompt that a metric requested; None if a server gave none."""
        return self._answers[prompt]

    def judge_all(self, claims: Sequence[Claim], pairs: Sequence[Pair]) -> None:
        """Judge the distinct claims and pairs of all metrics in one pass."""
        if claims:
            self._verdicts = dict(zip(claims, self.judge.judge(claims), strict=True))
        if pairs:
            self._preferences = dict(zip(pairs, self.judge.prefer(pairs), strict=True))
        reasons = [verdict.reason for verdict in self._verdicts.values() if verdict.correct is None]
        reasons += [ratings.reason for ratings in self._preferences.values() if None in (ratings.first, ratings.second)]
        if reasons:
            self.warnings.append(
                f"the judge gave no readable verdict on {len(reasons)} of {len(claims) + len(pairs)} answers. First reason: "
                f"{reasons[0]}"
            )

    def verdict(self, claim: Claim | None) -> bool | None:
        """Return whether an answer is correct; None without an answer or a readable verdict."""
        if claim is None:
            return None
        return self._verdicts[claim].correct

    def preference(self, pair: Pair | None) -> Preference:
        """Return the ratings of a pair of answers; none without an answer."""
        if pair is None:
            return Preference(None, None)
        return self._preferences[pair]
