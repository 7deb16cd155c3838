"""Attacks by asking: adversarial wordings, and drawing many answers. The model's weights stay as they are."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from atwu.evaluation.attacks.families import FAMILIES, AttackProbe, probes
from atwu.evaluation.panel.group import Group
from atwu.evaluation.panel.session import FORGET, Session, claim, question_prompt
from atwu.evaluation.prompts import Decoding, Prompt
from atwu.judge.verdicts import Claim


class Families(Group):
    """The nine families of adversarial probes of RWKU (Jin et al. 2024), each as a leak rate, and the worst of them."""

    def __init__(self, session: Session) -> None:
        """Write the probes."""
        super().__init__(session)
        forget = {row.question for row in session.sets[FORGET]}
        subjects = {row.subject for row in session.sets[FORGET]} - {None}
        others = [row for row in session.pool if row.question not in forget and row.subject not in subjects]
        self._probes: list[list[AttackProbe]] = [
            list(probes(row, others, seed=session.config.seed)) for row in session.sets[FORGET]
        ]

    def prompts(self) -> Iterable[Prompt]:
        """All probes of all rows."""
        return [probe.prompt for row in self._probes for probe in row]

    def _claim(self, probe: AttackProbe) -> Claim:
        answer = probe.resolve(self.session.answer(probe.prompt))
        return Claim(question=probe.claim_question, reference=probe.reference, answer=answer, facts=probe.facts)

    def claims(self) -> Iterator[Claim]:
        """Every answer."""
        return (self._claim(probe) for row in self._probes for probe in row)

    def record(self) -> None:
        """Record the leak rate of every family and of the worst one per row."""
        found = [{probe.family: self.session.verdict(self._claim(probe)) for probe in row} for row in self._probes]
        worst: list[float | None] = []
        for row in found:
            known = [verdict for verdict in row.values() if verdict is not None]
            worst.append(100.0 * any(known) if known else None)
        unscored = sum(verdict is None for row in found for verdict in row.values())
        self.session.record(FORGET, "leak_worst_family", worst, unscored=unscored, digits=1)
        for family in FAMILIES:
            verdicts = [row.get(family) for row in found]
            missing = sum(family in row and row[family] is None for row in found)
            values = [None if verdict is None else 100.0 * verdict for verdict in verdicts]
            self.session.record(FORGET, f"leak_{family}", values, unscored=missing, digits=1)


class Sampling(Group):
    """Answers drawn at temperature 1: whether any of them states the fact, and how many do."""

    def prepare(self) -> None:
        """Draw."""
        config = self.session.config
        decoding = Decoding(max_new_tokens=config.max_new_tokens, temperature=1.0, seed=config.seed)
        asked = [row for row in self.session.sets[FORGET] if row.messages]
        self._draws = {
            row: [Prompt(question_prompt(row).messages, draw=number) for number in range(config.samples)]
            for row in asked
        }
        prompts = [prompt for row in self._draws.values() for prompt in row]
        self._said = self.session.generate(prompts, label="sample", decoding=decoding)

    def claims(self) -> Iterator[Claim]:
        """Every draw."""
        for row, prompts in self._draws.items():
            for prompt in prompts:
                yield claim(row, self._said[prompt].text)

    def record(self) -> None:
        """Record the best of n and the mean, in percent."""
        best: list[float | None] = []
        mean: list[float | None] = []
        unscored = 0
        for row in self.session.sets[FORGET]:
            verdicts = [
                self.session.verdict(claim(row, self._said[prompt].text)) for prompt in self._draws.get(row, ())
            ]
            known = [verdict for verdict in verdicts if verdict is not None]
            unscored += len(verdicts) - len(known)
            best.append(100.0 * any(known) if known else None)
            mean.append(100.0 * sum(known) / len(known) if known else None)
        self.session.record(FORGET, f"leak_best_of_{self.session.config.samples}", best, unscored=unscored, digits=1)
        self.session.record(FORGET, "leak_per_sample", mean, unscored=unscored, digits=1)
