"""`evaluate`: compute metrics of any checkpoint on forget, retain and holdout rows."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence, Sized
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from atwu._cache import short_hash
from atwu._files import versions
from atwu.benchmarks.base import Probes
from atwu.data.schema import Example
from atwu.evaluation.aggregate import compare_models, overall, values_by_set
from atwu.evaluation.backends import TransformersGenerator
from atwu.evaluation.columns import FORGET, HOLDOUT, POOL, RESERVED_SET_NAMES, RETAIN, SPECIAL_SETS, TASKS
from atwu.evaluation.generations import GenerationStore, Generator
from atwu.evaluation.metric import Metric
from atwu.evaluation.registry import (
    EvaluateConfig,
    check_inputs_used,
    check_installed,
    find_metric,
    selected_metrics,
)
from atwu.evaluation.result import EvalResult, MetricValue
from atwu.evaluation.result_checks import check_comparable, different_template, provenance, warnings
from atwu.evaluation.session import ReferenceModels, Session
from atwu.evaluation.weighting_scores import AuxiliaryModels, find_auxiliary_models
from atwu.judge.offline import OfflineJudge
from atwu.judge.prompted import PromptedJudge
from atwu.judge.verdicts import Claim, Judge, Pair
from atwu.methods.weightings.token_scorer import TokenScorer, find_scorer
from atwu.modeling.load import check_model_name, check_objects, load_config, model_fingerprint
from atwu.modeling.open_model import ModelLoadArgs, check_system_prompt, open_model
from atwu.training.row_sets import RowsInput, text_rows


@dataclass(frozen=True, kw_only=True)
class Evaluation:
    """What an evaluation measures, with which settings, and what it compares the model with."""

    metrics: Sequence[str] | str | None = None
    """Metric names, or "all" for every metric whose sets are given; None for the default metrics."""
    settings: EvaluateConfig = field(default_factory=EvaluateConfig)
    """Settings of the metrics."""
    judge: Judge | None = None
    """Judge of answers; the offline judge by default."""
    scorer: TokenScorer | None = None
    """Learned token scorer of the unlearned model, for its AUROC."""
    auxiliary: AuxiliaryModels | None = None
    """The two auxiliary models of a SU-LLM run, for the AUROC of its token selection."""
    original: EvalResult | None = None
    """Result of the original model on the same rows with the same settings; adds judged forget quality (FQ), retain degradation
    (RD), unlearning quality (UQ), win rate and recovery under attacks."""
    retain_only: EvalResult | None = None
    """Result of a model trained without the forget set; adds forget quality (p-value), privleak and the reference attack."""
    reference_models: ReferenceModels | None = None
    """Original and retain-only model, for the unlearning depth score."""
    generator: Generator | None = None
    """Generates answers instead of this model through transformers."""
    store: GenerationStore | None = None
    """Cache of generations, so that an interrupted evaluation continues."""
    probes: Probes | None = None
    """Probes of a benchmark."""
    reference: bool = False
    """Whether this model is a reference; attacks on its weights are skipped."""
    before_judging: Callable[[Sequence[Claim], Sequence[Pair]], None] | None = None
    """Called with all claims and pairs before any is judged; may raise to stop."""
    progress: bool = True
    name: str | None = None
    """Name of the model in the result; by default its path or Hub name."""

    def __post_init__(self) -> None:
        for argument, value, fits, wanted in (
            ("settings", self.settings, isinstance(self.settings, EvaluateConfig), "an EvaluateConfig"),
            ("judge", self.judge, hasattr(self.judge, "identity"), "a judge, such as OfflineJudge()"),
            ("scorer", self.scorer, isinstance(self.scorer, TokenScorer), "a TokenScorer"),
            ("original", self.original, isinstance(self.original, EvalResult), "an EvalResult (read_result)"),
            ("retain_only", self.retain_only, isinstance(self.retain_only, EvalResult), "an EvalResult (read_result)"),
        ):
            if value is not None and not fits:
                raise TypeError(f"{argument} must be {wanted}, got {type(value).__name__}.")


def evaluate(
    model: Any | None,
    rows: Mapping[str, RowsInput | None],
    evaluation: Evaluation | None = None,
    *,
    tokenizer: Any | None = None,
) -> EvalResult:
    """Evaluate a model.

    Args:
        model: Causal language model on its device (left unchanged), or its path or Hub name, from which tokenizer and
            learned scorer are loaded too. None if only a generator is available.
        rows: Name of a set -> its rows, as `UnlearnTrainer` accepts them: a path or Hub name, mappings, a Hub data set, or
            `Example`s; None or an empty source leaves a set out. `forget`, `retain`, `holdout` (never trained on, for
            membership attacks) and `pool` (all retain rows, if `retain` is a subset: in-context examples, frequency counts
            and attacks draw from it); other names are further retain sets, such as TOFU's real authors.
        tokenizer: Fast tokenizer of the model; None if the model is given by name or not at all.

    Returns:
        The result. Equal inputs give equal results, also after an interruption.

    Raises:
        ValueError: No rows, unknown metrics, metrics whose sets are missing, unused probes or tasks, or a reference
            result with other rows or settings.
    """
    how = evaluation or Evaluation()
    _check_model(model, tokenizer, how.generator)
    config = EvaluateConfig(**how.settings.values)  # adds settings registered since
    judge = how.judge or OfflineJudge()
    if isinstance(judge, PromptedJudge):
        judge = judge.with_new_counters()  # the cost of this evaluation is its own
    generator = how.generator
    notes: list[str] = []
    sets = _load_sets(rows, notes)
    pool_rows = _examples(rows.get(POOL), POOL, notes) or sets.get(RETAIN, ())
    if how.probes is not None:
        sets[how.probes.name] = how.probes.rows
    if not sets and not config.tasks:
        raise ValueError("nothing to evaluate: give forget rows, retain rows or both.")
    # Before the model is loaded, so that an unknown metric or a missing package fails at once.
    names = _choose_metrics(how, config, sets, model, notes)
    measured = list(map(find_metric, names))
    # Behind the choice of metrics: rows that a metric brings along are no set that was given.
    own_sets = {split: tuple(own) for metric in measured for split, own in metric.own_rows(config).items()}
    sets |= own_sets
    name, scorer, auxiliary = how.name, how.scorer, how.auxiliary
    if isinstance(model, str | Path):
        name = name or str(model)
        scorer, auxiliary = scorer or find_scorer(model), auxiliary or find_auxiliary_models(model)
        notes.extend(filter(None, [check_system_prompt(name, config.system)]))
        model, tokenizer = open_model(str(model), ModelLoadArgs())
    # The pool changes in-context examples and frequencies, so its rows are a part of what was measured.
    every = dict(sets)
    if pool_rows:
        every[POOL] = pool_rows
    settings = provenance(config, judge, every, names, model=model, tokenizer=tokenizer, generator=generator)
    # Before anything is measured, since numbers of other rows cannot be compared.
    results = {"original": how.original, "retain-only": how.retain_only}
    references = {role: other for role, other in results.items() if other is not None}
    for role, other in references.items():
        check_comparable(settings, other, role=role)
        notes.extend(filter(None, [different_template(settings, other, role=role)]))
    fingerprint = None
    if model is not None:
        # Hashed once, for the result and for the keys of stored answers: it takes a second per gigabyte.
        fingerprint = model_fingerprint(model)
    if generator is None:
        generator = TransformersGenerator(model, tokenizer, batch_tokens=config.batch_tokens, fingerprint=fingerprint)
    session = Session(
        model=model,
        tokenizer=tokenizer,
        generator=generator,
        sets=sets,
        pool=pool_rows,
        apart=(*SPECIAL_SETS, *own_sets),
        judge=judge,
        config=config,
        scorer=scorer,
        auxiliary=auxiliary,
        store=how.store,
        original=how.original,
        reference_models=how.reference_models,
        probes=how.probes,
        moments=any(metric.needs_moments for metric in measured),
        progress=how.progress,
        warnings=notes,
    )
    _measure(session, measured, how.before_judging, by_name=how.metrics is not None)
    # A served model has no weights to hash.
    identity = fingerprint or short_hash(generator.identity)
    return _result(session, references, model=name or "model", fingerprint=identity, settings=settings)


def _check_model(model: Any | None, tokenizer: Any | None, generator: Generator | None) -> None:
    """Check that there is something to evaluate: a model in memory with its tokenizer, a named model, or a generator."""
    if tokenizer is not None and not hasattr(tokenizer, "chat_template"):
        raise TypeError(f"tokenizer must be a tokenizer of transformers, got {type(tokenizer).__name__}.")
    if model is None and generator is None:
        raise ValueError("nothing to evaluate: give a model or a generator.")
    if model is None or isinstance(model, str | Path):
        return
    check_objects(model, tokenizer)
    if tokenizer is None:
        raise ValueError("tokenizer is missing: give the model's tokenizer, or give the model by name.")


def _load_sets(rows: Mapping[str, RowsInput | None], notes: list[str]) -> dict[str, Sequence[Example]]:
    """Load all sets that have rows, further retain sets between retain and holdout set."""
    further = [split for split in rows if split not in (FORGET, RETAIN, HOLDOUT, POOL)]
    reserved = [split for split in further if split in RESERVED_SET_NAMES]
    if reserved:
        raise ValueError(
            f"the set {reserved[0]!r} has a reserved name; choose a name other than {', '.join(RESERVED_SET_NAMES)}."
        )
    # In this order, which is that of tables.
    loaded = {split: _examples(rows.get(split), split, notes) for split in (FORGET, RETAIN, *further, HOLDOUT)}
    return {split: examples for split, examples in loaded.items() if examples}


def _choose_metrics(
    how: Evaluation,
    config: EvaluateConfig,
    sets: Mapping[str, Sequence[Example]],
    model: Any | None,
    notes: list[str],
) -> list[str]:
    """Return the names of the metrics to run, once rows, probes, tasks and packages are known to be there and used."""
    available = list(sets)
    if config.tasks:
        available.append(TASKS)
    names = selected_metrics(
        how.metrics,
        sets=available,
        weights=model is not None,
        plain=_plain(model),
        references=how.reference,
        reference_models=how.reference_models is not None,
    )
    # With a model, tasks that no chosen metric runs are only noted.
    check_inputs_used(names, sets=available if model is None else sets, weights=model is not None)
    check_installed(names, config)
    if config.tasks and TASKS not in names:
        notes.append(
            f"tasks {', '.join(config.tasks)} were not run: they need the metric tasks, got {', '.join(names)}."
        )
    return names


def _examples(rows: RowsInput | None, split: str, notes: list[str]) -> Sequence[Example]:
    """Load one set as text and append its warnings to `notes`; an empty tuple without rows."""
    if rows is None or (isinstance(rows, Sized) and not len(rows)):
        return ()
    loaded = text_rows(rows, what=split)
    notes += [f"{split}: {note}" for note in loaded.warnings]
    return loaded.rows


def _plain(model: Any | None) -> bool:
    """Whether a model, or the checkpoint of this name, is not quantized."""
    if isinstance(model, str | Path):
        check_model_name(str(model))
        return getattr(load_config(str(model)), "quantization_config", None) is None
    return not getattr(model, "is_quantized", False)


def _measure(
    session: Session,
    metrics: Sequence[type[Metric]],
    before_judging: Callable[[Sequence[Claim], Sequence[Pair]], None] | None,
    *,
    by_name: bool,
) -> None:
    """Run all metrics: generate and judge once, then record; `by_name` warns about those without any value."""

    def recorded() -> int:
        return sum(len(rows.metrics) for rows in session.rows.values()) + len(session.task_values)

    # Step by step for all metrics, not metric by metric: each text is generated and judged once, in large batches.
    working = [metric(session) for metric in metrics]
    for metric in working:
        metric.read()
    session.answer_all(prompt for metric in working for prompt in metric.prompts())
    for metric in working:
        metric.prepare()
    # Equal claims of several metrics are judged once.
    claims = list(dict.fromkeys(claim for metric in working for claim in metric.claims() if claim is not None))
    pairs = list(dict.fromkeys(pair for metric in working for pair in metric.pairs() if pair is not None))
    if before_judging is not None and (claims or pairs):
        before_judging(claims, pairs)
    session.judge_all(claims, pairs)
    for metric in working:
        before = recorded()
        metric.record()
        if by_name and recorded() == before:
            session.warnings.append(f"{metric.name}: no values, since these rows lack what the metric needs.")


def _result(
    session: Session,
    references: Mapping[str, EvalResult],
    *,
    model: str,
    fingerprint: str,
    settings: Mapping[str, Any],
) -> EvalResult:
    original, retain_only = references.get("original"), references.get("retain-only")
    sides = compare_models(session.rows, original, retain_only, session.task_values)
    sets: dict[str, Mapping[str, MetricValue]] = {**values_by_set(sides.this)}
    if session.task_values:
        sets[TASKS] = session.task_values
    # Replies from the cache count as if sent now.
    cost: dict[str, float] = {"generated_tokens": session.generated_tokens}
    if isinstance(session.judge, PromptedJudge):
        cost |= session.judge.asker.cost
    result = EvalResult(
        model=model,
        fingerprint=fingerprint,
        sets=sets,
        overall=overall(sides),
        rows=session.rows,
        settings=settings,
        versions=versions(),
        references={role: other.fingerprint for role, other in references.items()},
        cost=cost,
        warnings=tuple(dict.fromkeys(session.warnings)),
    )
    said = warnings(result, original, retain_only)
    return dataclasses.replace(result, warnings=(*result.warnings, *said))
