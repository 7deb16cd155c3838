"""`atwu tokens`: show token scores as coloured words."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from atwu._files import check_writable
from atwu.cli.cli_options import cli_option
from atwu.cli.output import say, terminal
from atwu.cli.shared import ROWS_HELP, ReadsRows, open_rows, rows_option


@dataclass(kw_only=True)
class TokensCommand(ReadsRows):
    """Show the token scores of a method as colored words, in the terminal and as a web page.

    Scores are shown per word; labelled words (forget_spans) are underlined.

    Example: atwu tokens --model unlearned --data forget.jsonl --html tokens.html
    """

    model: str = cli_option(
        "Folder of an ATWU run (with its scorer), or any other model folder or Hub name.", alias=("-m",)
    )
    data: str = rows_option(f"Rows to score: {ROWS_HELP}.", alias=("-d",))
    score: list[str] | None = cli_option(
        "Scores to show: scorer, saturation, importance, satimp, entropy, logprob_mask, nouns, key_tokens, "
        "model_difference (of a su_llm run), labels, or your own weighting; repeatable. Default: all available "
        "scores except labels.",
        None,
    )
    retain: str | None = rows_option(
        "Retain rows, required by rarity, word_rarity, rare_nouns, key_token_model and ngram_difference.", None
    )
    html: Path | None = cli_option("Also write a self-contained HTML page.", None)
    overwrite: bool = cli_option("Replace --html if it exists.", False)
    rows: int = cli_option("Number of rows to print.", 5, least=0)
    limit: int = cli_option("Number of rows to score for the HTML page.", 100, least=1)

    def run(self) -> None:
        from atwu.evaluation.weighting_scores import check_scores, find_auxiliary_models, met_needs
        from atwu.methods.weightings.token_scorer import find_scorer
        from atwu.report.heatmap import HeatMap, render_terminal
        from atwu.report.score_words import score_rows

        self.check()
        scorer = find_scorer(self.model)
        auxiliary = find_auxiliary_models(self.model)
        # Whether the rows have labels is known only after loading them.
        inputs = met_needs(scorer=True, labels=True, retain=bool(self.retain), auxiliary=auxiliary is not None)
        check_scores(self.score or (), inputs)
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
