"""`atwu probe`: train a linear probe for labelled tokens on hidden states."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any

from atwu.cli.cli_options import cli_option
from atwu.cli.output import ResultFile, say, terminal, warn
from atwu.cli.shared import ROWS_HELP, ReadsRows, rows_option


@dataclass(kw_only=True)
class ProbeCommand(ReadsRows):
    """Train a linear probe to detect labelled tokens in hidden states, layer by layer, and report its AUROC.

    A learned token scorer is the same linear layer trained without labels, so the probe is an approximate upper bound
    for it. Each answer is scored by a probe that was trained on other subjects.

    Example: atwu probe --model target --data forget.jsonl --layers last --output probe.json
    """

    model: str = cli_option("Model to probe: folder or Hub name.", alias=("-m",))
    data: str = rows_option(f"Rows with forget_spans: {ROWS_HELP}.", alias=("-d",))
    layers: str = cli_option("all, last, or numbers such as 0,2,4; 0: embeddings, -1: final states.", "all")
    position: list[str] | None = cli_option(
        "State after the token (own), state that predicts it (pred), or both; repeatable. Default: all three.",
        None,
        choices=("own", "pred", "both"),
    )
    folds: int = cli_option("Number of cross-validation folds; a subject is in one fold.", 5, least=2)
    seed: int = cli_option("Seed of the assignment of subjects to folds.", 0)
    l2: float = cli_option("Ridge penalty; larger values reduce overfitting.", 0.01, least=0)
    result: ResultFile
    limit: int | None = cli_option("Use only this many rows, from the start.", None, least=1)
    batch_tokens: int = cli_option("Tokens per forward pass.", 4096, least=1)

    def run(self) -> None:
        from atwu._extras import require
        from atwu._files import write_json
        from atwu.evaluation.linear_probe import POSITIONS, labelled_rows, layer_numbers, probe, probe_record
        from atwu.modeling.load import load_config
        from atwu.report.terminal_tables import print_probe

        require("sklearn", extra="probe")
        layers = parse_layers(self.layers)
        positions: Any = self.position or list(POSITIONS)
        self.result.check()
        self.check()
        loaded = self.load_rows(self.limit)
        rows = labelled_rows(loaded.rows)
        if missing := len(loaded.rows) - len(rows):
            warn([f"{missing} of {len(loaded.rows)} rows have no forget_spans and are skipped."])
        shape = load_config(self.model, **self.loading.load_kwargs).get_text_config()
        layer_numbers(layers, 1 + int(shape.num_hidden_layers))
        network, tokenizer = self.open()
        start = time.perf_counter()
        settings: dict[str, Any] = {"folds": self.folds, "seed": self.seed, "l2": self.l2}
        settings |= {"max_length": self.max_length, "system": self.system}
        results = probe(
            network, tokenizer, rows, layers=layers, positions=positions, batch_tokens=self.batch_tokens, **settings
        )
        if self.result.output is not None:
            record = probe_record(results, model=self.model, network=network, rows=loaded, settings=settings)
            write_json(self.result.output, record | {"seconds": round(time.perf_counter() - start, 3)})
        print_probe(terminal(), results, title=self.model)
        if self.result.output is not None:
            say(f"written: {self.result.output}")


def parse_layers(text: str) -> list[int] | None:
    """Parse layer numbers; None for all."""
    if text == "all":
        return None
    if text == "last":
        return [-1]
    try:
        return [int(part) for part in text.split(",")]
    except ValueError:
        raise ValueError(f"--layers must be all, last, or numbers such as 0,2,4; got {text!r}.") from None
