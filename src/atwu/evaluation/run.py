"""`evaluate`: the panel of metrics on a model and its rows. Works on any checkpoint, whoever made it."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from atwu._cache import short_hash
from atwu._files import versions
from atwu.benchmarks.rwku.probes import RwkuProbes
from atwu.benchmarks.sources import LoadedRows
from atwu.data.rows import fingerprint as rows_fingerprint
from atwu.data.schema import Example
from atwu.evaluation.auxiliary import Auxiliary, find_auxiliary
from atwu.evaluation.backends import TransformersGenerator
from atwu.evaluation.columns import APART, FORGET, HOLDOUT, RESERVED, RETAIN, RWKU, TASKS
from atwu.evaluation.comparable import check_comparable
from atwu.evaluation.config import EvaluateConfig
from atwu.evaluation.derive import overall
from atwu.evaluation.generations import GenerationStore, Generator
from atwu.evaluation.metric import Metric
from atwu.evaluation.numbers import Numbers, Sides, set_values
from atwu.evaluation.panel import chosen, find_metric
from atwu.evaluation.questions.rows import variants
from atwu.evaluation.result import EvalResult, RowValues
from atwu.evaluation.session import Session
from atwu.evaluation.warn import warnings
from atwu.judge.offline import OfflineJudge
from atwu.judge.prompted import PromptedJudge
from atwu.judge.verdicts import Claim, Judge, Pair
from atwu.methods.weightings.scorer import TokenScorer, find_scorer
from atwu.modeling.fingerprint import model_fingerprint
from atwu.modeling.opening import Loading, open_model, other_system
from atwu.training.rows import Rows, RowSet, text_rows


def evaluate(
    model: Any | None,
    tokenizer: Any | None = None,
    *,
    forget: Rows | None = None,
    retain: Rows | None = None,
    holdout: Rows | None = None,
    kept: Mapping[str, Rows] | None = None,
    pool: Rows | None = None,
    metrics: Sequence[str] | str | None = None,
    config: EvaluateConfig | None = None,
    judge: Judge | None = None,
    scorer: TokenScorer | None = None,
    auxiliary: Auxiliary | None = None,
    original: EvalResult | None = None,
    retain_only: EvalResult | None = None,
    generator: Generator | None = None,
    store: GenerationStore | None = None,
    probes: RwkuProbes | None = None,
    reference: bool = False,
    before_judging: Callable[[Sequence[Claim], Sequence[Pair]], None] | None = None,
    progress: bool = True,
    name: str | None = None,
) -> EvalResult:
    """Measure a model on rows.

    Rows are of any kind that `UnlearnTrainer` takes: a source by name or path, mappings, a Hub data set, `Example`s. None, or
    no rows, leaves a set out.

    Args:
        model: causal language model, on its device; it is left as it was. Or its name, as `--model` takes it: then its
            tokenizer and learned scorer are found. None when only its generations can be had.
        tokenizer: its fast tokenizer; None without a model, and for one that is named.
        forget: rows whose knowledge should be gone.
        retain: rows whose knowledge should be there.
        holdout: rows that no model was trained on, for membership attacks.
        kept: further sets that should be kept, by name, such as TOFU's real authors and world facts.
        pool: every retain row there is, when `retain` is a part of them; demonstrations, counts and attacks draw from it.
        metrics: names of metrics, or "all" for all whose rows are given; None for the quick ones.
        config: settings.
        judge: checks answers; the offline judge by default.
        scorer: the learned scorer of an unlearned model, for its AUROC.
        auxiliary: the two models that SU-LLM selected an unlearned model's tokens with, for the AUROC of its selection.
        original: result of the starting model on the same rows and settings: adds FQ, RD, UQ, win rate and recovery.
        retain_only: the same of a model that never saw the forget rows: adds forget quality, privleak and the reference attack.
        generator: what generates, if not this model through transformers.
        store: where generations are kept, so that an evaluation that was killed continues and none is made twice.
        probes: RWKU's own probes, for their native scores.
        reference: this model is only compared with: leave out the attacks on its weights.
        before_judging: called with everything that is to be judged before any of it is; may raise to stop there.
        progress: show progress bars.
        name: how the result calls the model; the name it is read by, if it has one.

    Returns:
        The result; equal inputs give equal results, also after a restart.

    Raises:
        ValueError: no rows, unknown metrics, metrics whose rows are missing, or a reference result made with other rows
            or settings.
    """
    config = EvaluateConfig(**config.values) if config else EvaluateConfig()  # with all that is registered by now
    judge = judge.afresh() if isinstance(judge, PromptedJudge) else judge or OfflineJudge()
    odd: list[str] = []
    sets: dict[str, Sequence[Example]] = {}
    for split, rows in {FORGET: forget, RETAIN: retain, **(kept or {}), HOLDOUT: holdout}.items():
        if found := _examples(rows, split, odd):
            sets[split] = found
    if probes is not None:
        sets[RWKU] = tuple(Example.from_qa(p.query, p.answer, subject=p.subject) for p in probes.probes)
    reserved = sorted(set(kept or {}) & set(RESERVED))
    if reserved:
        raise ValueError(f"a set cannot be called {reserved[0]!r}; choose a name other than {', '.join(RESERVED)}.")
    if model is None and generator is None:
        raise ValueError("nothing to evaluate: give a model or a generator.")
    if model is not None and not isinstance(model, str | Path) and tokenizer is None:
        raise ValueError("give the model's tokenizer, or the name of the model instead of the model.")
    if not sets and not config.tasks:
        raise ValueError("nothing to evaluate: give forget rows, retain rows or both.")
    given_sets = [*sets, *([TASKS] if config.tasks else [])]
    rounded = bool(getattr(model, "is_quantized", False))
    names = chosen(metrics, sets=given_sets, weights=model is not None, plain=not rounded, references=reference)
    measured = [find_metric(each) for each in names]
    own = {split: rows for metric in measured for split, rows in metric.own_rows().items()}
    sets |= {split: tuple(rows) for split, rows in own.items()}
    every = _examples(pool, "pool", odd) or sets.get(RETAIN, ())
    described = sets | ({"pool": every} if every else {})
    if isinstance(model, str | Path):
        name, scorer, auxiliary = name or str(model), scorer or find_scorer(model), auxiliary or find_auxiliary(model)
        odd += filter(None, [other_system(name, config.system)])
        model, tokenizer = open_model(str(model), Loading())
    settings = _settings(config, judge, described, names, model=model, generator=generator)
    for role, other in (("original", original), ("retain-only", retain_only)):
        if other is not None:
            check_comparable(settings, other, role=role)
    fingerprint = None if model is None else model_fingerprint(model)
    if generator is None:
        generator = TransformersGenerator(model, tokenizer, batch_tokens=config.batch_tokens, fingerprint=fingerprint)
    session = Session(
        model=model,
        tokenizer=tokenizer,
        generator=generator,
        sets=sets,
        pool=every,
        apart={*APART, *own},
        judge=judge,
        config=config,
        scorer=scorer,
        auxiliary=auxiliary,
        store=store,
        original=original,
        probes=probes,
        moments=any(metric.needs_moments for metric in measured),
        progress=progress,
        warnings=odd,
    )
    _measure(session, measured, before_judging, by_name=metrics is not None)
    values = {split: _row_values(session, split) for split in sets}
    numbers = Numbers(values)
    sides = Sides(
        numbers,
        original=None if original is None else Numbers(original.rows),
        retain_only=None if retain_only is None else Numbers(retain_only.rows),
    )
    references = {"original": original, "retain-only": retain_only}
    result = EvalResult(
        model=name or "model",
        fingerprint=fingerprint or short_hash(generator.identity),
        sets=set_values(numbers, session.recorded) | session.extra,
        overall=overall(sides),
        rows=values,
        settings=settings,
        versions=versions(),
        references={role: other.fingerprint for role, other in references.items() if other is not None},
        cost=_cost(session),
        curves=session.curves,
        warnings=tuple(dict.fromkeys(session.warnings)),
    )
    said = warnings(result, original, retain_only)
    return dataclasses.replace(result, warnings=(*result.warnings, *said))


def _examples(rows: Rows | None, split: str, odd: list[str]) -> Sequence[Example]:
    """A set as text; what is odd about it is added to `odd`. Nothing where there are no rows."""
    listed: Any = rows if rows is None or isinstance(rows, str | Path | LoadedRows | RowSet) else tuple(rows)
    if not listed:
        return ()
    given = text_rows(listed, what=split)
    odd += [f"{split}: {note}" for note in given.warnings]
    return given.examples or ()


def _measure(
    session: Session,
    metrics: Sequence[type[Metric]],
    before_judging: Callable[[Sequence[Claim], Sequence[Pair]], None] | None,
    *,
    by_name: bool,
) -> None:
    """Ask all metrics, answer and judge once, and have everything recorded.

    Args:
        by_name: whether somebody asked for these metrics, and wants to know which of them had nothing to measure.
    """
    working = [metric(session) for metric in metrics]
    for metric in working:
        metric.read()
    session.answer_all(prompt for metric in working for prompt in metric.prompts())
    for metric in working:
        metric.prepare()
    claims = list(dict.fromkeys(claim for metric in working for claim in metric.claims()))
    pairs = list(dict.fromkeys(pair for metric in working for pair in metric.pairs()))
    if before_judging is not None and (claims or pairs):
        before_judging(claims, pairs)
    session.judge_all(claims, pairs)
    for metric in working:
        before = _recorded(session)
        metric.record()
        if by_name and _recorded(session) == before:
            session.warnings.append(f"{metric.name}: these rows have nothing that it could be measured on.")


def _recorded(session: Session) -> int:
    recorded = sum(len(metrics) for metrics in session.recorded.values())
    return recorded + sum(len(metrics) for metrics in session.extra.values())


def _row_values(session: Session, split: str) -> RowValues:
    ids = session.ids(split)
    recorded = session.recorded.get(split, {})
    return RowValues(
        ids=ids,
        subjects=tuple(row.subject or name for row, name in zip(session.sets[split], ids, strict=True)),
        metrics={metric: kept.values for metric, kept in recorded.items()},
        texts=session.texts.get(split, {}),
        unscored={metric: kept.unscored for metric, kept in recorded.items() if kept.unscored},
    )


def _settings(
    config: EvaluateConfig,
    judge: Judge,
    sets: Mapping[str, Sequence[Example]],
    names: Sequence[str],
    *,
    model: Any | None,
    generator: Generator | None,
) -> dict[str, Any]:
    chosen_settings = {
        "metrics": list(names),
        **config.values,
        "dtype": None if model is None else str(model.dtype).removeprefix("torch."),
        "backend": "transformers" if generator is None else _backend(generator),
        "judge": dict(judge.identity),
        "rows": {split: rows_fingerprint(rows) for split, rows in sets.items()},
        "wordings": {split: counts for split, rows in sets.items() if (counts := _wordings(rows, config.paraphrases))},
    }
    plain: dict[str, Any] = json.loads(json.dumps(chosen_settings))  # as it is read back, with lists for tuples
    return plain


def _wordings(rows: Sequence[Example], most: int) -> list[int]:
    """In how many wordings questions are asked: the different numbers that rows have."""
    return sorted({len(variants(row, most)) for row in rows if row.messages})


def _backend(generator: Generator) -> str:
    name, found, _ = generator.identity.partition("/")
    return name if found else "other"


def _cost(session: Session) -> dict[str, float]:
    """The same whether it was paid now or earlier: calls answered from the store count like new ones."""
    cost: dict[str, float] = {"generated_tokens": session.generated_tokens}
    if isinstance(session.judge, PromptedJudge):
        usage = session.judge.asker.usage
        cost |= {
            "judge_calls": usage.replies,
            "judge_prompt_tokens": usage.prompt_tokens,
            "judge_reply_tokens": usage.completion_tokens,
        }
        if usage.usd is not None:
            cost["judge_usd"] = usage.usd
    return cost
