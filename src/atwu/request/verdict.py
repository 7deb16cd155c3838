"""The verdict on an unlearning request: forgotten or not, at which cost, what was not tested, and what to do next.

`_outcome` decides; the measured values and their limits come from `verdict_metrics.py`.
"""

from __future__ import annotations

import dataclasses
import html
import itertools
import math
import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, Final, Literal

from pydantic import ConfigDict

from atwu._file_reading import printable, read_declared
from atwu._files import write_json
from atwu.evaluation.columns import FORGET
from atwu.evaluation.metrics.recall_by_form import NEIGHBOURS
from atwu.evaluation.result import STRICT, EvalResult
from atwu.request.verdict_metrics import (
    DECISIVE_METRICS,
    FORM_LIMIT,
    FORM_METRICS,
    GENERAL,
    GIBBERISH,
    MIN_CHANGE,
    OTHER_PROMPTS,
    REFUSAL_RATE,
    SET_NAMES,
    FormResult,
    VerdictMetric,
    describe_forms,
    form_results,
    holdout_limit,
    metric_value,
    retain_loss_metric,
    still_known,
    verdict_metrics,
)
from atwu.training.run_folder import VERDICT_NAME

if TYPE_CHECKING:
    import pandas as pd

VERDICT_WIDTH = 80
"""Columns of the printed verdict."""
VERDICT_SCHEMA: Final = "atwu.verdict/2"

FORGOTTEN = "forgotten"
TOO_COSTLY = "forgotten, at too high a cost"
UTILITY_DAMAGED = "damaged, and not forgotten"
PARTLY = "partly forgotten"
UNCHANGED = "nothing changed"
NOT_FORGOTTEN = "not forgotten"
NOTHING = "nothing to forget"

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
    """One of the constants above; of an export, one of those in `atwu.exporting.export_verdict`."""
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

    def add_to_card(self, folder: Path, *, name: str) -> None:
        """Add the verdict to the model card of a folder, its metrics as the Hub's model index under the name of the model.

        Questions and answers are left out, since cards are published.
        """
        import huggingface_hub as hub

        card = hub.ModelCard.load(folder / "README.md")
        card.data.model_name = name
        card.data.eval_results = [
            hub.EvalResult(
                task_type="text-generation",
                dataset_type=each.set,
                dataset_name=SET_NAMES[each.set],
                metric_type=each.metric.replace(" ", "_"),
                metric_name=each.metric,
                metric_value=round(each.after, 4),
            )
            for each in self.metrics
            if each.after is not None
        ]
        card.text = f"{card.text.rstrip()}\n\n## Verdict: {self.outcome}\n\n{self.reason}\n"
        card.save(folder / "README.md")

    def text(self) -> str:
        """Return the verdict as plain text, 80 columns wide."""
        out = [
            f"VERDICT: {self.outcome.upper()}",
            *wrap_text(self.reason),
            "",
            *_table(self.metrics),
        ]
        if any(line.within_chance for line in self.metrics):
            out += wrap_text(
                "*: met, not significant: the interval reaches beyond the limit, or there is none. More rows narrow it."
            )
        if any(line.says_nothing for line in self.metrics):
            out += wrap_text("n/a: no value could be beyond this limit, so that it says nothing.")
        if self.forms:
            out += ["", *(line for each in describe_forms(self.forms) for line in wrap_text(each))]
        for each in self.answers:
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
        before: the original model, measured on the sets of `SET_NAMES`.
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
        found.append("neighbours of the forget rows were also forgotten")
    if (FORGET, GIBBERISH) in missed:
        found.append("some answers about them cannot be read (gibberish)")
    if (GENERAL, REFUSAL_RATE) in missed:
        found.append("general questions are also refused")
    return " and ".join(found)


def _outcome(
    before: EvalResult, after: EvalResult, *, damage: str, forms: Sequence[FormResult], further: str
) -> tuple[str, str, str]:
    """Return outcome, reason and advice.

    The rows are forgotten if no decisive metric is above its limit from holdout rows, as written and with other prompts, no
    form is recalled above `FORM_LIMIT`, and nothing was damaged.

    Args:
        damage: what was damaged (`_damage`).
        forms: recall by form of the question.
        further: advice on how to forget more.
    """
    leaks = [each for each in forms if each.after is not None and each.after > FORM_LIMIT]
    still, other_prompts = (
        ", ".join(DECISIVE_METRICS[name] for name in still_known(after, before, split))
        for split in (FORGET, OTHER_PROMPTS)
    )
    pairs = [[metric_value(each, FORGET, name) for each in (before, after)] for name in DECISIVE_METRICS]
    changes = [(first, last) for first, last in pairs if first is not None and last is not None]
    unchanged = all(abs(first - last) < MIN_CHANGE for first, last in changes)
    also = f" {damage[0].upper()}{damage[1:]}." if damage else ""
    if damage:
        advice = "lower --learning-rate, give more and closer rows with --retain, or raise --max-retain-increase"
        if still or unchanged:
            return UTILITY_DAMAGED, f"The forget rows are still known, and {damage}.", advice
        if not leaks and not other_prompts:
            return TOO_COSTLY, f"The forget rows are forgotten, but {damage}.", advice
    if unchanged:
        reason = (
            f"Forget rows are known as well as before: none of their key-token metrics changed by {MIN_CHANGE} or more."
        )
        return UNCHANGED, reason, "omit --learning-rate and --steps, so that they are chosen, or raise them"
    if still:
        outcome = PARTLY if any(last < 0.7 * first for first, last in changes) else NOT_FORGOTTEN
        reason = f"Forget rows are still better known than holdout rows the model never saw ({still})."
        return outcome, reason, f"{further}, or give more and closer rows with --retain"
    if other_prompts:
        reason = (
            "Forget rows are forgotten as written; with other prompts they are still better known than holdout rows "
            f"the model never saw ({other_prompts}).{also}"
        )
        return PARTLY, reason, "add paraphrases of the forget rows (atwu paraphrase) and run again"
    if leaks:
        which = ", ".join(f"{each.form.replace('_', ' ')} {each.after:.2f}" for each in leaks)
        reason = f"Forget rows are forgotten as written; asked in other forms they come back (recall by form: {which}).{also}"
        untrained = ",".join(each.form for each in leaks if not each.trained)
        return (
            PARTLY,
            reason,
            f"train on these forms (--forms auto,{untrained}), or {further}" if untrained else further,
        )
    asked = f"; recall is at most {FORM_LIMIT:g} in each of {len(forms)} forms of the question" if forms else ""
    return FORGOTTEN, f"Forget rows are no better known than holdout rows the model never saw{asked}.", ""


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
            interval = (
                ""
                if line.low is None or line.high is None
                else f"[{short_number(line.low)}, {short_number(line.high)}]"
            )
            met = _met_word(line)
            cells = f"{short_number(line.before):>7}{short_number(line.after):>7}  {interval:<14}{short_number(line.limit):>6}"
            cells += f" {met}"
            out.append(f"{label or '':<18}{line.metric:<21}{cells}".rstrip())
    return out


def _met_word(line: VerdictMetric) -> str:
    if line.says_nothing:
        return "n/a"
    if line.met is None:
        return ""
    if line.within_chance:
        return "yes*"
    return "yes" if line.met else "no"


def short_number(value: float | None) -> str:
    """Return a number in at most six characters; empty for None."""
    if value is None:
        return ""
    size = abs(value)
    return f"{value:.0e}" if size >= 1e5 else f"{value:.{3 if size < 10 else 1 if size < 1000 else 0}f}"


def next_lines(steps: Sequence[str]) -> list[str]:
    """Return the next steps under a heading; a command stays on one line, to be copied."""
    if not steps:
        return []
    lines = [
        line
        for step in steps
        for line in ([f"  {step}"] if step.startswith(("atwu ", "llama-server ")) else wrap_item(step))
    ]
    return ["", "Next:", *lines]


def wrap_item(text: str) -> list[str]:
    """Wrap one entry of an indented list."""
    return wrap_text(text, "  ", "    ")


def wrap_text(text: str, first: str = "", rest: str = "") -> list[str]:
    """Wrap a text to the width of the verdict."""
    return textwrap.wrap(text, VERDICT_WIDTH, initial_indent=first, subsequent_indent=rest, break_on_hyphens=False)


def shorten(text: str, width: int = 70) -> str:
    """Cut a text to one line of at most `width` characters, without control characters."""
    line = " ".join(printable(text).split())
    return line if len(line) <= width else line[: width - 1] + "…"


def retain_loss_sentence(increase: float, limit: float) -> str:
    """Say how much the loss on retained data rose, in nats/token."""
    if math.isnan(increase):
        return f"Loss on retained data is not a number any more (limit {limit:g} nats/token)."
    return f"Loss on retained data rose by {max(increase, 0):.3f} nats/token (limit {limit:g})."
