"""`atwu tokens` and `atwu probe`: token scores as coloured words, and a linear probe for labelled tokens on hidden states."""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from atwu._files import check_writable, write_text
from atwu.cli.cli_options import cli_option
from atwu.cli.shared import DEVICE, ROWS_HELP, ResultFile, open_rows, say, terminal, warn
from atwu.errors import UsageError
from atwu.modeling.open_model import ModelLoadArgs

READING = "Reading rows"


@dataclass(kw_only=True)
class ReadsRows:
    """Base of commands that read rows with one model."""

    model: str = cli_option("Model: folder (of an ATWU run, with its scorer) or Hub name.", alias=("-m",))
    data: str = cli_option(f"Rows: {ROWS_HELP}.", alias=("-d",))
    max_length: int = cli_option(
        "Maximum row length in tokens; longer answers are truncated.", 512, least=8, group=READING
    )
    system: str | None = cli_option(
        "System prompt for conversations without one; use the one from training.", None, group=READING
    )
    device: str | None = cli_option(DEVICE, None, group=READING)
    loading: ModelLoadArgs = cli_option("", group=READING)

    def check(self) -> None:
        """Check names before anything is loaded; warn if the system prompt differs from training."""
        from atwu.data.render import check_system
        from atwu.modeling.device import pick_device
        from atwu.modeling.load import check_model_name
        from atwu.modeling.open_model import check_system_prompt

        # Each of these fails at once, and loading the model takes long.
        pick_device(self.device)
        check_system(self.system)
        check_model_name(self.model, base=self.loading.base, revision=self.loading.revision)
        warn(filter(None, [check_system_prompt(self.model, self.system)]))


@dataclass(kw_only=True)
class TokensCommand(ReadsRows):
    """Show the token scores of a method as colored words, in the terminal and as a web page.

    Scores are shown per word; labelled words (forget_spans) are underlined. With --key: what unlearning takes as the fact of
    every row, in brackets.

    Example: atwu tokens --model unlearned --data forget.jsonl --html tokens.html
    """

    score: list[str] | None = cli_option(
        "Scores to show: scorer, saturation, importance, satimp, entropy, logprob_mask, nouns, key_tokens, "
        "model_difference (of a su_llm run), labels, or your own weighting; repeatable. Default: all available "
        "scores except labels.",
        None,
    )
    key: bool = cli_option(
        "Print what `atwu unlearn` takes as the fact of every row, in brackets, instead of scores; a column forget_spans "
        "overrides it.",
        False,
    )
    retain: str | None = cli_option(
        "Retain rows, required by rarity, word_rarity, rare_nouns and ngram_difference.", None
    )
    html: Path | None = cli_option("Also write a self-contained HTML page.", None)
    overwrite: bool = cli_option("Replace --html if it exists.", False)
    rows: int = cli_option("Number of rows to print.", 5, least=0)
    limit: int = cli_option("Number of rows to score for the HTML page.", 100, least=1)

    def run(self) -> None:
        from atwu.benchmarks.sources import load_rows
        from atwu.evaluation.weighting_scores import ScoreInputs, check_scores, find_auxiliary_models
        from atwu.methods.weightings.token_scorer import find_scorer
        from atwu.modeling.open_model import open_model
        from atwu.report.heatmap import render_html, render_terminal, score_rows

        if self.key:
            self._print_facts()
            return
        if self.rows == 0 and self.html is None:
            raise UsageError("--rows 0 prints no row; give --rows 1 or more, or --html FILE for the page.")
        self.check()
        scorer = find_scorer(self.model)
        auxiliary = find_auxiliary_models(self.model)
        # Whether the rows have labels is known only after loading them.
        inputs = ScoreInputs(
            scorer=scorer is not None, labels=True, retain=bool(self.retain), auxiliary=auxiliary is not None
        )
        check_scores(self.score or (), inputs)
        check_writable(self.html, overwrite=self.overwrite)
        limit, shown = self.rows, None
        if self.html is not None:
            limit = self.limit
        if self.score:
            shown = {name: name for name in self.score}
        loaded = load_rows(self.data, limit=limit)
        warn(loaded.warnings)
        scored = score_rows(
            *open_model(self.model, self.loading, device=self.device),
            loaded.rows,
            scorer=scorer,
            auxiliary=auxiliary,
            retain=open_rows(self.retain),
            scores=shown,
            max_length=self.max_length,
            system=self.system,
            progress="score rows",
        )
        render_terminal(scored[: self.rows], terminal())
        if self.html is not None:
            write_text(self.html, render_html(scored, title=f"Token scores of {self.model}"))
            say(f"written: {self.html}")

    def _print_facts(self) -> None:
        from atwu.benchmarks.sources import load_rows
        from atwu.evaluation.backends import TransformersGenerator
        from atwu.modeling.open_model import open_model
        from atwu.request.row_facts import ModelReader, in_brackets, mark_facts

        self.check()
        loaded = load_rows(self.data)
        warn(loaded.warnings)
        model, tokenizer = open_model(self.model, self.loading, device=self.device)
        generator = TransformersGenerator(model, tokenizer)
        reader = ModelReader(generator, system=self.system, max_length=self.max_length)
        for row in mark_facts(loaded.rows, reader):
            # The brackets mark the fact; Rich would take them for a style.
            terminal().print(in_brackets(row), markup=False, highlight=False)


@dataclass(kw_only=True)
class ProbeCommand(ReadsRows):
    """Train a linear probe to detect labelled tokens in hidden states, layer by layer, and report its AUROC.

    A learned token scorer is the same linear layer trained without labels, so the probe is an approximate upper bound
    for it. Each answer is scored by a probe that was trained on other subjects.

    Example: atwu probe --model target --data forget.jsonl --layers last --output probe.json
    """

    model: str = cli_option("Model: folder or Hub name.", alias=("-m",))
    data: str = cli_option(f"Rows with forget_spans: {ROWS_HELP}.", alias=("-d",))
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
        from atwu.benchmarks.sources import load_rows
        from atwu.evaluation.linear_probe import POSITIONS, labelled_rows, layer_numbers, probe, probe_record
        from atwu.modeling.load import load_config
        from atwu.modeling.open_model import open_model
        from atwu.report.table_writers import PROBE_READING, probe_table

        # A missing package and a wrong layer are answered before a model is loaded.
        require("sklearn", extra="probe")
        layers = parse_layers(self.layers)
        positions: Any = self.position or list(POSITIONS)
        self.result.check()
        self.check()
        loaded = load_rows(self.data, limit=self.limit)
        warn(loaded.warnings)
        rows = labelled_rows(loaded.rows)  # a probe is trained on labels alone
        missing = len(loaded.rows) - len(rows)
        if missing:
            warn([f"{missing} of {len(loaded.rows)} rows have no forget_spans and are skipped."])
        # The states of the embeddings count as layer 0. Checked before the model is loaded.
        shape = load_config(self.model, **self.loading.load_kwargs).get_text_config()
        layer_numbers(layers, 1 + int(shape.num_hidden_layers))
        network, tokenizer = open_model(self.model, self.loading, device=self.device)
        start = time.perf_counter()
        settings: dict[str, Any] = {"folds": self.folds, "seed": self.seed, "l2": self.l2}
        settings |= {"max_length": self.max_length, "system": self.system}
        results = probe(
            network, tokenizer, rows, layers=layers, positions=positions, batch_tokens=self.batch_tokens, **settings
        )
        if self.result.output is not None:
            record = probe_record(results, model=self.model, network=network, rows=loaded, settings=settings)
            write_json(self.result.output, record | {"seconds": round(time.perf_counter() - start, 3)})
        terminal().print(probe_table(results, title=self.model))
        terminal().print(PROBE_READING, highlight=False, soft_wrap=True)
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
