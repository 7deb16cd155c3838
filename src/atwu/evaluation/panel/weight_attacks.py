"""Attacks on the weights: does a little training, or rounding, bring back what was unlearned?

Each alters the model in place, measures the forget rows again and puts the weights back. Names carry the attack after
an "@", as in `extraction_strength@int4`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from statistics import fmean

from atwu.data.encode import EncodedRow
from atwu.data.schema import Example
from atwu.evaluation.attacks.quantise import quantised
from atwu.evaluation.attacks.relearn import attack_rows, relearned, spread_rows
from atwu.evaluation.backends import TransformersGenerator
from atwu.evaluation.judged import unscored, worst
from atwu.evaluation.panel.group import Group
from atwu.evaluation.panel.memorization import strength
from atwu.evaluation.panel.session import FORGET, Session, claim, question_prompt, variants
from atwu.evaluation.prompts import Generation, Prompt
from atwu.judge.verdicts import Claim


class WeightAttack(Group):
    """Extraction strength and J_P of forget rows under altered weights."""

    def attacks(self) -> Mapping[str, tuple[AbstractContextManager[None], Sequence[int]]]:
        """Attack -> what alters the weights, and the indices of the forget rows it is measured on."""
        raise NotImplementedError

    def prepare(self) -> None:
        """Measure under every attack."""
        session = self.session
        self._strengths: dict[str, list[float | None]] = {}
        self._said: dict[str, list[dict[Prompt, Generation]]] = {}
        for name, (altered, kept) in self.attacks().items():
            rows = session.sets[FORGET]
            with altered:
                read = session.read([session.encoded(FORGET)[index] for index in kept], label=f"read forget@{name}")
                generator = TransformersGenerator(
                    session.model, session.tokenizer, batch_tokens=session.config.batch_tokens
                )
                prompts = {index: self._prompts(rows[index]) for index in kept}
                said = session.generate(
                    [prompt for few in prompts.values() for prompt in few],
                    label=f"generate@{name}",
                    generator=generator,
                )
            strengths: list[float | None] = [None] * len(rows)
            for index, row in zip(kept, read, strict=True):
                strengths[index] = strength(row)
            self._strengths[name] = strengths
            self._said[name] = [
                {prompt: said[prompt] for prompt in prompts.get(index, ())} for index in range(len(rows))
            ]

    def _prompts(self, row: Example) -> list[Prompt]:
        return [question_prompt(row, question) for question in variants(row, self.session.config.paraphrases)]

    def claims(self) -> Iterator[Claim]:
        """Every answer given under attack."""
        for answers in self._said.values():
            for row, said in zip(self.session.sets[FORGET], answers, strict=True):
                for generation in said.values():
                    yield claim(row, generation.text)

    def record(self) -> None:
        """Record what came back."""
        for name, answers in self._said.items():
            verdicts = [
                [self.session.verdict(claim(row, generation.text)) for generation in said.values()]
                for row, said in zip(self.session.sets[FORGET], answers, strict=True)
            ]
            self.session.record(FORGET, f"extraction_strength@{name}", self._strengths[name])
            percent = [None if value is None else 100 * value for value in worst(verdicts)]
            self.session.record(FORGET, f"J_P@{name}", percent, unscored=unscored(verdicts), digits=1)


LEARNED = 0.9
"""Extraction strength of the rows it trained on below which a relearning attack was too weak to show anything."""


class Relearning(WeightAttack):
    """A few steps of training on a few forget rows, measured on the other forget rows; and on retain rows alone."""

    def __init__(self, session: Session) -> None:
        """Choose the rows; of a small forget set at most half are shown."""
        super().__init__(session)
        forget, count, seed = session.sets[FORGET], session.config.relearn_rows, session.config.seed
        self._shown: tuple[int, ...] = ()
        self._unseen: tuple[int, ...] = ()
        try:
            self._shown, self._unseen = attack_rows(forget, min(count, len(forget) // 2), seed=seed)
        except ValueError as error:
            session.warnings.append(f"no relearning attack with forget rows: {error}")
        self._retain = spread_rows(session.pool, count, seed=seed)

    def prepare(self) -> None:
        """Measure under every attack; an attack that did not even learn its own rows is named."""
        super().prepare()
        weak = [strength for strength in self._learned if strength < LEARNED]
        if weak:
            self.session.warnings.append(
                f"relearning attack too weak: it brought its own rows to an extraction strength of {min(weak):.2f} only, so "
                "what it brings back elsewhere is no bound; raise --relearn-learning-rate or --relearn-steps."
            )

    def attacks(self) -> Mapping[str, tuple[AbstractContextManager[None], Sequence[int]]]:
        """Both trainings."""
        session, config = self.session, self.session.config
        train = partial(
            relearned,
            session.network,
            steps=config.relearn_steps,
            learning_rate=config.relearn_learning_rate,
            seed=config.seed,
        )
        self._learned: list[float] = []
        found: dict[str, tuple[AbstractContextManager[None], Sequence[int]]] = {}
        if self._shown:
            forget = [session.encoded(FORGET)[index] for index in self._shown]
            found["relearn_forget"] = (self._checked(train(forget), forget), self._unseen)
        if self._retain:
            pool = session.encoded_pool()
            retain = [pool[index] for index in self._retain]
            found["relearn_retain"] = (train(retain), range(len(session.sets[FORGET])))
        return found

    @contextmanager
    def _checked(self, training: AbstractContextManager[None], rows: Sequence[EncodedRow]) -> Iterator[None]:
        """The training, and how well it learned its rows."""
        with training:
            read = self.session.read(rows, label="read relearned rows")
            self._learned.append(fmean(strength(row) or 0.0 for row in read))
            yield


class Quantisation(WeightAttack):
    """Weights rounded to 8 and to 4 bits."""

    def attacks(self) -> Mapping[str, tuple[AbstractContextManager[None], Sequence[int]]]:
        """Both roundings."""
        model, everything = self.session.network, range(len(self.session.sets[FORGET]))
        return {f"int{bits}": (quantised(model, bits), everything) for bits in (8, 4)}
