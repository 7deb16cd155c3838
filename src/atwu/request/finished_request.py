"""A finished request with its two models and its rows, as `atwu evidence` needs them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

from atwu._file_reading import read_object
from atwu._manifest import RECORD_NAME, check_as_written
from atwu.benchmarks.sources import load_rows
from atwu.data.row_parsing import fingerprint
from atwu.data.schema import Example
from atwu.errors import AtwuError
from atwu.evaluation.columns import RETAIN
from atwu.modeling.load import load_tokenizer, model_fingerprint
from atwu.modeling.open_model import ModelLoadArgs, open_model
from atwu.request.measurement import RowEncoding, measured_sets
from atwu.request.request_folder import RequestFolder, RowsUsed
from atwu.request.row_facts import with_facts
from atwu.training.run_folder import output_path, unfinished


class MissingInputError(AtwuError):
    """A model or rows are missing; the message is the end of a sentence."""


class FinishedRequest:
    """The folder of a finished request.

    Args:
        run: the folder.
        device: device for measurements.

    Raises:
        FileNotFoundError, ValueError: there is no such run, it has no verdict, or its weights were changed.
    """

    def __init__(self, run: str | Path, *, device: str | None = None) -> None:
        self.folder, self.device = RequestFolder(output_path(run)), device
        if not (self.folder.run / RECORD_NAME).is_file():
            if unfinished(self.folder.run).is_dir():
                raise ValueError(f"the request of {run} has no verdict yet; repeat its command to finish it.")
            why = f"{RECORD_NAME} is missing" if self.folder.run.exists() else "there is no such folder"
            raise FileNotFoundError(f"{run} is not a run of atwu unlearn: {why}.")
        check_as_written(self.folder.run, weights=False)
        self.record = read_object(self.folder.run / RECORD_NAME)
        command = self.record.get("command")
        if command != "unlearn":
            raise ValueError(f"{run} is a run of atwu {command}; atwu evidence needs a run of atwu unlearn.")
        self.request = self.folder.request()
        self.row_encoding = RowEncoding(self.request.system, self.request.max_length)

    # Models

    @cached_property
    def model(self) -> tuple[Any, Any]:
        """The unlearned model and its tokenizer."""
        start = self.record["original_model"]
        loading = ModelLoadArgs(dtype=start["dtype"], trust_remote_code=start["trust_remote_code"])
        return open_model(str(self.folder.run), loading, device=self.device)

    @cached_property
    def fingerprint(self) -> str:
        """Fingerprint of the weights in the folder, checked against the measured ones."""
        now, recorded = model_fingerprint(self.model[0]), self.record["result_fingerprint"]
        if now != recorded:
            raise ValueError(
                f"the weights in {self.folder.run} were changed after the run: fingerprint {now}, recorded {recorded}."
            )
        return now

    def open_original(self) -> tuple[Any, Any]:
        """Load the original model and its tokenizer.

        Raises:
            MissingInputError: it is missing or has changed.
        """
        start = self.record["original_model"]
        loading = ModelLoadArgs(**{name: start[name] for name in ("dtype", "trust_remote_code", "revision", "base")})
        try:
            model, _ = open_model(start["model"], loading, device=self.device)
        except (OSError, ValueError) as error:
            raise MissingInputError(f"the original model is not available ({error})") from None
        # A quantized run trains another model than the one in its record.
        if model_fingerprint(model) != self.request.fingerprint:
            raise MissingInputError(f"{start['model']} has other weights than the original model of the run")
        # The tokenizer of the run has the chat template that the model was measured with.
        return model, load_tokenizer(str(self.folder.run), trust_remote_code=start["trust_remote_code"])

    # Rows

    @cached_property
    def sets(self) -> Mapping[str, Sequence[Example]]:
        """The sets that the verdict asked about, and holdout rows if they are still as in the request.

        Raises:
            MissingInputError: the forget rows are missing or changed.
        """
        given_retain: Sequence[Example] = ()
        if self.request.retain is not None:
            given_retain = _rows_as_then(self.request.retain)
        return measured_sets(
            self.forget_rows,
            self.folder.rows(RETAIN) or (),
            _rows_as_then(self.request.holdout),
            self.folder.rows("general") or (),
            self.folder.neighbours(given_retain),
            self.folder.rows("chained") or (),
        )

    @cached_property
    def forget_rows(self) -> Sequence[Example]:
        """All forget rows with their facts.

        Raises:
            MissingInputError: they are missing or changed.
        """
        source = self.folder.forget_source(self.request.forget.source)
        try:
            rows = load_rows(source).rows
        except (OSError, ValueError) as error:
            raise MissingInputError(f"the forget rows are no longer available ({error})") from None
        if fingerprint(rows) != self.request.forget.fingerprint:
            raise MissingInputError(f"{source} has other rows than the forget rows of the run")
        return with_facts(rows, self.request.facts)


def _rows_as_then(used: RowsUsed) -> Sequence[Example]:
    """Return rows of a request; none if they are missing or were changed."""
    try:
        rows = load_rows(used.source).rows
    except (OSError, ValueError):
        return ()
    if fingerprint(rows) != used.fingerprint:
        return ()
    return rows
