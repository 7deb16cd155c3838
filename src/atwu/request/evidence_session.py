"""The two models and the rows of a finished request: what was measured of them, and what still has to be."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Collection, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

from atwu._manifest import RECORD_NAME
from atwu.benchmarks.sources import load_rows
from atwu.data.row_parsing import fingerprint
from atwu.data.schema import Example
from atwu.errors import AtwuError
from atwu.evaluation.aggregate import overall
from atwu.evaluation.columns import FORGET, RETAIN
from atwu.evaluation.registry import find_metric
from atwu.evaluation.result import EvalResult, read_result
from atwu.evaluation.row_statistics import ModelComparison, RowMetrics
from atwu.modeling.fingerprint import model_fingerprint
from atwu.modeling.open_model import ModelLoadArgs, open_model
from atwu.request.ledger import rows_file
from atwu.request.measurement import REQUEST_METRICS, Reading, measure_model, sets_of
from atwu.request.request_folder import RequestFolder, without_texts
from atwu.request.thresholds import OF_THE_RUN, parse_thresholds, read_thresholds
from atwu.training.progress import Say, logged

BEFORE, AFTER = "before", "after"


class NotThereError(AtwuError):
    """What would have to be measured is not there; the message says why, as the end of a sentence."""


class EvidenceSession:
    """A finished request, and the thresholds that it is held to.

    Args:
        run: the folder of its run.
        thresholds: YAML of limits; by default those that were set with the request.
        device: where that happens.
        say: receives one line of plain text per stage.

    Raises:
        FileNotFoundError, ValueError: no such run, one without its verdict, or weights that are not those it left.
    """

    def __init__(
        self,
        run: str | Path,
        *,
        thresholds: str | Path | None = None,
        device: str | None = None,
        say: Say = logged,
    ) -> None:
        self.folder, self.device, self.say = RequestFolder(run), device, say
        if not (self.folder.output / RECORD_NAME).is_file():
            raise FileNotFoundError(f"{run} is no run of atwu unlearn: it has no {RECORD_NAME}.")
        if self.folder.work.is_dir():
            raise ValueError(f"the request of {run} has no verdict yet; give its command again, which finishes it.")
        self.run = self.folder.run()
        if self.run["command"] != "unlearn":
            raise ValueError(f"{run} is a run of atwu {self.run['command']}; evidence is about atwu unlearn.")
        self.request = self.folder.request()
        set_then = self.request.thresholds
        self.given = (
            parse_thresholds(set_then.text, name=set_then.name) if thresholds is None else read_thresholds(thresholds)
        )
        values = self.given.config.values
        self._settings = {name: value for name, value in values.items() if name not in OF_THE_RUN}
        self._results: dict[tuple[str, str], EvalResult] = {}

    # Models

    @cached_property
    def model(self) -> tuple[Any, Any]:
        """The unlearned model and its tokenizer."""
        start = self.run["original_model"]
        loading = ModelLoadArgs(dtype=start["dtype"], trust_remote_code=start["trust_remote_code"])
        return open_model(str(self.folder.output), loading, device=self.device)

    @cached_property
    def fingerprint(self) -> str:
        """Of the weights that lie in the folder, checked against those that were measured."""
        found = model_fingerprint(self.model[0])
        wanted = self.folder.result(AFTER).fingerprint
        if found != wanted:
            raise ValueError(
                f"the weights in {self.folder.output} are not those that the run left: their hash is {found}, and was {wanted}."
            )
        return found

    @cached_property
    def start(self) -> tuple[Any, Any]:
        """The starting model and its tokenizer.

        Raises:
            NotThereError: it is gone, or another one.
        """
        start = self.run["original_model"]
        loading = ModelLoadArgs(**{name: start[name] for name in ("dtype", "trust_remote_code", "revision", "base")})
        try:
            model, tokenizer = open_model(start["model"], loading, device=self.device)
        except (OSError, ValueError) as error:
            raise NotThereError(f"the starting model is not there ({error})") from None
        if (
            model_fingerprint(model) != self.folder.result(BEFORE).fingerprint
        ):  # of a run in fewer bits not the record's
            raise NotThereError(f"{start['model']} is another model now than the run started with")
        return model, tokenizer

    # Rows

    @cached_property
    def sets(self) -> Mapping[str, Sequence[Example]]:
        """The rows that are measured, by set.

        Raises:
            NotThereError: the rows to forget are gone or changed.
        """
        forget = self._rows(FORGET)
        retain = self.folder.rows(RETAIN)
        if retain is None and RETAIN in self.run["data"]:
            try:
                retain = self._rows(RETAIN)
            except NotThereError as error:
                self.say(f"warning: {error}; what needs them is not measured")
        return sets_of(forget, retain or (), self._strangers(), self.folder.rows("general") or ())

    @property
    def every_row(self) -> Sequence[Example]:
        """All rows to forget.

        Raises:
            NotThereError: they are gone or changed.
        """
        return self._rows(FORGET)

    def _rows(self, name: str) -> Sequence[Example]:
        """The rows of the run, as they were; those that a ledger keeps are looked for where it is now."""
        source = self.run["data"][name]["source"]
        if name == FORGET and self.request.ledger is not None:
            ledger = Path(os.path.normpath(self.folder.output / self.request.ledger))
            source = str(rows_file(ledger, self.request.forget.fingerprint))
        wanted = self.request.forget if name == FORGET else self.request.retain
        try:
            rows = load_rows(source).rows
        except (OSError, ValueError) as error:
            raise NotThereError(f"the {name} rows are no longer there ({error})") from None
        if wanted is None or fingerprint(rows) != wanted.fingerprint:
            raise NotThereError(f"{source} holds other rows than the run's {name} rows")
        return rows

    def _strangers(self) -> Sequence[Example]:
        """Rows that no model saw; none where those of the request are gone."""
        try:
            rows = load_rows(self.request.holdout.source).rows
        except (OSError, ValueError):
            return ()
        return rows if fingerprint(rows) == self.request.holdout.fingerprint else ()

    # Results

    def result(self, side: str, metric: str = "") -> EvalResult:
        """What was measured of a model by a metric; read, or measured now and kept.

        Args:
            side: `BEFORE` or `AFTER`.
            metric: its name; empty for those of the verdict, which were measured together; with other settings, they are
                again.

        Raises:
            NotThereError: it would have to be measured, and what that takes is not there.
        """
        key = (side, "" if metric in REQUEST_METRICS else metric)
        if key not in self._results:
            self._results[key] = self._kept(*key) or self._measured(*key)
        return self._results[key]

    @property
    def measured(self) -> tuple[str, ...]:
        """Names of the metrics of all that was asked for."""
        return tuple(
            dict.fromkeys(name for _, metric in self._results for name in ([metric] if metric else REQUEST_METRICS))
        )

    def all_of(self, side: str) -> EvalResult:
        """Everything that was asked for of a model, in one result."""
        first, *others = (result for (of, _), result in self._results.items() if of == side)
        return together(first, others)

    def _kept(self, side: str, metric: str) -> EvalResult | None:
        """What was measured for the verdict; or by a metric, in the same way on the same weights."""
        if not metric:
            found = self.folder.result(side)
            measures = map(find_metric, REQUEST_METRICS)
            matter = {name for each in measures for name in (*each.uses, *(one.name for one in each.settings))}
            if self._alike(found, matter):
                return found
        file = self._file(side, metric)
        if not file.is_file():
            return None
        found = read_result(file)
        same = self._alike(found, self._settings.keys() - {"batch_tokens"})
        return found if same and (side == BEFORE or found.fingerprint == self.fingerprint) else None

    def _alike(self, found: EvalResult, names: Collection[str]) -> bool:
        """Whether a result was measured with the settings of these names that the thresholds have."""
        return all(
            found.settings.get(name) == (list(value) if isinstance(value, tuple) else value)
            for name, value in self._settings.items()
            if name in names
        )

    def _measured(self, side: str, metric: str) -> EvalResult:
        sets: Mapping[str, Sequence[Example]] = self.sets
        if metric and find_metric(metric).attack:
            sets = {split: sets[split] for split in (FORGET, RETAIN)}
        network, tokenizer = self.model if side == AFTER else self.start
        which = "unlearned" if side == AFTER else "starting"
        what = find_metric(metric).about if metric else "what the verdict is about, with the settings of the thresholds"
        self.say(f"measuring the {which} model: {what}")
        found = measure_model(
            network,
            tokenizer,
            sets,
            Reading(self.request.system, self.request.max_length),
            name=side,
            metrics=(metric,) if metric else REQUEST_METRICS,
            settings=self._settings,
        )
        without_texts(found).write(self._file(side, metric))
        return found

    def _file(self, side: str, metric: str) -> Path:
        return self.folder.done / f"{side}.{metric or 'again'}.json"


def together(first: EvalResult, others: Sequence[EvalResult], original: EvalResult | None = None) -> EvalResult:
    """Results of one model on the same rows as one, with what compares it with the starting model (`original`).

    Where several have a number, the first decides.
    """
    sets, rows = {split: dict(found) for split, found in first.sets.items()}, dict(first.rows)
    for other in others:
        for split, found in other.sets.items():
            sets[split] = {**found, **sets.get(split, {})}
        for split, values in other.rows.items():
            known = rows.get(split, values)
            rows[split] = dataclasses.replace(known, metrics={**values.metrics, **known.metrics})
    numbers = ModelComparison(RowMetrics(rows), original=None if original is None else RowMetrics(original.rows))
    warnings = tuple(dict.fromkeys(said for each in (first, *others) for said in each.warnings))
    return dataclasses.replace(first, sets=sets, rows=rows, overall=overall(numbers), warnings=warnings)
