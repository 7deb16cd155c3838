"""A finished request with its two models and its rows: reads existing measurements and makes missing ones."""

from __future__ import annotations

import contextlib
import dataclasses
import os
from collections.abc import Collection, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

from atwu._file_reading import read_object
from atwu._manifest import RECORD_NAME, check_as_written
from atwu.benchmarks.sources import load_rows
from atwu.data.row_parsing import fingerprint
from atwu.data.schema import Example
from atwu.errors import AtwuError
from atwu.evaluation.aggregate import compared, overall
from atwu.evaluation.columns import FORGET, RETAIN
from atwu.evaluation.registry import find_metric
from atwu.evaluation.result import EvalResult, read_result
from atwu.modeling.fingerprint import model_fingerprint
from atwu.modeling.load import load_tokenizer
from atwu.modeling.open_model import ModelLoadArgs, open_model
from atwu.request.ledger import rows_file
from atwu.request.measurement import REQUEST_METRICS, Reading, measure_model, measured_sets
from atwu.request.request_folder import RequestFolder, without_texts
from atwu.request.row_facts import with_facts
from atwu.request.thresholds import OF_THE_RUN, parse_thresholds, read_thresholds
from atwu.training.progress import Say, logged
from atwu.training.run_folder import output_path, unfinished

BEFORE, AFTER = "before", "after"


class MissingInputError(AtwuError):
    """A measurement is impossible because a model or rows are missing; the message is the end of a sentence."""


class EvidenceSession:
    """A finished request and the thresholds to check; the arguments are those of `atwu.request.collect_evidence.gather`.

    Raises:
        FileNotFoundError, ValueError: there is no such run, it has no verdict, or its weights were changed.
    """

    def __init__(
        self,
        run: str | Path,
        *,
        thresholds: str | Path | None = None,
        device: str | None = None,
        say: Say = logged,
    ) -> None:
        self.folder, self.device, self.say = RequestFolder(output_path(run)), device, say
        if not (self.folder.run / RECORD_NAME).is_file():
            if unfinished(self.folder.run).is_dir():
                raise ValueError(f"the request of {run} has no verdict yet; repeat its command to finish it.")
            why = f"{RECORD_NAME} is missing" if self.folder.run.exists() else "there is no such folder"
            raise FileNotFoundError(f"{run} is not a run of atwu unlearn: {why}.")
        check_as_written(self.folder.run, weights=False)
        self.run = read_object(self.folder.run / RECORD_NAME, foreign=False)
        if (command := self.run.get("command")) != "unlearn":
            raise ValueError(f"{run} is a run of atwu {command}; atwu evidence needs a run of atwu unlearn.")
        self.request = self.folder.request()
        recorded = self.request.thresholds
        self.given = (
            parse_thresholds(recorded.text, name=recorded.name) if thresholds is None else read_thresholds(thresholds)
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
        return open_model(str(self.folder.run), loading, device=self.device)

    @cached_property
    def fingerprint(self) -> str:
        """Fingerprint of the weights in the folder, checked against the measured ones."""
        found = model_fingerprint(self.model[0])
        recorded = self.folder.result(AFTER).fingerprint
        if found != recorded:
            raise ValueError(
                f"the weights in {self.folder.run} were changed after the run: fingerprint {found}, recorded {recorded}."
            )
        return found

    @cached_property
    def start(self) -> tuple[Any, Any]:
        """The original model and its tokenizer.

        Raises:
            MissingInputError: it is missing or has changed.
        """
        start = self.run["original_model"]
        loading = ModelLoadArgs(**{name: start[name] for name in ("dtype", "trust_remote_code", "revision", "base")})
        try:
            model, _ = open_model(start["model"], loading, device=self.device)
        except (OSError, ValueError) as error:
            raise MissingInputError(f"the original model is not available ({error})") from None
        # A quantized run trains another model than the one in its record.
        if model_fingerprint(model) != self.folder.result(BEFORE).fingerprint:
            raise MissingInputError(f"{start['model']} has other weights than the original model of the run")
        # The tokenizer of the run has the chat template that the model was measured with.
        return model, load_tokenizer(str(self.folder.run), trust_remote_code=start["trust_remote_code"])

    # Rows

    @cached_property
    def sets(self) -> Mapping[str, Sequence[Example]]:
        """The sets that are measured.

        Raises:
            MissingInputError: the forget rows are missing or changed.
        """
        forget, retain, holdout = self.rows(FORGET), self.folder.rows(RETAIN), self.request.holdout
        if retain is None and RETAIN in self.run["data"]:
            try:
                retain = self.rows(RETAIN)
            except MissingInputError as error:
                self.say(f"warning: {error}; metrics that need them are not measured")
        unseen: Sequence[Example] = ()  # unless they are as in the request
        with contextlib.suppress(OSError, ValueError):
            found = load_rows(holdout.source).rows
            unseen = found if fingerprint(found) == holdout.fingerprint else ()
        return measured_sets(
            forget,
            retain or (),
            unseen,
            self.folder.rows("general") or (),
            self.folder.rows("neighbours") or (),
        )

    def rows(self, name: str) -> Sequence[Example]:
        """Read all forget or retain rows of the run; rows of a ledger are read from its current folder.

        Raises:
            MissingInputError: they are missing or changed.
        """
        source = self.run["data"][name]["source"]
        if name == FORGET and self.request.ledger is not None:
            ledger = Path(os.path.normpath(self.folder.run / self.request.ledger))
            source = str(rows_file(ledger, self.request.forget.fingerprint))
        expected = self.request.forget if name == FORGET else self.request.retain
        try:
            rows = load_rows(source).rows
        except (OSError, ValueError) as error:
            raise MissingInputError(f"the {name} rows are no longer available ({error})") from None
        if expected is None or fingerprint(rows) != expected.fingerprint:
            raise MissingInputError(f"{source} has other rows than the {name} rows of the run")
        if name == FORGET:
            return with_facts(rows, self.request.facts)
        return rows

    # Results

    def result(self, side: str, metric: str = "") -> EvalResult:
        """Return the result of a metric on a model, read from the folder or measured now and stored.

        Args:
            side: `BEFORE` or `AFTER`.
            metric: name of the metric; empty for the metrics of the verdict, which are measured together, again if the
                settings differ.

        Raises:
            MissingInputError: it has to be measured, and the model or the rows are missing.
        """
        key = (side, "" if metric in REQUEST_METRICS else metric)
        if key not in self._results:
            self._results[key] = self._stored(*key) or self._measure(*key)
        return self._results[key]

    @property
    def measured(self) -> tuple[str, ...]:
        """Names of all metrics that were requested."""
        return tuple(
            dict.fromkeys(name for _, metric in self._results for name in ([metric] if metric else REQUEST_METRICS))
        )

    def all_of(self, side: str) -> EvalResult:
        """Return all requested metrics of a model in one result."""
        first, *others = (result for (of, _), result in self._results.items() if of == side)
        return merge_results(first, others)

    def _stored(self, side: str, metric: str) -> EvalResult | None:
        """Read a result of the verdict, or of a metric with the same settings on the same weights."""
        if not metric:
            found = self.folder.result(side)
            metrics = map(find_metric, REQUEST_METRICS)
            relevant = {name for each in metrics for name in (*each.uses, *(one.name for one in each.settings))}
            if self._same_settings(found, relevant):
                return found
        file = self._file(side, metric)
        if not file.is_file():
            return None
        found = read_result(file)
        same = self._same_settings(found, self._settings.keys() - {"batch_tokens"})
        return found if same and (side == BEFORE or found.fingerprint == self.fingerprint) else None

    def _same_settings(self, found: EvalResult, names: Collection[str]) -> bool:
        """Whether a result was measured with the thresholds' values of these settings."""
        return all(
            found.settings.get(name) == (list(value) if isinstance(value, tuple) else value)
            for name, value in self._settings.items()
            if name in names
        )

    def _measure(self, side: str, metric: str) -> EvalResult:
        sets: Mapping[str, Sequence[Example]] = self.sets
        if metric and find_metric(metric).attack:
            sets = {split: sets[split] for split in (FORGET, RETAIN)}
        network, tokenizer = self.model if side == AFTER else self.start
        which = "unlearned" if side == AFTER else "original"
        what = find_metric(metric).about if metric else "metrics of the verdict, with the settings of the thresholds"
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
        return self.folder.path / f"{side}.{metric or 'again'}.json"


def merge_results(first: EvalResult, others: Sequence[EvalResult], original: EvalResult | None = None) -> EvalResult:
    """Merge results of one model on the same rows, and compare them with the original model (`original`).

    If several results have a metric, the first one is used.
    """
    sets, rows = {split: dict(found) for split, found in first.sets.items()}, dict(first.rows)
    for other in others:
        for split, found in other.sets.items():
            sets[split] = {**found, **sets.get(split, {})}
        for split, values in other.rows.items():
            known = rows.get(split, values)
            rows[split] = dataclasses.replace(known, metrics={**values.metrics, **known.metrics})
    warnings = tuple(dict.fromkeys(text for each in (first, *others) for text in each.warnings))
    numbers = overall(compared(rows, original))
    return dataclasses.replace(first, sets=sets, rows=rows, overall=numbers, warnings=warnings)
