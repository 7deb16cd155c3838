"""What a run amounts to, in words and numbers: forgotten or not, at which cost, and what to do next."""

from __future__ import annotations

import dataclasses
import html
import math
import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, Final, Literal

from pydantic import ConfigDict

from atwu._file_reading import read_declared
from atwu._files import write_json
from atwu.benchmarks.subsample import evenly_spaced
from atwu.data.schema import Example
from atwu.evaluation.columns import FORGET, RETAIN
from atwu.evaluation.result import STRICT, EvalResult
from atwu.request.metric_intervals import metric_interval, metric_value

if TYPE_CHECKING:
    import pandas as pd

HOLDOUT_SET, OTHER_PROMPTS, GENERAL, TEXTS = "holdout_rows", "other_prompts", "general", "texts"
"""Further sets that are measured: rows no model saw, forget rows in other words, general questions, ordinary prose."""
DECISIVE_METRICS = {
    "key_token_probability": "telling words p",
    "key_token_accuracy": "telling words guessed",
    "key_token_recall": "telling words said",
}
"""What decides whether rows are known."""
SHOWN_METRICS = {FORGET: {"extraction_strength": "extraction strength", "probability": "probability"}}
"""Set -> further measures that are shown."""
CHANCE_LEVELS = {"key_token_probability": 0.02, "key_token_accuracy": 0.1, "key_token_recall": 0.1}
"""What a model that knows nothing may reach on rows whose words are more common than those of the holdout rows."""
MIN_CHANGE = 0.02
"""Smallest change of a measure that is one."""
VERDICT_NAME = "verdict.json"
ANSWERS_SHOWN = {FORGET: 3, GENERAL: 1}
"""Questions whose answers are shown, by set."""
VERDICT_WIDTH = 80
"""Of a terminal."""
VERDICT_SCHEMA: Final = "atwu.verdict/1"

FORGOTTEN = "forgotten"
TOO_COSTLY = "forgotten, at too high a cost"
UTILITY_DAMAGED = "damaged, and not forgotten"
PARTLY = "partly forgotten"
UNCHANGED = "nothing changed"
NOT_FORGOTTEN = "not forgotten"
NOTHING = "nothing to forget"

SET_NAMES = {
    FORGET: "rows to forget",
    OTHER_PROMPTS: "the same, reworded",
    HOLDOUT_SET: "rows no model saw",
    RETAIN: "rows to keep",
    GENERAL: "general questions",
    TEXTS: "ordinary prose",
}


@dataclass(frozen=True, slots=True)
class AnswerPair:
    """One question with the answers of before and after."""

    question: str
    expected: str
    before: str
    after: str


@dataclass(frozen=True, slots=True)
class VerdictMetric:
    """One measure on one set."""

    rows: str
    measure: str
    before: float
    after: float | None
    low: float | None
    high: float | None
    """95 % interval of `after`."""


@dataclass(frozen=True, slots=True)
class RequestVerdict:
    """The outcome of a run."""

    __pydantic_config__: ClassVar[ConfigDict] = STRICT

    word: str
    """One of the constants above."""
    why: str
    lines: tuple[VerdictMetric, ...]
    answers: tuple[AnswerPair, ...]
    next: tuple[str, ...]
    """What to do, most useful first."""
    limits: Mapping[str, float] = field(default_factory=dict)
    """Measure of `DECISIVE_METRICS` -> what the starting model knows of rows that no model saw (`holdout_limit`)."""
    schema: Literal["atwu.verdict/1"] = VERDICT_SCHEMA

    @property
    def good(self) -> bool:
        """Whether the request is honoured."""
        return self.word == FORGOTTEN

    def write(self, folder: Path) -> None:
        """Write `verdict.json` into a folder."""
        write_json(folder / VERDICT_NAME, dataclasses.asdict(self))

    def text(self) -> str:
        """For a terminal of 80 columns."""
        out = [f"VERDICT: {self.word.upper()}", self.why, ""]
        out.append(f"{'':<42}{'before':>9}{'after':>9}  95 % interval")
        for line in self.lines:
            name = f"{SET_NAMES.get(line.rows, line.rows)}: {line.measure}"
            after = "-" if line.after is None else f"{line.after:.3g}"
            ends = "" if line.low is None or line.high is None else f"  [{line.low:.2g}, {line.high:.2g}]"
            out.append(f"{name:<42}{line.before:>9.3g}{after:>9}{ends}")
        for each in self.answers:
            out += ["", f"Q       {_short(each.question)}", f"before  {_short(each.before)}"]
            out += [f"after   {_short(each.after)}"] if each.after else []
        out += ["", *(f"next: {line}" for line in self.next)]
        return "\n".join(wrapped for line in out for wrapped in _wrapped(line))

    def to_pandas(self) -> pd.DataFrame:
        """One row per measure and set: rows, measure, before, after, low, high (95 % interval of `after`)."""
        import pandas as pd

        names = ("rows", "measure", "before", "after", "low", "high")
        return pd.DataFrame([[getattr(line, name) for name in names] for line in self.lines], columns=names)

    def _repr_html_(self) -> str:
        """For a notebook: the word, why, every measure, and the answers of before and after."""
        numbers: str = self.to_pandas().to_html(index=False, float_format="{:.3g}".format, na_rep="")
        answers = "".join(
            f"<tr>{''.join(f'<td>{html.escape(text)}</td>' for text in (each.question, each.before, each.after))}</tr>"
            for each in self.answers
        )
        head = "<tr><th>question</th><th>before</th><th>after</th></tr>"
        told = f"<p><b>{html.escape(self.word)}</b>. {html.escape(self.why)}</p>"
        return told + numbers + (f"<table>{head}{answers}</table>" if answers else "")


def read_request_verdict(folder: Path) -> RequestVerdict:
    """Read what `RequestVerdict.write` wrote.

    Raises:
        FileNotFoundError, ValueError: it is not there, or not as declared.
    """
    return read_declared(folder / VERDICT_NAME, RequestVerdict, VERDICT_SCHEMA, what="verdict", made_by="atwu unlearn")


def clearly_known(start: EvalResult) -> bool:
    """Whether a model knows forget rows better than rows that no model saw, beyond what the choice of rows could do."""
    for name in DECISIVE_METRICS:
        found, limit = metric_value(start, FORGET, name), holdout_limit(start, name)
        if found is None or limit is None:
            continue
        low, _ = metric_interval(start, FORGET, name) or (found, found)  # of a single row, what it says
        if low > limit:
            return True
    return False


def still_known(result: EvalResult, start: EvalResult, split: str = FORGET) -> list[str]:
    """Measures by which rows are better known than the starting model knows rows that no model saw.

    Args:
        result: of the model that is asked about.
        start: of the starting model; the upper ends of its intervals are the limits, so they stand before anything is done.
        split: the rows that are asked about.

    Returns:
        Also those that there is nothing to compare with: nothing says that they are not better known.
    """
    values = {name: value for name in DECISIVE_METRICS if (value := metric_value(result, split, name)) is not None}
    return [name for name, value in values.items() if (limit := holdout_limit(start, name)) is None or value > limit]


def holdout_limit(start: EvalResult, name: str) -> float | None:
    """What the starting model knows of rows that no model saw: the upper end of the interval, at least `CHANCE_LEVELS`.

    None where none of them could be measured.
    """
    found = metric_value(start, HOLDOUT_SET, name)
    return (
        None
        if found is None
        else max(found, (metric_interval(start, HOLDOUT_SET, name) or (0.0, 0.0))[1], CHANCE_LEVELS[name])
    )


def training_goal(start: EvalResult, name: str) -> float:
    """What training aims at: the mean of rows that no model saw, below `holdout_limit`, so that the verdict on more
    rows has room.
    """
    return max(metric_value(start, HOLDOUT_SET, name) or 0.0, CHANCE_LEVELS[name])


def decide_verdict(
    before: EvalResult,
    after: EvalResult | None,
    *,
    answers: tuple[AnswerPair, ...],
    limit: float,
    rise: float | None,
    then: tuple[str, ...] = (),
) -> RequestVerdict:
    """The verdict on a run.

    Args:
        before: the starting model, measured with the sets named above.
        after: the unlearned one; None if there was nothing to do.
        answers: questions to show.
        limit: most that the loss of rows that should stay may rise, in nats per token.
        rise: what it rose by; None where that is no number.
        then: commands that make sense once there is an unlearned model.
    """
    limits = {
        name: still_known for name in DECISIVE_METRICS if (still_known := holdout_limit(before, name)) is not None
    }
    if after is None:
        why = (
            "The model knows these rows no better than rows that no model ever saw (invented people, or --holdout). "
            "Nothing was changed, and nothing was written."
        )
        advice = "ask the model yourself; rows that it answers in other words than yours do not count as known"
        return RequestVerdict(NOTHING, why, verdict_metrics(before, None), answers, (advice,), limits)
    rise = math.nan if rise is None else rise
    cost = f"what should stay lost {max(rise, 0):.3f} nats per token (limit {limit:g})"
    word, why, advice = _outcome(before, after, damaged=not rise <= limit)
    advices = (*filter(None, [advice]), *then)
    return RequestVerdict(word, f"{why}; {cost}.", verdict_metrics(before, after), answers, advices, limits)


def _outcome(before: EvalResult, after: EvalResult, *, damaged: bool) -> tuple[str, str, str]:
    """The word, why, and what to do."""
    still, reworded = (
        ", ".join(DECISIVE_METRICS[name] for name in still_known(after, before, split))
        for split in (FORGET, OTHER_PROMPTS)
    )
    pairs = [[metric_value(each, FORGET, name) for each in (before, after)] for name in DECISIVE_METRICS]
    changes = [(first, last) for first, last in pairs if first is not None and last is not None]
    unchanged = all(abs(first - last) < MIN_CHANGE for first, last in changes)
    if damaged:
        advice = "lower --learning-rate, give more and closer rows with --retain, or raise --max-retain-increase"
        return (UTILITY_DAMAGED if still or unchanged else TOO_COSTLY), "What should stay was damaged", advice
    if unchanged:
        why = f"The rows are known as well as before: no measure moved by {MIN_CHANGE}"
        return UNCHANGED, why, "leave --learning-rate and --steps out, so that they are found, or raise them"
    if still:
        word = PARTLY if any(last < 0.7 * first for first, last in changes) else NOT_FORGOTTEN
        why = f"The rows are still better known than rows that no model ever saw, by {still}"
        return word, why, "raise --max-retain-increase, or give more and closer rows with --retain"
    if reworded:
        why = f"The rows are gone as they were worded; asked in other words they are still better known, by {reworded}"
        return PARTLY, why, "add rows with other wordings (atwu paraphrase), and run again"
    return FORGOTTEN, "The rows are no better known than rows that no model ever saw", ""


def verdict_metrics(before: EvalResult, after: EvalResult | None) -> tuple[VerdictMetric, ...]:
    """Every measure that is shown, of each set that was measured."""
    lines = []
    for split in SET_NAMES:
        kept = {"probability": "probability"} if split in (RETAIN, GENERAL) else {}
        shown = (
            {"probability": "perplexity"} if split == TEXTS else kept or DECISIVE_METRICS | SHOWN_METRICS.get(split, {})
        )
        for name, title in shown.items():
            first = metric_value(before, split, name)
            last = None if after is None else metric_value(after, split, name)
            if first is None:
                continue
            if split == TEXTS:
                lines.append(VerdictMetric(split, title, 1 / first, 1 / last if last else None, None, None))
            else:
                low, high = metric_interval(before if after is None else after, split, name) or (None, None)
                lines.append(VerdictMetric(split, title, first, last, low, high))
    return tuple(lines)


def answers_before(before: EvalResult, rows: Mapping[str, Sequence[Example]]) -> tuple[AnswerPair, ...]:
    """The questions that are shown with what the starting model answers."""
    return tuple(
        AnswerPair(row.question, row.answer, said, "")
        for split in ANSWERS_SHOWN
        for row, said in _shown(rows.get(split, ()), before, split)
    )


def answers_after(
    shown: Sequence[AnswerPair], after: EvalResult, rows: Mapping[str, Sequence[Example]]
) -> tuple[AnswerPair, ...]:
    """The same questions with what the unlearned model answers besides."""
    said = [answer for split in ANSWERS_SHOWN for _, answer in _shown(rows.get(split, ()), after, split)]
    return tuple(dataclasses.replace(each, after=answer) for each, answer in zip(shown, said, strict=True))


def _shown(rows: Sequence[Example], result: EvalResult, split: str) -> list[tuple[Example, str]]:
    """Some rows of a set, evenly spaced, with a model's answers."""
    said = result.rows[split].texts.get("answer", ()) if split in result.rows else ()
    return [(rows[index], said[index]) for index in evenly_spaced(range(len(said)), ANSWERS_SHOWN[split])]


def _wrapped(line: str) -> list[str]:
    """A command stays on one line, to be copied."""
    return (
        [line]
        if line.startswith(("next: atwu ", "next: llama-server "))
        else textwrap.wrap(line, VERDICT_WIDTH) or [""]
    )


def _short(text: str, width: int = 70) -> str:
    line = " ".join(text.split())
    return line if len(line) <= width else line[: width - 1] + "…"
