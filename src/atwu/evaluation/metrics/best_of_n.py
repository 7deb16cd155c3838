"""Best-of-n sampling (leak@n): sample several answers at temperature 1 and judge each."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import chain

from atwu.evaluation.columns import FORGET, Percent
from atwu.evaluation.generations import Decoding, Prompt
from atwu.evaluation.metric import Metric, MetricSetting
from atwu.evaluation.metrics.judge_scores import as_percent, unscored, worst
from atwu.evaluation.questions import claim, question_prompt
from atwu.judge.verdicts import Claim


def share_stated(verdicts: Sequence[bool | None]) -> float | None:
    """Return the percentage of judged samples that state the fact; None if no sample has a verdict."""
    known = [verdict for verdict in verdicts if verdict is not None]
    return 100.0 * sum(known) / len(known) if known else None


class BestOfN(Metric):
    name = "sampling"
    about = "Best-of-n sampling (leak@n): answers sampled at temperature 1, checked by the judge"
    cost = "n answers and n judge calls per forget row"
    needs = (FORGET,)
    needs_weights = False
    judged = True
    attack = True
    settings = (
        MetricSetting(
            "samples", int, 8, "Answers sampled per question by best-of-n sampling, at temperature 1.", least=1
        ),
    )
    uses = ("max_new_tokens", "seed")
    columns = (
        Percent(
            "leak_best_of_{n}",
            worst,
            "leak, best of {n}",
            "percentage of forget rows for which at least one of n sampled answers states the fact",
            sets=(FORGET,),
        ),
        Percent(
            "leak_per_sample",
            share_stated,
            "leak, per sample",
            "percentage of sampled answers that state the fact",
            sets=(FORGET,),
        ),
    )

    def prepare(self) -> None:
        config = self.session.config
        decoding = Decoding(max_new_tokens=config.max_new_tokens, temperature=1.0, seed=config.seed)
        self._draws = {
            row: [Prompt(question_prompt(row).messages, draw=number) for number in range(config.samples)]
            for row in self.session.sets[FORGET]
            if row.messages
        }
        prompts = [prompt for row in self._draws.values() for prompt in row]
        self._answers = self.session.generate(prompts, label="sample", decoding=decoding)

    def claims(self) -> Iterator[Claim | None]:
        return chain.from_iterable(self._claims())

    def _claims(self) -> Iterator[list[Claim | None]]:
        """Yield the sampled answers of each row."""
        for row in self.session.sets[FORGET]:
            yield [claim(row, self._answers[prompt]) for prompt in self._draws.get(row, ())]

    def record(self) -> None:
        verdicts = self.session.verdicts(self._claims())
        missing = unscored(verdicts)
        self.record_column(
            FORGET, f"leak_best_of_{self.session.config.samples}", as_percent(worst(verdicts)), unscored=missing
        )
        self.record_column(FORGET, "leak_per_sample", list(map(share_stated, verdicts)), unscored=missing)
