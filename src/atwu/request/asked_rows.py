"""Forget rows of a request that gives names or questions: the original model is asked what it says, once, before training.

The rows are written into the request's folder, so that a run that continues does not ask again. Other ways to write a question
are its row's paraphrases, and half of the questions about the answers are kept apart: both are measured, and never trained on.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from atwu._cache import run_key
from atwu._file_reading import file_text
from atwu._files import file_digest
from atwu.benchmarks.base import LoadedRows
from atwu.data.records import is_document, is_list_of_questions
from atwu.data.schema import Example
from atwu.errors import AtwuError
from atwu.evaluation.backends import TransformersGenerator
from atwu.modeling.open_model import open_model
from atwu.modeling.tokenizer_file import template_text
from atwu.request.asking.ask import AskRequest, ask_with
from atwu.request.asking.ask_result import AskResult, facts_lines
from atwu.request.asking.subject_asker import SubjectAsker
from atwu.request.asking.subject_templates import find_kind, read_templates
from atwu.request.request_folder import RequestFolder
from atwu.request.row_facts import ModelReader
from atwu.training.config import UnlearnConfig
from atwu.training.load_to_train import ModelSource
from atwu.training.progress import Say
from atwu.training.run_folder import RunFolder, output_path

PERSON = "person"
"""Kind of subjects that is compared with its own kind alone: a model knows other things of countries than of people."""
SHOWN_FACTS = 15
"""Facts that are shown before training; the file has all."""


@dataclass(frozen=True, slots=True)
class AskedSource:
    """What a request gives in place of rows: names, or a file with one question a line."""

    names: tuple[str, ...] = ()
    questions: Path | None = None
    kind: str | None = None
    """What the names are; None if the model is to say."""

    @property
    def key(self) -> dict[str, Any]:
        """What identifies it, as plain JSON."""
        if self.questions is not None:
            return {"questions": file_digest(self.questions)}
        return {"about": list(self.names), "kind": self.kind}

    @property
    def options(self) -> dict[str, Any]:
        """The options of a command that gives it."""
        if self.questions is not None:
            return {"forget": str(self.questions)}
        return {"about": ", ".join(self.names), "kind": self.kind}

    def inputs(self) -> dict[str, str | Path | None]:
        """Return the file that it reads."""
        return {"questions": self.questions}


@dataclass(frozen=True, slots=True)
class AskedRows:
    """What the original model said."""

    source: AskedSource
    forget: LoadedRows
    """The forget rows; their source is the file in the finished run."""
    chained: Sequence[Example] = ()
    """Questions about their answers that lead back to a name; `subject` is the answer. They are only measured."""
    trained_chained: Sequence[Example] = ()
    """Other such questions, which are further forget rows."""
    like: tuple[str, ...] = ()
    """Names with which the model's knowledge is compared: for a person those of other persons; empty for all."""


def asked_source(forget: Any, *, about: str | Sequence[str] | None, kind: str | None) -> AskedSource | None:
    """Return the names or the file of questions that a request gives; None if it gives rows.

    Raises:
        ValueError: neither or both of `forget` and `about` are given, one of them is empty, or the kind is unknown.
    """
    if (forget is None) == (about is None):
        problem = "nothing to forget"
        if about is not None:
            problem = "forget and about exclude each other"
        raise ValueError(f"{problem}; give forget (rows, or a file of questions) or about (a name).")
    if about is not None:
        if kind is not None:
            find_kind(read_templates(), kind)
        return AskedSource(names=AskRequest(about=about).names, kind=kind)
    if kind is not None:
        raise ValueError("kind has no effect without about.")
    if is_question_file(forget):
        return AskedSource(questions=Path(forget).expanduser())
    return None


def is_question_file(source: Any) -> bool:
    """Return whether a source is a text file whose lines all end with a question mark; another text file is a document."""
    if not isinstance(source, str | Path):
        return False
    path = Path(source).expanduser()
    return is_document(path) and path.is_file() and is_list_of_questions(file_text(path))


def model_key(source: ModelSource) -> dict[str, Any]:
    """Return what identifies the original model and how it is asked, as plain JSON."""
    key = dataclasses.asdict(source)
    if source.chat_template is not None:
        key["chat_template"] = template_text(source.chat_template)
    return key


def ask_for_rows(
    asked: AskedSource, source: ModelSource, config: UnlearnConfig, output: str | Path, *, overwrite: bool, say: Say
) -> AskedRows:
    """Return the rows of a request: those that it has asked for before, else what the model says now.

    Args:
        source: the original model.
        output: folder of the run. The rows are written into its request folder, `overwrite` replaces them.
        say: receives the table of what the model says.

    Raises:
        ValueError: the model says nothing stable; the message has the numbers. Nothing was written.
        FileExistsError, OSError: the output cannot be created.
    """
    options = {"system": config.system, "max_length": config.max_length}
    key = run_key("ask", options=options, model=model_key(source), rows={}, inputs={"asked": asked.key})
    finished = RequestFolder(output_path(output))
    if not overwrite and finished.asked_key() == key:
        return _recorded(asked, finished, finished)
    folder = RunFolder(output, overwrite=overwrite, inputs=source.inputs() | asked.inputs())
    files = RequestFolder(folder.work)
    with folder.alone():
        if overwrite or files.asked_key() != key:
            if not overwrite and folder.has_results():
                raise FileExistsError(
                    f"{folder.work} holds an unfinished request about something else; repeat its command to finish it, or "
                    "pass --overwrite to discard it."
                )
            result = _ask(asked, source, config, say)
            files.write_asked(result, key)
        else:
            say(f"forget rows: those that {source.model} said before, in {files.path}")
    return _recorded(asked, files, finished)


def _ask(asked: AskedSource, source: ModelSource, config: UnlearnConfig, say: Say) -> AskResult:
    what = ", ".join(asked.names) or f"the questions in {asked.questions}"
    if asked.names:
        # The second round finds the questions that are kept from training.
        request = AskRequest(about=asked.names, kind=asked.kind, hops=2)
    else:
        request = AskRequest(questions=asked.questions)
    say(f"asking {source.model} about {what}")
    network, tokenizer = open_model(str(source.model), source, device=config.device)
    generator = TransformersGenerator(network, tokenizer)
    reader = ModelReader(generator, system=config.system, max_length=config.max_length)
    asker = SubjectAsker(generator, system=config.system, read=reader)
    result = ask_with(asker, request, model=str(source.model), say=say)
    if result.interrupted is not None:
        raise AtwuError(result.interrupted)
    if not result.direct:
        raise ValueError(f"{result.summary()} Nothing was trained.")
    for line in facts_lines(result.direct, most=SHOWN_FACTS):
        say(line)
    if len(result.direct) > SHOWN_FACTS:
        say(f"and {len(result.direct) - SHOWN_FACTS} more")
    say(result.summary())
    return result


def _recorded(asked: AskedSource, files: RequestFolder, finished: RequestFolder) -> AskedRows:
    """Return the rows in a folder, named as in the finished run."""
    rows = files.rows("rows") or ()
    like: tuple[str, ...] = ()
    if files.asked_kinds() == (PERSON,):
        like = read_templates()[PERSON].other_names
    return AskedRows(
        asked,
        LoadedRows(rows, str(finished.rows_file)),
        chained=files.rows("chained") or (),
        trained_chained=files.rows("trained_chained") or (),
        like=like,
    )


def flags_of(asked: AskedRows | None, forget: str) -> Mapping[str, Any]:
    """Return the options that give the forget rows of a request."""
    if asked is None:
        return {"forget": forget}
    return asked.source.options
