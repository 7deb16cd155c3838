"""`atwu rows`: commands that write a file of rows (forms, alternates, retain, paraphrases, labels)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from atwu._files import check_writable
from atwu.cli.cli_options import cli_option
from atwu.cli.shared import ROWS_HELP, open_rows, say
from atwu.judge.open_judge import EstimatedJudgeOptions
from atwu.modeling.open_model import ModelLoadArgs

if TYPE_CHECKING:
    from atwu.data.schema import Example

ORIGINAL_MODEL = "Original model: folder, Hub name, smollm2, or a .gguf file."
LIMIT = "Maximum number of rows, evenly spaced. Default: all rows."
PREVIEW_ROWS = 3


@dataclass(kw_only=True)
class _WritesRows:
    """Base of commands that write rows."""

    output: Path = cli_option("JSONL file to write.", alias=("-o",))
    overwrite: bool = cli_option("Replace --output if it exists.", False)

    def run(self) -> None:
        """Check the output, and write the rows that `rows` returns, if any."""
        from atwu.data.row_parsing import write_rows

        # Before rows are generated or paid for.
        check_writable(self.output, overwrite=self.overwrite)
        if self.output.suffix != ".jsonl":
            raise ValueError(f"--output must end in .jsonl, got {self.output}.")
        rows = self.rows()
        if rows is None:
            return
        write_rows(self.output, rows)
        say(f"written: {self.output}")

    def rows(self) -> Sequence[Example] | None:
        """Make the rows and print what they are; None if only the cost estimate is wanted."""
        raise NotImplementedError


@dataclass(kw_only=True)
class RowsRetainCommand(_WritesRows):
    """Build a retain set: the closest rows of a corpus, and self-generated answers of the model to general questions.

    Corpus rows are those closest to the forget rows in topic that name none of their subjects and repeat none of them.
    Questions are shipped; answers are those of the model, whether right or wrong.

    Example: atwu rows retain --model smollm2 --forget mine.jsonl --corpus faq.jsonl --output retain.jsonl
    """

    model: str = cli_option(ORIGINAL_MODEL, alias=("-m",))
    forget: str = cli_option(f"Forget rows: {ROWS_HELP}.")
    corpus: str | None = cli_option(f"Corpus to select rows from: {ROWS_HELP}. Default: none.", None)
    count: int = cli_option("Maximum number of rows from the corpus.", 200, least=1)
    system: str | None = cli_option("System prompt that the model was trained with.", None)
    loading: ModelLoadArgs = cli_option("", group="Loading the model", common=False)

    def rows(self) -> Sequence[Example]:
        from atwu.evaluation.backends import TransformersGenerator
        from atwu.modeling.open_model import open_model
        from atwu.request.retain_set import build_retain

        forget, corpus = open_rows(self.forget), open_rows(self.corpus)
        rows, counts = build_retain(
            TransformersGenerator(*open_model(self.model, self.loading)),
            forget,
            corpus=corpus,
            count=self.count,
            system=self.system,
        )
        for name, number in counts.items():
            say(f"{name:<{max(map(len, counts))}}{number:>6}")
        return rows


@dataclass(kw_only=True)
class RowsAlternatesCommand(_WritesRows):
    """Write alternates of forget rows: plausible false answers for `--method altpo`, vague ones for `--method relearn`.

    Answers are sampled at temperature 1; those that say a key token of the row's answer are dropped. Read the file before
    training: an alternate may be odd, or a paraphrase of the true answer.

    Example: atwu rows alternates --model smollm2 --forget mine.jsonl --output alternates.jsonl
    """

    model: str = cli_option(ORIGINAL_MODEL, alias=("-m",))
    forget: str = cli_option(f"Forget rows: {ROWS_HELP}.")
    kind: str = cli_option(
        "Alternates to write: false, or vague ones, also for the paraphrases of a row.",
        "false",
        choices=("false", "vague"),
    )
    count: int = cli_option("Alternates per question.", 5, least=1)
    attempts: int = cli_option("Times that what a question still lacks is sampled.", 4, least=1)
    seed: int = cli_option("Seed of the samples.", 0, least=0)
    loading: ModelLoadArgs = cli_option("", group="Loading the model", common=False)

    def rows(self) -> Sequence[Example]:
        from atwu.modeling.open_model import open_model
        from atwu.request.self_generated_rows import alternate_answers

        rows = alternate_answers(
            *open_model(self.model, self.loading),
            open_rows(self.forget),
            kind=self.kind,
            count=self.count,
            attempts=self.attempts,
            seed=self.seed,
        )
        # A question with no alternate stays in the file, to be filled by hand.
        lacking = dict.fromkeys(row.question for row in rows if row.alternate is None)
        questions = len({row.question for row in rows})
        say(f"{len(rows) - len(lacking)} alternates for {questions - len(lacking)} of {questions} questions")
        for question in lacking:
            say(f"no alternate, write one yourself: {question}")
        return rows


@dataclass(kw_only=True)
class RowsFormsCommand(_WritesRows):
    """Write rows in several forms of their question: blanks, completions, multiple choice, role play and more.

    `atwu unlearn --forms auto` trains on such rows without this command; use it to read them, or to edit them before training.
    The forms are written by rule, without a model.

    Example: atwu rows forms --data forget.jsonl --output forms.jsonl
    """

    data: str = cli_option(f"Rows to write: {ROWS_HELP}.", alias=("-d",))
    forms: str = cli_option(
        "Forms: auto (those that atwu unlearn trains on), all, or names such as question,blank.", "auto"
    )

    def rows(self) -> Sequence[Example]:
        from atwu.data.form_rows import check_no_forms, describe_missing_forms, missing_forms, rows_in_forms
        from atwu.data.question_forms import FORMS, read_forms

        forms = tuple(FORMS) if self.forms == "all" else read_forms(self.forms)
        if not forms:
            raise ValueError("--forms none writes nothing; give auto, all, or names such as question,blank.")
        rows = open_rows(self.data)
        # Written in all forms, the wanted ones first, so that rows which are forms already are recognized.
        every = rows_in_forms(rows, tuple(dict.fromkeys((*forms, *FORMS))))
        check_no_forms(rows, every, what=self.data)
        written = [form_row for form_row in every if form_row.form in forms]
        for form, number in Counter(form_row.form for form_row in written).items():
            say(f"{form:<18}{number:>6}")
        missing = describe_missing_forms(missing_forms(rows, forms), of=len(rows))
        if missing:
            say(missing)
        return [form_row.row for form_row in written]


@dataclass(frozen=True, kw_only=True)
class Paraphraser(EstimatedJudgeOptions):
    """Judge options of paraphrasing, which needs a model."""

    judge: str = cli_option("openai:MODEL (any OpenAI-compatible server).", group="Judge")


@dataclass(kw_only=True)
class RowsParaphrasesCommand(_WritesRows):
    """Paraphrase each question with a language model, and keep the paraphrases that pass the checks.

    A paraphrase is dropped if it reveals the answer, loses a name or number of the question, or repeats another one.
    Create paraphrases once and keep the file: scores over paraphrases are comparable only on the same paraphrases.

    Example: atwu rows paraphrases --data forget.jsonl --judge openai:my-model --count 5 --output forget-paraphrased.jsonl
    """

    data: str = cli_option(f"Rows to paraphrase: {ROWS_HELP}.", alias=("-d",))
    count: int = cli_option("Paraphrases per question.", 5, least=1)
    check_meaning: bool = cli_option("Ask the model whether each paraphrase has the meaning of the question.", True)
    limit: int | None = cli_option(LIMIT, None, least=1)
    judging: Paraphraser

    def rows(self) -> Sequence[Example] | None:
        from atwu.judge.open_judge import open_asker
        from atwu.judge.written_rows import estimate_paraphrases, write_paraphrases

        asker = open_asker(self.judging, what="model")
        rows = open_rows(self.data, limit=self.limit)
        if self.judging.estimate:
            estimate = estimate_paraphrases(rows, asker, count=self.count, check_meaning=self.check_meaning)
            say(f"{self.judging.judge}: {estimate}")
            return None
        paraphrased = write_paraphrases(rows, asker, count=self.count, check_meaning=self.check_meaning)
        say(paraphrased)
        return paraphrased.rows


@dataclass(kw_only=True)
class RowsLabelsCommand(_WritesRows):
    """Label the words of each answer that carry its fact (column forget_spans), for methods that need labels.

    A model names the parts of an answer that cannot be guessed from the question; parts that are not in the answer are
    dropped. The offline rule (names and numbers that are not in the question) needs no model but is less accurate.
    Existing labels are kept. Check the labels before training on them.

    Example: atwu rows labels --data forget.jsonl --judge openai:my-model --output labelled.jsonl
    """

    data: str = cli_option(f"Rows to annotate: {ROWS_HELP}.", alias=("-d",))
    limit: int | None = cli_option(LIMIT, None, least=1)
    judging: EstimatedJudgeOptions

    def rows(self) -> Sequence[Example] | None:
        from atwu.data.fact import key_token_spans
        from atwu.judge.open_judge import check_offline, open_asker
        from atwu.judge.written_rows import annotate_by_rule, annotate_rows, estimate_annotation

        asker = None
        if self.judging.judge == "offline":
            check_offline(self.judging)
        else:
            asker = open_asker(self.judging, what="annotator")
        rows = open_rows(self.data, limit=self.limit)
        if self.judging.estimate:
            cost: object = "nothing to send"
            if asker:
                cost = estimate_annotation(rows, asker)
            say(f"{self.judging.judge}: {cost}")
            return None
        if asker:
            annotated = annotate_rows(rows, asker)
        else:
            annotated = annotate_by_rule(rows, key_token_spans)
        for row in annotated.rows[:PREVIEW_ROWS]:
            text = row.answer
            for start, end in reversed(row.forget_spans or ()):  # from the end, so that earlier places stay valid
                text = f"{text[:start]}[{text[start:end]}]{text[end:]}"
            say(f"  {row.question} {text}".rstrip())
        say(annotated)
        return annotated.rows
