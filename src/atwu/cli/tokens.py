"""`atwu tokens`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from atwu._files import check_writable
from atwu.cli.cli_options import cli_option
from atwu.cli.output import say, terminal
from atwu.cli.shared import ROWS_HELP, ReadsRows, open_rows


@dataclass(kw_only=True)
class TokensCommand(ReadsRows):
    """Show which words a method takes for the secret, as coloured text and as a web page.

    Words, not sub-tokens; secret words are underlined where rows carry forget_spans.

    Example: atwu tokens --model unlearned --data forget.jsonl --html tokens.html
    """

    model: str = cli_option(
        "Model: the folder of an ATWU run (with its scorer), any other, or a Hub name.", alias=("-m",)
    )
    data: str = cli_option(f"Rows to score: {ROWS_HELP}.", alias=("-d",))
    score: list[str] | None = cli_option(
        "Which scores: scorer, saturation, importance, satimp, entropy, logprob_mask, nouns, model_difference (of a su_llm "
        "run), labels, a weighting of your own; repeat for several. Default: all that the model allows, labels excepted.",
        None,
    )
    retain: str | None = cli_option(
        "Retain rows; rarity, word_rarity, rare_nouns and ngram_difference compare with them.", None
    )
    html: Path | None = cli_option("Also write one self-contained HTML page.", None)
    overwrite: bool = cli_option("Replace the page.", False)
    rows: int = cli_option("How many rows to print.", 5, least=0)
    limit: int = cli_option("How many rows to score for the page.", 100, least=1)

    def run(self) -> None:
        """Score, print, write."""
        from atwu.evaluation.auxiliary_logps import find_auxiliary_models
        from atwu.evaluation.weighting_scores import check_scores, met_needs
        from atwu.methods.weightings.token_scorer import find_scorer
        from atwu.report.heatmap import HeatMap, render_terminal
        from atwu.report.score_words import score_rows

        self.check()
        scorer = find_scorer(self.model)
        auxiliary = find_auxiliary_models(self.model)
        # What rows and model have is known once they are read.
        there = met_needs(scorer=True, labels=True, retain=bool(self.retain), auxiliary=auxiliary is not None)
        check_scores(self.score or (), there)
        check_writable(self.html, overwrite=self.overwrite)
        if "scorer" in (self.score or ()) and scorer is None:
            raise ValueError(
                f"{self.model} has no learned scorer; unlearn with an atwu method, or choose another --score."
            )
        rows = self.load_rows(self.limit if self.html is not None else max(self.rows, 1)).rows
        network, tokenizer = self.open()
        scored = score_rows(
            network,
            tokenizer,
            rows,
            scorer=scorer,
            auxiliary=auxiliary,
            retain=open_rows(self.retain),
            scores={name: name for name in self.score} if self.score else None,
            max_length=self.max_length,
            system=self.system,
            progress="score rows",
        )
        render_terminal(scored[: self.rows], terminal())
        if self.html is not None:
            say(f"written: {HeatMap(scored).write(self.html, title=f'Token scores of {self.model}')}")
