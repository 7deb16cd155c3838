"""Ask a model about a name, or to answer questions, or to continue a document, and return what it knows as forget rows.

Of a document it knows the passages that it continues word for word, and the answers to questions that the passages answer.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

from atwu._file_reading import file_text
from atwu.benchmarks.base import evenly_spaced
from atwu.data.matching import states
from atwu.data.passages import Passage, compare_wording, passages, sentences, word_spans
from atwu.errors import AtwuError
from atwu.evaluation.backends import EndpointGenerator, TransformersGenerator
from atwu.judge.open_judge import MODEL_KEY
from atwu.modeling.open_model import ModelLoadArgs, open_model
from atwu.request.asking.ask_result import AskResult
from atwu.request.asking.asked_facts import SURE_SHARE, AskedFact, RecitedText
from atwu.request.asking.known_facts import (
    Answers,
    ask_for_facts,
    collect_answers,
    compare_facts,
    find_facts,
    mark_guesses,
)
from atwu.request.asking.linked_names import LinkedNames
from atwu.request.asking.subject_asker import (
    SubjectAsker,
    SubjectPrompt,
    find_subject_kind,
    first_sentence,
    kind_of_answer,
    own_questions,
    questions_from,
)
from atwu.request.asking.subject_templates import CHAIN, SubjectKind, SubjectQuestion, find_kind, read_templates
from atwu.request.row_facts import ModelReader
from atwu.request.text_wording import count_of

_TOKENS_PER_WORD = 2
MOST_TOKENS = 96


def recite(asker: SubjectAsker, chosen: Sequence[Passage]) -> list[RecitedText]:
    """Return how much of each passage the model continues word for word from its first third."""
    longest = max((len(word_spans(passage.rest)) for passage in chosen), default=0)
    tokens = max(1, min(MOST_TOKENS, _TOKENS_PER_WORD * longest))
    askings = [_continuation(asker, passage.opening, tokens) for passage in chosen]
    answers = asker.ask(askings, progress="passages")
    return [_recited(passage, answer) for passage, answer in zip(chosen, answers, strict=True)]


def _continuation(asker: SubjectAsker, opening: str, tokens: int) -> SubjectPrompt:
    if asker.read is not None:
        return asker.opening(opening, tokens=tokens)
    return asker.question(f"Continue this text word for word, without comment:\n\n{opening}", tokens=tokens)


def _recited(passage: Passage, said: str) -> RecitedText:
    compared = compare_wording(passage.opening, passage.rest, said.removeprefix(passage.opening))
    words = len(word_spans(passage.opening))
    return RecitedText(passage.text, words, said, compared.share, compared.rouge_l, compared.longest_run)


def document_questions(asker: SubjectAsker, chosen: Sequence[Passage]) -> list[SubjectQuestion]:
    """Return questions of the model, one for the first sentence of each passage that it finds one for."""
    statements = [sentence for passage in chosen for sentence in sentences(f"{passage.text}\n")[:1]]
    return list(questions_from(asker, list(dict.fromkeys(statements)), source="document").values())


def choose_passages(every: Sequence[Passage], limit: int) -> list[Passage]:
    """Return at most so many passages, evenly spaced over the document."""
    return list(evenly_spaced(every, limit))


CHAINED_SUBJECTS = 5
"""Answers that become subjects of a further round, at most; each costs as much as asking about a name."""
MOST_PASSAGES = 200
"""Passages of a document that are tested: about 20 pages, or an evenly spaced part of more."""
QUESTIONED_PASSAGES = 40
"""Passages that the model is asked about, at most; a question costs as much as eight passages."""
SERVED_AT_ONCE = 12
"""Questions or passages that a served model gets together: if the server fails, what it said to those before is kept."""
_LONGEST_ROW = 4096
"""Tokens of a question with its answer, at most; models with fewer positions read fewer."""

_Item = TypeVar("_Item")


@dataclass(frozen=True, kw_only=True)
class AskRequest:
    """What to ask about; one of `about`, `questions` and `document`."""

    about: str | Sequence[str] | None = None
    """One or several names; in a text, commas stand between them."""
    questions: Path | None = None
    document: Path | None = None
    kind: str | None = None
    templates: Path | None = None
    hops: int = 1
    """2 asks about the answers, too."""
    limit: int = MOST_PASSAGES

    def __post_init__(self) -> None:
        sources = [source for source in (self.about, self.questions, self.document) if source is not None]
        if len(sources) != 1:
            raise ValueError(f"give one of about, questions and document, got {len(sources)} of them.")
        if self.about is not None and not self.names:
            raise ValueError("about is empty; give a name, such as Egypt.")
        with_comma = [name for name in self.names if "," in name]
        if with_comma:
            raise ValueError(f"commas separate names, so a name has none; write {with_comma[0]!r} without.")
        if self.hops not in (1, 2):
            raise ValueError(f"hops must be 1 or 2, got {self.hops}.")
        if self.about is None and (self.kind is not None or self.hops == 2):
            raise ValueError("kind and hops have no effect without about.")

    @property
    def names(self) -> tuple[str, ...]:
        """The names to ask about."""
        return names_about(self.about or ())

    @property
    def shown(self) -> str:
        """The names, or the file, in messages."""
        return ", ".join(self.names) or str(self.questions or self.document)


def names_about(about: str | Sequence[str]) -> tuple[str, ...]:
    """Return the names in a text with commas between them, or in a sequence; each once."""
    names = about
    if isinstance(names, str):
        names = names.split(",")
    return tuple(dict.fromkeys(name.strip() for name in names if name.strip()))


@dataclass
class _Findings:
    """What was found so far; kept if asking ends early."""

    facts: list[AskedFact] = field(default_factory=list)
    texts: list[RecitedText] = field(default_factory=list)
    asked: list[SubjectQuestion] = field(default_factory=list)
    kinds: tuple[SubjectKind, ...] = ()
    notes: list[str] = field(default_factory=list)


def ask(
    model: str | Path,
    *,
    about: str | Sequence[str] | None = None,
    questions: str | Path | None = None,
    document: str | Path | None = None,
    kind: str | None = None,
    templates: str | Path | None = None,
    hops: int = 1,
    limit: int = MOST_PASSAGES,
    compare: str | Path | None = None,
    model_url: str | None = None,
    model_key: str = MODEL_KEY,
    system: str | None = None,
    seed: int = 0,
    device: str | None = None,
    loading: ModelLoadArgs | None = None,
    say: Callable[[str], None] = lambda line: None,
) -> AskResult:
    """Ask a model what it says, and keep what it says again in other ways of asking.

    Args:
        model: folder, Hub name, `smollm2`, a .gguf file, or the name of a model at `model_url`.
        about: a name, such as "Egypt", or several ("Egypt, Cairo", or a list).
        questions: text file with one question a line.
        document: text file, whose passages the model is given the first third of.
        kind: kind of the subject; by default from the model's own answer.
        templates: YAML file of questions by kind, instead of the shipped one.
        hops: 2 asks about the answers, too, and keeps what leads back to the name.
        limit: passages of a document, at most.
        compare: second model that is asked the same, such as the model before unlearning.
        model_url: base URL of an OpenAI-compatible server, for both models.
        model_key: environment variable with its API key.
        system: system prompt of every question.
        seed: seed of sampled answers.
        device: cpu, cuda, ...; by default the best available.
        say: receives what happens, a line at a time.

    Returns:
        What the model says, with `rows` to forget; `interrupted` tells if a server failed on the way.

    Raises:
        ValueError: nothing to ask about, an empty file, an unknown kind, or templates that cannot be read.
    """
    request = AskRequest(
        about=about,
        questions=_path(questions),
        document=_path(document),
        kind=kind,
        templates=_path(templates),
        hops=hops,
        limit=limit,
    )
    _check(request)

    def open_asker(name: str | Path) -> SubjectAsker:
        if model_url is not None:
            from atwu.judge.client import OpenAIChat

            chat = OpenAIChat(str(name), base_url=model_url, api_key_env=model_key)
            return SubjectAsker(EndpointGenerator(chat), system=system, seed=seed)
        say(f"opening {name}")
        generator = TransformersGenerator(*open_model(str(name), loading or ModelLoadArgs(), device=device))
        longest = min(_LONGEST_ROW, generator.positions)
        reader = ModelReader(generator, system=system, max_length=longest)
        return SubjectAsker(generator, system=system, seed=seed, read=reader)

    findings = _Findings()
    asker = open_asker(model)
    interrupted = ask_into(findings, asker, request, say=say)
    if compare is not None and findings.facts and interrupted is None:
        interrupted = _compare_into(findings, open_asker(compare))
    return _result(findings, request, str(model), interrupted, compared_model=None if compare is None else str(compare))


def ask_into(
    findings: _Findings, asker: SubjectAsker, request: AskRequest, *, say: Callable[[str], None] = lambda line: None
) -> str | None:
    """Ask what a request wants, and keep the findings as they come; return why it ended early, None if it did not."""
    interrupted = None
    try:
        if request.about is not None:
            for name in request.names:
                _ask_about(findings, asker, name, request, say)
        elif request.questions is not None:
            findings.asked += [SubjectQuestion((line,), "questions") for line in _lines(request.questions)]
            _check_lengths(asker, findings.asked, request.questions)
            for portion in _portions(asker, findings.asked):
                findings.facts += ask_for_facts(asker, portion, progress="questions")
        elif request.document is not None:
            _ask_document(findings, asker, request, say)
    except (AtwuError, OSError) as error:
        interrupted = str(error)
    if asker.failures and interrupted is None:
        findings.notes.append(f"{len(asker.failures)} of {asker.asked} prompts got no answer: {asker.failures[0]}")
    return interrupted


def ask_with(
    asker: SubjectAsker,
    request: AskRequest,
    *,
    model: str = "the model",
    say: Callable[[str], None] = lambda line: None,
) -> AskResult:
    """Return what a model says that is already open."""
    _check(request)
    findings = _Findings()
    interrupted = ask_into(findings, asker, request, say=say)
    return _result(findings, request, model, interrupted)


def _path(value: str | Path | None) -> Path | None:
    if value is None:
        return None
    return Path(value).expanduser()


def _check(request: AskRequest) -> None:
    """Refuse what can be refused before a model is opened."""
    kinds = read_templates(request.templates)
    if request.kind is not None:
        find_kind(kinds, request.kind)
    if request.questions is not None:
        _lines(request.questions)
    if request.document is not None:
        _passages(request.document)


def _lines(path: Path) -> list[str]:
    lines = [line.strip() for line in file_text(path).splitlines()]
    questions = list(dict.fromkeys(line for line in lines if line))
    if not questions:
        raise ValueError(f"{path} has no question; write one a line.")
    return questions


def _check_lengths(asker: SubjectAsker, questions: Sequence[SubjectQuestion], path: Path) -> None:
    """Refuse a file with a question that the model cannot read, before any other is asked."""
    reasons = asker.too_long([asker.question(question.question) for question in questions])
    for reason in filter(None, reasons):
        raise ValueError(f"{path}: {reason}")


def _passages(path: Path) -> list[object]:
    every = passages(file_text(path))
    if not every:
        raise ValueError(f"{path} has no passage of a few sentences; give a text file.")
    return list(every)


def _ask_about(
    findings: _Findings, asker: SubjectAsker, subject: str, request: AskRequest, say: Callable[[str], None]
) -> None:
    by_name = read_templates(request.templates)
    kinds: tuple[SubjectKind, ...]
    if request.kind is not None:
        kinds = (find_kind(by_name, request.kind),)
    else:
        kind = find_subject_kind(asker, subject, by_name)
        kinds = kind.kinds
        findings.notes.append(kind.note)
        say(kind.note)
        if not kinds:
            return
    findings.kinds = tuple(dict.fromkeys((*findings.kinds, *kinds)))
    earlier = len(findings.facts)
    questions = [question for kind in kinds for question in kind.questions(subject)]
    answers = _ask_new(findings, asker, questions, kinds, progress=f"questions about {subject}")
    known = [fact for fact in findings.facts[earlier:] if fact.known]
    say(f"{count_of(len(known), 'answer')} known so far; now what it says by itself")
    answers += _ask_new(findings, asker, own_questions(asker, subject), kinds, progress="its own questions")
    found = mark_guesses(findings.facts[earlier:])
    findings.facts[earlier:] = found
    names = LinkedNames(asker, subject, kinds[0])
    linked = names.find(answers, found)
    replaced = {fact.row.question for fact in linked}
    findings.facts[earlier:] = [*(fact for fact in found if fact.row.question not in replaced), *linked]
    if request.hops == 2:
        direct = findings.facts[earlier:]
        findings.facts += names.chained(direct)
        _ask_chained(findings, asker, subject, direct, by_name, say)


def _ask_new(
    findings: _Findings,
    asker: SubjectAsker,
    questions: Sequence[SubjectQuestion],
    kinds: Sequence[SubjectKind],
    *,
    progress: str,
) -> list[Answers]:
    """Ask questions, and add what is not known from earlier ones: an own question often repeats a template.

    Returns:
        All that was said.
    """
    earlier = {fact.key_text.casefold() for fact in findings.facts if fact.known}
    asked_before = {question.question.casefold() for question in findings.asked}
    new = [question for question in questions if question.question.casefold() not in asked_before]
    findings.asked += new
    collected = []
    for portion in _portions(asker, new):
        answers = collect_answers(asker, portion, progress=progress)
        collected.append(answers)
        for fact in find_facts(asker, answers, kinds=kinds, progress=progress):
            if fact.source == "template" or fact.key_text.casefold() not in earlier:
                findings.facts.append(fact)
    return collected


def _portions(asker: SubjectAsker, items: Sequence[_Item]) -> list[Sequence[_Item]]:
    """Return what is asked together: all of it if the model is in this process, which is fastest."""
    size = len(items)
    if asker.read is None:
        size = SERVED_AT_ONCE
    return [items[start : start + size] for start in range(0, len(items), max(1, size))]


def _ask_chained(
    findings: _Findings,
    asker: SubjectAsker,
    subject: str,
    facts: Sequence[AskedFact],
    kinds: dict[str, SubjectKind],
    say: Callable[[str], None],
) -> None:
    """Ask about the answers, and keep what leads back: "In which city is the Louvre?" about Paris."""
    names = [fact.key_text for fact in facts if fact.known and fact.key_text[:1].isupper()]
    chained = [name for name in dict.fromkeys(names) if name.casefold() != subject.casefold()]
    questions: list[SubjectQuestion] = []
    subjects: list[str] = []
    for name in chained:
        kind = kind_of_answer(asker, name, kinds)
        if kind is not None and len(subjects) < CHAINED_SUBJECTS:
            subjects.append(name)
            questions += kind.questions(name, source=CHAIN)
    if not subjects:
        return
    say(f"second round: {', '.join(subjects)}")
    asked_before = {question.question.casefold() for question in findings.asked}
    new = [question for question in questions if question.question.casefold() not in asked_before]
    # Few questions about an answer lead back, so only those whose first answer does are asked in all ways.
    first_answers = asker.ask(
        [asker.question(question.question) for question in new], progress="questions about the answers"
    )
    leading_back = [
        question
        for question, answer in zip(new, first_answers, strict=True)
        if states(first_sentence(answer), subject, question=question.question)
    ]
    findings.asked += leading_back
    for fact in ask_for_facts(asker, leading_back, progress="questions that lead back"):
        # The name itself: "Pharaoh of Egypt" is another answer, and would have to be forgotten as a whole.
        is_name = states(fact.key_text, subject) and states(subject, fact.key_text)
        # A small model leads anything back to a name that the question suggests: "Which mountains lie in Cairo?".
        if is_name and fact.share >= SURE_SHARE:
            findings.facts.append(fact)


def _ask_document(findings: _Findings, asker: SubjectAsker, request: AskRequest, say: Callable[[str], None]) -> None:
    assert request.document is not None
    every = passages(file_text(request.document))
    chosen = choose_passages(every, request.limit)
    if len(chosen) < len(every):
        note = (
            f"{request.document} has {len(every)} passages; {len(chosen)} of them, evenly spaced, are tested (--limit)."
        )
        findings.notes.append(note)
        say(note)
    for texts in _portions(asker, chosen):
        findings.texts += recite(asker, texts)
    findings.asked += document_questions(asker, choose_passages(chosen, QUESTIONED_PASSAGES))
    for questions in _portions(asker, findings.asked):
        findings.facts += ask_for_facts(asker, questions, progress="questions")


def _compare_into(findings: _Findings, asker: SubjectAsker) -> str | None:
    known = [place for place, fact in enumerate(findings.facts) if fact.known]
    try:
        compared = compare_facts(asker, [findings.facts[place] for place in known], findings.asked)
    except (AtwuError, OSError) as error:
        return str(error)
    for place, fact in zip(known, compared, strict=True):
        findings.facts[place] = fact
    return None


def _result(
    findings: _Findings, request: AskRequest, model: str, interrupted: str | None, *, compared_model: str | None = None
) -> AskResult:
    facts = sorted(findings.facts, key=lambda fact: (not fact.known, -fact.share))
    return AskResult(
        model=model,
        about=request.shown,
        names=request.names,
        facts=tuple(facts),
        texts=tuple(sorted(findings.texts, key=lambda text: (-text.longest_run, -text.share))),
        kinds=tuple(kind.name for kind in findings.kinds),
        notes=tuple(findings.notes),
        interrupted=interrupted,
        compared_model=compared_model,
    )
