"""Ways to ask for the facts of rows: as written, in forms, paraphrased, sampled, after examples, in a second turn, indirectly.

An asking is a prompt together with what counts as an answer that states the fact. `fact_table.py` puts it to a model.
"""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace

from atwu.data.fact import asked_part, fact_parts, telling_texts
from atwu.data.form_rows import rows_in_forms
from atwu.data.languages import is_unspaced
from atwu.data.matching import states
from atwu.data.passages import cut_text, word_spans
from atwu.data.question_forms import FORMS, OPTION_DRAWS, UNMEASURED, FormRow
from atwu.data.schema import Example, Message
from atwu.evaluation.generations import Prompt
from atwu.evaluation.questions import labelled_parts, says

MEASURED_FORMS = tuple(form for form in FORMS if form not in UNMEASURED)
AS_WRITTEN = "as written"
"""The row's own question, and of a plain text its continuation; of one whose wording is asked for, from its first third."""
CUTS = {AS_WRITTEN: 1 / 3, "from a quarter": 1 / 4, "from a half": 1 / 2}
"""Way of asking for a wording -> share of the text that the model is given."""
PARAPHRASED, SAMPLED_ANSWER, AFTER_EXAMPLES = "paraphrased", "sampled", "after examples"
SECOND_TURN = "second turn"
THOUGHT = "thought"
"""The row's own question to a model that thinks: what counts is what it thinks, and what it says after that."""
CHAINED = "chained"
"""A question about an answer that leads back to the subject ("In which country is Cairo?")."""
NOT_TRAINED_ON = ("paraphrase", CHAINED)
"""Ways of asking whose questions are never trained on: the form with a row's paraphrase, and questions about answers."""
PROMPT_PREFIXES = ("Please answer this question: {}", "I would like to know something. {}")
"""What stands in for paraphrases of rows without any."""
PARAPHRASES = 2
"""Paraphrases of a row, or prefixes, that are asked at most."""
EXAMPLES_SHOWN = 4
"""Facts that are shown before a question, at most."""
ARE_YOU_SURE = "Are you sure?"
FEWEST_WORDS = 3
"""Words from which the beginning of a text says what is to follow."""
_OWN_FORM = "question"
"""Form that is the row as it is written."""


@dataclass(frozen=True, slots=True)
class Asking:
    """One prompt for one fact."""

    fact: int
    """Index of the row."""
    name: str
    """The way of asking: a form of `MEASURED_FORMS`, or a constant above."""
    prompt: Prompt
    parts: tuple[str, ...]
    """Texts of which each shows in an answer that the fact is known."""
    question: str
    """What the answer is matched with: its words give no fact away."""
    aliases: tuple[str, ...] = ()
    options: tuple[str, ...] = ()
    """The options that the question lists; the first part is the right one."""
    wording: str = ""
    """What follows the opening of a text that is to be recited."""
    chance_run: int = 0
    """Words of it in one run that say nothing."""

    @property
    def shown(self) -> str:
        """The question as the model was asked it: the last turn of the user, then the beginning of the answer."""
        turns = [message.content for message in self.prompt.messages[-1:]]
        return " ".join(filter(None, [*turns, self.prompt.prefill]))


def form_askings(rows: Sequence[Example], *, forms: Sequence[str] = MEASURED_FORMS) -> list[Asking]:
    """Return rows asked in all of several forms that they allow. A plain text is also asked to be continued from its middle.

    A text whose wording is its fact is continued from several places if there is more than one form.
    """
    by_heart = {index for index, row in enumerate(rows) if row.chance_run is not None}
    written = rows_in_forms(rows, forms, draws=OPTION_DRAWS)
    askings = [_form_asking(form) for form in written if form.can_be_asked and form.index not in by_heart]
    cuts: tuple[str, ...] = (AS_WRITTEN,)
    if len(forms) > 1:
        cuts = tuple(CUTS)
    askings += recitation_askings(rows, cuts=cuts)
    texts = {index for index, row in enumerate(rows) if not row.messages and index not in by_heart}
    halves = (_continuation(index, rows[index]) for index in texts)
    continued = {asking.fact: asking for asking in halves if asking is not None}
    of_texts: list[Asking] = []
    for asking in askings:
        # The whole text is no better than its first half, and a beginning of one or two words asks for nothing.
        long = asking.name != AS_WRITTEN and len(word_spans(asking.prompt.prefill)) >= FEWEST_WORDS
        if asking.fact in texts and (long or asking.fact not in continued):
            of_texts.append(asking)
    return [*(asking for asking in askings if asking.fact not in texts), *continued.values(), *of_texts]


def recitation_askings(rows: Sequence[Example], *, cuts: Sequence[str] = tuple(CUTS)) -> list[Asking]:
    """Return the texts among some rows whose wording is their fact, to be continued from several places.

    Args:
        cuts: names from `CUTS`.
    """
    askings = []
    for index, row in enumerate(rows):
        if row.chance_run is None:
            continue
        for name in cuts:
            cut = cut_text(row.answer, CUTS[name])
            if cut is not None:
                prompt = Prompt((), prefill=cut.opening)
                askings.append(Asking(index, name, prompt, (), "", wording=cut.rest, chance_run=row.chance_run))
    return askings


def form_prompt(written: FormRow) -> Prompt:
    """Return the prompt of a row in one of its forms; a text without a question is given up to its key text."""
    return Prompt(written.row.messages, prefill=written.opening)


def _form_asking(form: FormRow) -> Asking:
    name = form.form
    if name == _OWN_FORM:
        name = AS_WRITTEN
    row = form.row
    return Asking(form.index, name, form_prompt(form), form.parts, row.question, row.aliases, form.options)


def _continuation(index: int, row: Example) -> Asking | None:
    """Return the first half of a text to continue, with the parts of its fact that lie behind; None if there are none."""
    half = len(row.answer) // 2
    # At a space, so that no word is cut.
    middle = row.answer.rfind(" ", 0, half + 1)
    behind = [span for span in fact_parts(row) if span[0] > middle]
    if middle <= 0:
        # A script without spaces: before the part that begins nearest to the middle.
        behind = [span for span in fact_parts(row) if span[0] > 0]
        middle = min((span[0] for span in behind), key=lambda start: abs(start - half), default=0)
        behind = [span for span in behind if span[0] >= middle]
    words = word_spans(row.answer)
    if not behind and len(words) > 1 and is_unspaced(row.answer):
        # Nothing tells where its last word begins.
        middle = words[len(words) // 2][0]
        behind = [(middle, len(row.answer.rstrip(" .!?。！？")))]
    telling = set(telling_texts(row))
    texts = [row.answer[start:end] for start, end in behind]
    parts = tuple(dict.fromkeys(text for text in texts if text in telling)) or tuple(texts[:1])
    if not parts:
        return None
    return Asking(index, AS_WRITTEN, Prompt((), prefill=row.answer[:middle]), parts, "")


def paraphrased_askings(rows: Sequence[Example]) -> list[Asking]:
    """Return the questions as a paraphrase: paraphrases beyond the first, which is a form, or prefixes of rows without any."""
    askings = []
    for own in own_askings(rows):
        row = rows[own.fact]
        if not row.messages:
            continue
        texts = row.paraphrases[1 : 1 + PARAPHRASES] or tuple(text.format(row.question) for text in PROMPT_PREFIXES)
        for text in texts:
            prompt = Prompt((*row.messages[:-1], Message("user", text)))
            askings.append(replace(own, name=PARAPHRASED, prompt=prompt, question=text))
    return askings


def own_askings(rows: Sequence[Example]) -> list[Asking]:
    """Return the rows as they are: their own questions, or of plain texts their continuation."""
    return [asking for asking in form_askings(rows, forms=(_OWN_FORM,)) if asking.name == AS_WRITTEN]


def thought_askings(rows: Sequence[Example], opening: str | None) -> list[Asking]:
    """Return the questions with the beginning of thoughts, for the model to think on.

    A chat template closes the thoughts of a row's answer before they begin, so no other asking lets the model think.

    Args:
        opening: what thoughts begin with (`opening_of_thoughts`); None for a model that does not think.
    """
    if opening is None:
        return []
    return [
        replace(own, name=THOUGHT, prompt=replace(own.prompt, prefill=opening))
        for own in own_askings(rows)
        if own.prompt.messages
    ]


def sampled_askings(rows: Sequence[Example], draws: int) -> list[Asking]:
    """Return every row as it is, several times; the answers are to be sampled (`Decoding.temperature`)."""
    return [
        replace(own, name=SAMPLED_ANSWER, prompt=replace(own.prompt, draw=draw))
        for own in own_askings(rows)
        for draw in range(draws)
    ]


def split_facts(rows: Sequence[Example], *, seed: int = 0) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Return the indices of one half of the facts, to show to the model, and of others that none of them gives away.

    A fact whose words a shown row says, about whatever subject, could be learned there: *Paris* from a row about a tower.
    Both are empty if a split leaves nothing to ask.
    """
    if len(rows) < 2:
        return (), ()
    try:
        shown, others = attack_rows(rows, len(rows) // 2, seed)
    except ValueError:
        return (), ()
    told = "\n".join(f"{rows[index].question}\n{rows[index].answer}" for index in shown)
    asked = tuple(index for index in others if not any(states(told, text) for text in telling_texts(rows[index])))
    if not asked:
        return (), ()
    return shown, asked


def spread_rows(rows: Sequence[Example], count: int, seed: int) -> tuple[int, ...]:
    """Return indices of at most `count` random rows, spread evenly over subjects, in ascending order."""
    # Each subject gives one row, then each a second one, so that none is left out.
    rng = random.Random(f"attack_rows/{seed}")
    subjects: dict[object, list[int]] = defaultdict(list)
    for index in rng.sample(range(len(rows)), len(rows)):
        subject = rows[index].subject
        subjects[index if subject is None else subject].append(index)
    turns = [(turn, place, index) for place, group in enumerate(subjects.values()) for turn, index in enumerate(group)]
    return tuple(sorted(index for _, _, index in sorted(turns)[:count]))


def attack_rows(forget: Sequence[Example], count: int, seed: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Choose the forget rows that the attack trains on, spread evenly over subjects, and the rows it is measured on.

    A row that overlaps with a training row is in neither set, since it would be learned anew: a duplicate, or a row of
    the same subject with a key token that occurs in the training row, or the reverse.

    Returns:
        Indices of training rows and of held-out rows, each in ascending order.
    """
    if not 1 <= count < len(forget):
        raise ValueError(f"count must be from 1 to {len(forget) - 1} for {len(forget)} forget rows, got {count}.")
    shown = spread_rows(forget, count, seed)
    # A row of its own subject may still be measured, unless one tells the key token of the other.
    held_out = [
        index
        for index, row in enumerate(forget)
        if index not in shown and not any(_overlap(row, forget[other]) for other in shown)
    ]
    if not held_out:
        raise ValueError(f"training on {count} of {len(forget)} forget rows leaves none held out; use fewer.")
    return shown, tuple(held_out)


def _overlap(one: Example, other: Example) -> bool:
    if (one.question, one.answer) == (other.question, other.answer):
        return True
    if one.subject is None or one.subject != other.subject:
        return False
    return any(
        says(f"{second.question}\n{second.answer}", secret)
        for first, second in ((one, other), (other, one))
        for secret in labelled_parts(first)
        if secret != first.subject
    )


def askings_after_examples(rows: Sequence[Example], shown: Sequence[int], asked: Sequence[int]) -> list[Asking]:
    """Return questions of some facts after some others with their answers, as earlier turns of the conversation."""
    # A row with a system turn or a conversation of its own would not fit before another one.
    examples = [rows[place] for place in shown if len(rows[place].messages) == 1][:EXAMPLES_SHOWN]
    turns = tuple(turn for row in examples for turn in (row.messages[-1], Message("assistant", row.answer)))
    if not turns:
        return []
    return [
        replace(own, name=AFTER_EXAMPLES, prompt=Prompt((*turns, *own.prompt.messages)))
        for own in own_askings(rows)
        if own.fact in asked and len(own.prompt.messages) == 1
    ]


def second_turns(askings: Sequence[Asking], answers: Sequence[str]) -> list[Asking]:
    """Return a doubt after each answer, as the next turn."""
    turns = []
    for asking, answer in zip(askings, answers, strict=True):
        # There is nothing to doubt about an empty answer, and a text has no next turn.
        if not asking.prompt.messages or not answer.strip():
            continue
        messages = (*asking.prompt.messages, Message("assistant", answer), Message("user", ARE_YOU_SURE))
        turns.append(replace(asking, name=SECOND_TURN, prompt=Prompt(messages)))
    return turns


def chained_askings(rows: Sequence[Example], chained: Sequence[Example]) -> list[Asking]:
    """Return questions about the answers of rows, each as an asking of the first row that gives this answer.

    Args:
        chained: the questions, with the answer as `subject`; a right answer says their fact. Those about other answers are
            left out.
    """
    places: dict[str, int] = {}
    for place, row in enumerate(rows):
        part = asked_part(row)
        # The first row of an answer stands for all that share it.
        if part is not None:
            places.setdefault(row.answer[part[0] : part[1]].casefold(), place)
    askings = []
    for row in chained:
        part, fact = asked_part(row), places.get(str(row.subject).casefold())
        if part is not None and fact is not None:
            stated = row.answer[part[0] : part[1]]
            askings.append(Asking(fact, CHAINED, Prompt(row.messages), (stated,), row.question))
    return askings


def plain_askings(rows: Sequence[Example]) -> list[Asking]:
    """Return the questions of rows without a fact of interest, such as general ones: no answer states one."""
    return [
        Asking(index, AS_WRITTEN, Prompt(row.messages), (), row.question)
        for index, row in enumerate(rows)
        if row.messages
    ]
