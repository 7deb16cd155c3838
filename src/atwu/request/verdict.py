"""The verdict on an unlearning request: forgotten or not, at which cost, what was not tested, and what to do next."""

from __future__ import annotations

import dataclasses
import html
import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, Final, Literal

from pydantic import ConfigDict

from atwu._file_reading import printable, read_declared
from atwu._files import write_json
from atwu.evaluation.columns import FORGET, RETAIN
from atwu.evaluation.metrics.recall_by_form import NEIGHBOURS
from atwu.evaluation.result import STRICT, EvalResult
from atwu.request.terminal_text import figure, next_lines, retain_loss_sentence, shorten, wrap_item, wrap_text
from atwu.request.verdict_metrics import (
    FORM_LIMIT,
    FORM_METRICS,
    GIBBERISH,
    FormResult,
    VerdictMetric,
    describe_forms,
    form_metrics,
    form_results,
    lower_bound_of_rows,
    metric_interval,
    metric_value,
    upper_percentile,
)
from atwu.training.run_folder import VERDICT_NAME

if TYPE_CHECKING:
    import pandas as pd

HOLDOUT_SET, OTHER_PROMPTS, GENERAL, TEXTS = "holdout_rows", "other_prompts", "general", "texts"
"""Sets that are measured besides forget and retain set: holdout set, forget rows with other prompts, general questions,
general text.
"""
RETAINED = "retained"
"""Name under which the verdict lists the retain loss increase, the largest over all sets of retained data."""
DECISIVE_METRICS = {
    "key_token_probability": "key-token probability",
    "key_token_accuracy": "key-token accuracy",
    "key_token_recall": "key-token recall",
}
"""Metrics that decide whether rows are known -> their titles."""
SHOWN_METRICS = {FORGET: {"extraction_strength": "extraction strength", "probability": "probability"}}
"""Set -> further metrics that are shown."""
CHANCE_LEVELS = {"key_token_probability": 0.02, "key_token_accuracy": 0.1, "key_token_recall": 0.1}
"""Smallest limit of a metric: forget rows may have more common words than holdout rows."""
MIN_CHANGE = 0.02
"""Smallest difference of a metric that counts as a change."""
ANSWERS_SHOWN = 3
"""Number of questions whose answers are printed."""
VERDICT_SCHEMA: Final = "atwu.verdict/2"

FORGOTTEN = "forgotten"
TOO_COSTLY = "forgotten, at too high a cost"
UTILITY_DAMAGED = "damaged, and not forgotten"
PARTLY = "partly forgotten"
UNCHANGED = "nothing changed"
NOT_FORGOTTEN = "not forgotten"
NOTHING = "nothing to forget"

SET_NAMES = {
    FORGET: "forget set",
    OTHER_PROMPTS: "forget set, other prompts",
    HOLDOUT_SET: "holdout set",
    RETAIN: "retain set",
    GENERAL: "general questions",
    NEIGHBOURS: "neighbour set",
    TEXTS: "general text",
    RETAINED: "retained data",
}
"""Set -> its title."""


_COSTLIER = "raise --max-retain-increase"
_FURTHER = "raise --learning-rate or --steps (the retain loss is far from its limit)"
"""Advice to forget more, if the retain loss increase is above half its limit, and if it is below."""


@dataclass(frozen=True, slots=True)
class AnswerPair:
    """One question with the answers before and after unlearning."""

    question: str
    expected: str
    before: str
    after: str


@dataclass(frozen=True, slots=True)
class RequestVerdict:
    """The verdict on an unlearning request or on an export."""

    __pydantic_config__: ClassVar[ConfigDict] = STRICT

    outcome: str
    """One of the constants above."""
    reason: str
    metrics: tuple[VerdictMetric, ...]
    answers: tuple[AnswerPair, ...]
    next_steps: tuple[str, ...]
    """Advice and commands, most useful first."""
    holdout_limits: Mapping[str, float] = field(default_factory=dict)
    """Metric of `DECISIVE_METRICS` -> its limit, from the original model on holdout rows (`holdout_limit`)."""
    not_tested: tuple[str, ...] = ()
    """What the verdict does not cover."""
    forms: tuple[FormResult, ...] = ()
    """Recall of the forget rows by form of the question, worst first."""
    schema: Literal["atwu.verdict/2"] = VERDICT_SCHEMA

    @property
    def good(self) -> bool:
        """Whether the request is fulfilled."""
        return self.outcome == FORGOTTEN

    def write(self, folder: Path) -> None:
        """Write `verdict.json` into a folder."""
        write_json(folder / VERDICT_NAME, dataclasses.asdict(self))

    def text(self) -> str:
        """Return the verdict as plain text, 80 columns wide."""
        out = [
            f"VERDICT: {self.outcome.upper()}",
            *wrap_text(self.reason),
            "",
            *_table(self.metrics),
        ]
        if any(line.within_chance for line in self.metrics):
            out += wrap_text("*: met, but the interval reaches beyond the limit, so only within chance.")
        if self.forms:
            out += ["", *(line for each in describe_forms(self.forms) for line in wrap_text(each))]
        for each in self.answers[:ANSWERS_SHOWN]:
            out += ["", f"Q       {shorten(each.question)}", f"before  {shorten(each.before)}"]
            out += [f"after   {shorten(each.after) or '(no answer)'}"] if self.outcome != NOTHING else []
        if self.not_tested:
            out += ["", "Not tested:", *(line for each in self.not_tested for line in wrap_item(each))]
        return "\n".join([*out, *next_lines(self.next_steps)])

    def to_pandas(self) -> pd.DataFrame:
        """Return one row per set and metric; `low` and `high` are the 95 % interval of `after`."""
        import pandas as pd

        names = ("set", "metric", "before", "after", "low", "high", "limit", "met")
        return pd.DataFrame([[getattr(line, name) for name in names] for line in self.metrics], columns=names)

    def _repr_html_(self) -> str:
        """For a notebook: outcome, reason, every metric, and the answers before and after."""
        metrics: str = self.to_pandas().to_html(index=False, float_format="{:.3g}".format, na_rep="")
        answers = "".join(
            f"<tr>{''.join(f'<td>{html.escape(printable(text))}</td>' for text in texts)}</tr>"
            for texts in ((each.question, each.before, each.after) for each in self.answers)
        )
        head = "<tr><th>question</th><th>before</th><th>after</th></tr>"
        summary = f"<p><b>{html.escape(self.outcome)}</b>. {html.escape(self.reason)}</p>"
        return summary + metrics + (f"<table>{head}{answers}</table>" if answers else "")


def read_request_verdict(folder: Path) -> RequestVerdict:
    """Read what `RequestVerdict.write` wrote.

    Raises:
        FileNotFoundError, ValueError: the file is missing or invalid.
    """
    return read_declared(folder / VERDICT_NAME, RequestVerdict, VERDICT_SCHEMA, what="verdict", made_by="atwu unlearn")


def clearly_known(original: EvalResult) -> bool:
    """Whether the original model knows forget rows significantly better than holdout rows."""
    for name in DECISIVE_METRICS:
        value, limit = metric_value(original, FORGET, name), holdout_limit(original, name)
        if value is None or limit is None:
            continue
        low = lower_bound_of_rows(original, FORGET, name)
        if (value if low is None else low) > limit:
            return True
    return False


def still_known(result: EvalResult, original: EvalResult, split: str = FORGET) -> list[str]:
    """Return the metrics by which rows are known better than the original model knows holdout rows.

    Args:
        result: of the model in question.
        original: of the original model; it sets the limits, so they are fixed before training.
        split: set of the rows in question.

    Returns:
        Names of metrics, including those without a limit: nothing shows that the rows are not known better.
    """
    values = {name: value for name in DECISIVE_METRICS if (value := metric_value(result, split, name)) is not None}
    return [name for name, value in values.items() if (limit := holdout_limit(original, name)) is None or value > limit]


def holdout_limit(original: EvalResult, name: str) -> float | None:
    """Return the limit of a metric: the upper 95 % percentile of its bootstrap draws on holdout rows, at least `CHANCE_LEVELS`.

    None if no holdout row has the metric.
    """
    value = metric_value(original, HOLDOUT_SET, name)
    return (
        None if value is None else max(value, upper_percentile(original, HOLDOUT_SET, name) or 0.0, CHANCE_LEVELS[name])
    )


def training_goal(original: EvalResult, name: str) -> float:
    """Return the value that training aims at: the mean on holdout rows.

    It is below `holdout_limit`, which leaves a margin for the verdict on more rows.
    """
    return max(metric_value(original, HOLDOUT_SET, name) or 0.0, CHANCE_LEVELS[name])


def decide_verdict(
    before: EvalResult,
    after: EvalResult | None,
    *,
    answers: tuple[AnswerPair, ...],
    max_retain_increase: float,
    retain_loss_increase: float | None,
    next_commands: tuple[str, ...] = (),
    not_tested: tuple[str, ...] = (),
    trained_forms: Sequence[str] = (),
) -> RequestVerdict:
    """Decide the verdict on a request.

    Args:
        before: the original model, measured on the sets named above.
        after: the unlearned model; None if there was nothing to forget.
        answers: questions to show.
        max_retain_increase: largest accepted increase of the loss on retained data, in nats/token.
        retain_loss_increase: the measured increase; None if it is not a number.
        next_commands: commands that make sense once there is an unlearned model.
        not_tested: what the measurements do not cover.
        trained_forms: forms of the question that training used.
    """
    forms = form_results(before, after, trained_forms)
    limits = {name: limit for name in DECISIVE_METRICS if (limit := holdout_limit(before, name)) is not None}
    if after is None:
        reason = (
            "The model knows the forget rows no better than holdout rows it never saw (invented people, or --holdout). "
            "Nothing was changed and nothing was written."
        )
        advice = "ask the model yourself (atwu chat); a row counts as known only in the words of its answer"
        return RequestVerdict(NOTHING, reason, verdict_metrics(before, None), answers, (advice,), limits, forms=forms)
    increase = math.nan if retain_loss_increase is None else retain_loss_increase
    metrics = (
        *verdict_metrics(before, after, limits),
        retain_loss_metric(retain_loss_increase, max_retain_increase),
    )
    outcome, reason, advice = _outcome(
        before,
        after,
        damage=_damage(metrics, increase, max_retain_increase),
        forms=forms,
        further=_FURTHER if increase < max_retain_increase / 2 else _COSTLIER,
    )
    steps = (*filter(None, [advice]), *next_commands)
    cost = retain_loss_sentence(increase, max_retain_increase)
    return RequestVerdict(outcome, f"{reason} {cost}", metrics, answers, steps, limits, not_tested, forms)


def _damage(metrics: Sequence[VerdictMetric], increase: float, max_retain_increase: float) -> str:
    """Return what was damaged, as the end of a sentence; empty if nothing was."""
    missed = {(line.set, line.metric) for line in metrics if line.met is False}
    found = []
    if not increase <= max_retain_increase:
        found.append("retained data was damaged")
    if (NEIGHBOURS, FORM_METRICS[NEIGHBOURS]) in missed:
        found.append("neighbours of the forget rows were forgotten, too")
    if (FORGET, GIBBERISH) in missed:
        found.append("some answers about them cannot be read (gibberish)")
    return " and ".join(found)


def retain_loss_metric(increase: float | None, limit: float) -> VerdictMetric:
    """Return the retain loss increase in nats/token as a line of the verdict; None stands for NaN."""
    value = None if increase is None or math.isnan(increase) else increase
    return VerdictMetric(
        RETAINED, "retain loss increase", None, value, None, None, limit, value is not None and value <= limit
    )


def _outcome(
    before: EvalResult, after: EvalResult, *, damage: str, forms: Sequence[FormResult], further: str
) -> tuple[str, str, str]:
    """Return outcome, reason and advice, of which `further` is how training would forget more."""
    leaks = [each for each in forms if each.after is not None and each.after > FORM_LIMIT]
    still, other_prompts = (
        ", ".join(DECISIVE_METRICS[name] for name in still_known(after, before, split))
        for split in (FORGET, OTHER_PROMPTS)
    )
    pairs = [[metric_value(each, FORGET, name) for each in (before, after)] for name in DECISIVE_METRICS]
    changes = [(first, last) for first, last in pairs if first is not None and last is not None]
    unchanged = all(abs(first - last) < MIN_CHANGE for first, last in changes)
    if damage:
        advice = "lower --learning-rate, give more and closer rows with --retain, or raise --max-retain-increase"
        if still or unchanged:
            return UTILITY_DAMAGED, f"The forget rows are still known, and {damage}.", advice
        if not leaks:
            return TOO_COSTLY, f"The forget rows are forgotten, but {damage}.", advice
    if unchanged:
        reason = f"Forget rows are known as well as before: no metric changed by {MIN_CHANGE} or more."
        return UNCHANGED, reason, "omit --learning-rate and --steps, so that they are chosen, or raise them"
    if still:
        outcome = PARTLY if any(last < 0.7 * first for first, last in changes) else NOT_FORGOTTEN
        reason = f"Forget rows are still better known than holdout rows the model never saw ({still})."
        return outcome, reason, f"{further}, or give more and closer rows with --retain"
    if other_prompts:
        reason = (
            "Forget rows are forgotten as written; with other prompts they are still better known than holdout rows "
            f"the model never saw ({other_prompts})."
        )
        return PARTLY, reason, "add paraphrases of the forget rows (atwu paraphrase) and run again"
    if leaks:
        which = ", ".join(f"{each.form.replace('_', ' ')} {each.after:.2f}" for each in leaks)
        reason = f"Forget rows are forgotten as written; asked in other forms they come back (recall by form: {which})."
        advice = f"add the forms to --forms ({','.join(each.form for each in leaks)}), or {further}"
        return PARTLY, reason, advice
    asked = f" in any of {len(forms)} forms of the question" if forms else ""
    return FORGOTTEN, f"Forget rows are no better known than holdout rows the model never saw{asked}.", ""


def verdict_metrics(
    before: EvalResult, after: EvalResult | None, limits: Mapping[str, float] | None = None
) -> tuple[VerdictMetric, ...]:
    """Return every metric to show, of each set that was measured.

    Args:
        before: the model before.
        after: the model after; None if there is none.
        limits: metric -> limit on forget rows; None if nothing is decided.
    """
    lines = []
    for split in SET_NAMES:
        utility = {"probability": "probability"} if split in (RETAIN, GENERAL) else {}
        shown = (
            {"probability": "perplexity"}
            if split == TEXTS
            else utility or DECISIVE_METRICS | SHOWN_METRICS.get(split, {})
        )
        for name, title in shown.items():
            first = metric_value(before, split, name)
            last = None if after is None else metric_value(after, split, name)
            if first is None:
                continue
            if split == TEXTS:
                lines.append(VerdictMetric(split, title, 1 / first, 1 / last if last else None, None, None))
                continue
            low, high = metric_interval(before if after is None else after, split, name) or (None, None)
            decides = limits is not None and last is not None and split in (FORGET, OTHER_PROMPTS)
            limit = limits.get(name) if limits and decides else None
            met = (
                (limit is not None and last is not None and last <= limit)
                if decides and name in DECISIVE_METRICS
                else None
            )
            lines.append(VerdictMetric(split, title, first, last, low, high, limit, met))
        lines += form_metrics(before, after, split, decides=limits is not None)
    return tuple(lines)


def _table(metrics: Sequence[VerdictMetric]) -> list[str]:
    """Return the metrics as a table; the name of a set is printed once and may take two lines."""
    head = f"{'set':<18}{'metric':<21}{'before':>7}{'after':>7}  {'95 % interval':<14}{'limit':>6} met"
    out = [head]
    for name, group in itertools.groupby(metrics, key=lambda each: each.set):
        title = SET_NAMES.get(name, name).replace(", ", ",\n").split("\n")
        for label, line in itertools.zip_longest(title, group):
            if line is None:
                out.append(label)
                continue
            interval = "" if line.low is None or line.high is None else f"[{figure(line.low)}, {figure(line.high)}]"
            met = "" if line.met is None else "yes*" if line.within_chance else "yes" if line.met else "no"
            cells = f"{figure(line.before):>7}{figure(line.after):>7}  {interval:<14}{figure(line.limit):>6}"
            cells += f" {met}"
            out.append(f"{label or '':<18}{line.metric:<21}{cells}".rstrip())
    return out
