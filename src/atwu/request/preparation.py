"""Prepare a request: choose settings, build the retain set, evaluate the original model, and record all three."""

from __future__ import annotations

import dataclasses
import gc
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from atwu._cache import key_differences
from atwu._files import file_digest
from atwu._manifest import RECORD_NAME
from atwu.benchmarks.base import LoadedRows
from atwu.benchmarks.sources import absolute_source, load_rows
from atwu.data.passages import has_wording
from atwu.data.question_forms import read_forms
from atwu.data.schema import Example
from atwu.evaluation.backends import TransformersGenerator
from atwu.evaluation.columns import FORGET
from atwu.evaluation.facts.fact_table import GENERAL
from atwu.evaluation.metrics.key_tokens import known_probabilities
from atwu.modeling.device import free_memory
from atwu.modeling.layers import bfloat16_weights
from atwu.modeling.load import model_fingerprint
from atwu.modeling.open_model import ModelLoadArgs, open_model
from atwu.request.auto_settings import (
    LENGTH_OPTIONS,
    RATE_OPTION,
    Choice,
    StrategyEstimate,
    batch_of,
    batch_size,
    choose,
    chooses_method,
    first_that_fits,
    is_expert_run,
    method_choices,
    strategy_estimates,
)
from atwu.request.earlier_requests import not_asked
from atwu.request.goal_evaluations import measure_chance
from atwu.request.measurement import (
    RowEncoding,
    ask_model,
    general_answers,
    measured_sets,
    states_own_question,
)
from atwu.request.related_questions import related_rows
from atwu.request.related_texts import texts_to_keep
from atwu.request.request_folder import RequestFolder, RequestRecord, RowsUsed, utc_now
from atwu.request.retain_set import build_retain
from atwu.request.row_facts import ModelReader, RowFact, in_brackets, mark_facts, with_facts
from atwu.request.screen import shorten, wrap_text
from atwu.request.self_generated_rows import self_generated_forget_rows, self_generated_retain_rows
from atwu.request.text_wording import count_facts, measure_text_chance, unseen_wordings
from atwu.request.unlearning_request import UnlearningRequest, UnlearnResult
from atwu.request.verdict import decide, nothing_to_forget
from atwu.training.config import UnlearnConfig
from atwu.training.load_to_train import ModelSource, load_checked_tokenizer
from atwu.training.progress import Say
from atwu.training.row_sets import check_no_overlap
from atwu.training.run_folder import RunFolder
from atwu.training.unlearn_run import check_run

FACTS_SHOWN = 3
"""Forget rows that are shown with their facts before training."""
MOST_CHARS_PER_TOKEN = 32
"""Characters of an answer for each token that is read of a row, at most. A token of a text has about four, so that of a longer
answer less than an eighth would be unlearned; and to find its facts takes minutes."""


@dataclass(slots=True)
class PreparedRequest:
    """A request that is ready for training, or trained."""

    sets: Mapping[str, Sequence[Example]]
    generated_retain: Sequence[Example] | None
    """Self-generated retain rows; None if rows were given or the method needs none."""
    record: RequestRecord
    forget: LoadedRows
    """The forget rows, with their facts marked."""
    model: Any = None
    """The original model, to be trained in place. None if it has to be loaded: for quantized weights, which are other weights;
    in several processes, of which only the first one measures; and in a request that was begun by another process."""

    def take_model(self) -> Any:
        """Return the model, which is no longer kept here: the original one may need its memory."""
        model, self.model = self.model, None
        return model


@dataclass(frozen=True, slots=True)
class _OriginalModel:
    """The original model with what reads and asks it."""

    network: Any
    tokenizer: Any
    fingerprint: str
    generator: TransformersGenerator
    read: ModelReader


@dataclass(frozen=True, slots=True)
class _WrittenRows:
    """The rows of a request, with what the original model wrote about them."""

    forget: tuple[Example, ...]
    """Forget rows with their facts marked, and with alternatives."""
    retain: Sequence[Example]
    """Retain rows, given or written; empty if the method needs none."""
    generated: Sequence[Example] | None
    """The same if the model wrote them; None if rows were given or the method needs none."""
    own_answers: tuple[Example, ...]
    """Rows of the retain set that the model wrote, beside given ones, too."""
    related: int
    """Number of these at the end that are about related subjects."""
    general: Sequence[Example]
    """General questions with the model's answers, which are only measured."""


def prepare(
    request: UnlearningRequest, folder: RunFolder, config: UnlearnConfig, *, say: Say
) -> PreparedRequest | UnlearnResult:
    """Continue a request that was begun, or prepare a new one; return the result if there is nothing to forget.

    Raises:
        ValueError, FileNotFoundError, FileExistsError, OSError: see the message; nothing was changed.
    """
    key = request.key(config)
    _check_sets(request)
    _check_lengths(request, config.max_length)
    files = RequestFolder(folder.work)
    if _resumes(folder, files, key, asked=request.asked is not None):
        return _resume(request, files, say)
    methods = method_choices(request.options, request.rows)
    config = UnlearnConfig(**chosen_options(request, methods))
    fitted = fitting_strategy(request, methods, config.device)
    original = _open_original(request, config, say)
    choices = methods + choose(
        chosen_options(request, methods),
        recipe=config.recipe(),
        rows=len(request.rows),
        hidden=int(original.network.config.get_text_config().hidden_size),
        self_generated_answers=request.retain_rows is None,
        device=config.device,
        fitted=fitted,
        auto_memory=request.auto_memory,
    )
    for line in settings_shown(choices):
        say(line)
    training = UnlearnConfig(**chosen_options(request, choices))
    check_run(request.source, training, folder, tokenizer=original.tokenizer)
    written = _write_rows(request, training, original, say)
    sets = measured_sets(written.forget, written.retain, request.holdout_rows, written.general, chained=request.chained)
    if not _asks_for_training(request):
        nothing = _nothing_to_forget(request, original, sets, RowEncoding(config.system, config.max_length), say)
        if nothing is not None:
            shutil.rmtree(files.path, ignore_errors=True)
            return nothing
    text_chance = measure_text_chance(unseen_wordings(written.forget, request.holdout_rows), original.read)
    choices += _further_rows(request, training, original, written, say)
    record = RequestRecord(
        prepared_at=utc_now(),
        request_note=request.request_note,
        command=request.command(),
        key=key,
        model=str(request.source.model),
        fingerprint=original.fingerprint,
        forget=RowsUsed.of(absolute_source(request.forget), request.rows, with_ids=True),
        retain=RowsUsed.of(absolute_source(request.retain), tuple(written.retain)) if written.retain else None,
        holdout=RowsUsed.of(absolute_source(request.holdout), request.holdout_rows),
        max_retain_increase=request.max_retain_increase,
        system=config.system,
        max_length=config.max_length,
        choices=choices,
        facts=tuple(map(RowFact.of, written.forget)),
        known=tuple(known_probabilities(written.forget, original.read.logps)),
        question_chance=measure_chance(request.holdout_rows, original.read),
        text_chance=text_chance,
        earlier=tuple(past.request for past in request.earlier),
        replaced_run_digest=_digest_of_run(folder),
    )
    model = _model_to_train(original.network, config, training)
    del original
    gc.collect()
    files.begin(record, sets[GENERAL], written.generated)
    return PreparedRequest(sets, written.generated, record, _marked(request, written.forget), model)


def _nothing_to_forget(
    request: UnlearningRequest,
    original: _OriginalModel,
    sets: Mapping[str, Sequence[Example]],
    row_encoding: RowEncoding,
    say: Say,
) -> UnlearnResult | None:
    """Return the result of a request about facts that the original model does not know, else None.

    A fact that is stated to its own question settles it. All other questions wait until training has ended, as the answers of
    the original model are only compared with those of the unlearned one.
    """
    if states_own_question(original.generator, sets[FORGET], row_encoding):
        return None
    say(f"nothing is said as written; asking the original model in all ways about {count_facts(sets[FORGET])}")
    said = ask_model(original.generator, sets, row_encoding, progress="original model")
    if not nothing_to_forget(said):
        return None
    verdict = decide(said, None, max_retain_increase=request.max_retain_increase, retain_loss_increase=None)
    return UnlearnResult(verdict, None, said, None)


def _check_sets(request: UnlearningRequest) -> None:
    """Check that no row is to be forgotten and kept, or to be forgotten and never seen.

    Raises:
        ValueError: a row is; the message names it.
    """
    further = request.options.get("further_forget")
    removed = tuple(request.rows)
    if further:
        removed += tuple(load_rows(further).rows)
    again = "is in the forget set, too"
    check_no_overlap(request.holdout_rows, removed, source=request.holdout, why=again, option="--holdout")
    if request.retain_rows is None:
        return
    check_no_overlap(request.retain_rows, removed, source=request.retain, why=again)
    before = "was in the forget set of an earlier request"
    check_no_overlap(request.retain_rows, request.earlier_rows, source=request.retain, why=before)


def _check_lengths(request: UnlearningRequest, max_length: int) -> None:
    """Check that no answer is far longer than what is read of it.

    Raises:
        ValueError: one is; the message names the row.
    """
    for number, row in enumerate(request.rows, start=1):
        if len(row.answer) > MOST_CHARS_PER_TOKEN * max_length:
            raise ValueError(
                f"{request.forget}: the answer of row {number} has {len(row.answer):,} characters, of which only {max_length} "
                "tokens are read. Write one fact a row; a document is given as a .txt file, which is cut into passages."
            )


def _open_original(request: UnlearningRequest, config: UnlearnConfig, say: Say) -> _OriginalModel:
    """Load the original model, and say which requests it has behind it."""
    network, tokenizer = open_model(str(request.source.model), request.source, device=config.device)
    say(f"model {request.source.model}: {network.num_parameters() / 1e6:.3g}M parameters on {config.device}")
    fingerprint = model_fingerprint(network)
    if request.earlier:
        say(f"earlier requests on this model: {len(request.earlier)}; their facts must not come back")
        for line in not_asked(request.earlier):
            say(f"  cannot be asked again: {line}")
    generator = TransformersGenerator(network, tokenizer, fingerprint=fingerprint)
    read = ModelReader(generator, system=config.system, max_length=config.max_length)
    return _OriginalModel(network, tokenizer, fingerprint, generator, read)


def _adds_rows(request: UnlearningRequest) -> bool:
    """Whether rows that the model writes join the given retain rows."""
    return chooses_method(request.options) and "further_retain" not in request.options


def _write_rows(
    request: UnlearningRequest, training: UnlearnConfig, original: _OriginalModel, say: Say
) -> _WrittenRows:
    """Mark the facts of the forget rows, and let the original model write the retain set and what is measured beside it."""
    read, system, earlier = original.read, training.system, request.earlier_rows
    unseen = [row for row in request.holdout_rows if has_wording(row)]
    writes = request.retain_rows is None or _adds_rows(request)
    with bfloat16_weights(original.network, training.bf16):
        forget = mark_facts(request.rows, read, unseen=unseen)
        for line in facts_shown(forget):
            say(line)
        about = related_rows(read, forget, earlier=earlier, train=writes, among=request.related_names, system=system)
        texts: tuple[Example, ...] = ()
        if writes:
            texts = texts_to_keep(read, forget, earlier=earlier)
        forget = tuple(
            dataclasses.replace(row, alternatives=row.alternatives or alternatives)
            for row, alternatives in zip(forget, about.alternatives, strict=True)
        )
        own_answers: tuple[Example, ...] = ()
        recipe = training.recipe()
        if recipe.reads_retain and writes:
            whole = recipe.retain_loss == "nll"  # trains on the end of rows
            general, _ = build_retain(original.generator, (*forget, *earlier), whole=whole, system=system)
            asked_already = {row.messages for row in about.kept}
            general = tuple(row for row in general if row.messages not in asked_already)
            own_answers = (*general, *texts, *about.kept)
            say(_describe_retain(request, len(general), len(texts), len(about.kept)))
        answers = general_answers(original.generator, forget, system=system)
    retain: Sequence[Example] = ()
    generated: Sequence[Example] | None = None
    if recipe.reads_retain:
        retain = request.retain_rows or own_answers
        if request.retain_rows is None:
            generated = own_answers
    return _WrittenRows(forget, retain, generated, own_answers, len(about.kept), answers)


def _describe_retain(request: UnlearningRequest, general: int, texts: int, related: int) -> str:
    answers = f"the model's answers to {general} general questions and {related} questions about related subjects"
    if texts:
        answers = f"{texts} other texts, {answers}"
    if request.retain_rows is not None:
        return f"retain set: your rows, {answers}"
    return f"retain set: {answers} (--retain FILE for further rows of your own)"


def _further_rows(
    request: UnlearningRequest,
    training: UnlearnConfig,
    original: _OriginalModel,
    written: _WrittenRows,
    say: Say,
) -> tuple[Choice, ...]:
    """Return what the original model says in the forms of the rows, as further rows, where the method is automatic."""
    if not chooses_method(request.options):
        return ()
    forms, system = read_forms(training.forms), training.system
    further: tuple[Choice, ...] = ()
    with bfloat16_weights(original.network, training.bf16):
        if "further_forget" not in request.options:
            further += self_generated_forget_rows(
                original.generator, written.forget, forms=forms, system=system, about_answers=request.trained_chained
            )
        if written.own_answers and _adds_rows(request):
            further += self_generated_retain_rows(
                original.generator,
                written.own_answers,
                of=written.related,
                forget=(*written.forget, *request.earlier_rows),
                further=() if request.retain_rows is None else written.own_answers,
                forms=forms,
                system=system,
            )
    for choice in further:
        say(f"{choice.name.replace('_', ' ')} rows: {choice.reason}")
    return further


def _model_to_train(network: Any, config: UnlearnConfig, training: UnlearnConfig) -> Any:
    """Return the original model if training can change it in place, else None."""
    alone = config.world_size == 1 and training.quantize is None and not getattr(network, "is_quantized", False)
    if not alone:
        return None
    return network.cpu()  # new adapters draw their weights where the model is


def _digest_of_run(folder: RunFolder) -> str | None:
    """Return the digest of the record of the run that this one replaces, if there is one."""
    record = folder.path / RECORD_NAME
    if not record.is_file():
        return None
    return file_digest(record)


def _asks_for_training(request: UnlearningRequest) -> bool:
    """Whether the options say how long or how fast to train, so that even a model that knows nothing is trained."""
    return any(name in request.options for name in (RATE_OPTION, *LENGTH_OPTIONS))


def fitting_strategy(request: UnlearningRequest, methods: Sequence[Choice], device: torch.device) -> StrategyEstimate:
    """Return the first memory strategy that fits, before any weights are read.

    Args:
        methods: the chosen method (`method_choices`).

    Raises:
        ValueError: none fits.
    """
    options = chosen_options(request, methods)
    options["per_device_train_batch_size"] = batch_size(request.options, len(request.rows))
    tokenizer = load_checked_tokenizer(request.source)
    adds = chooses_method(request.options)
    lengths = batch_of(request.rows, request.retain_rows, UnlearnConfig(**options), tokenizer, adds=adds)
    chooses = request.auto_memory or not is_expert_run(options)
    free = free_memory(device)
    estimates = strategy_estimates(request.source, options, lengths, device=device.type, free=free, chosen=chooses)
    return first_that_fits(estimates, device=device.type)


def _resumes(folder: RunFolder, files: RequestFolder, key: Mapping[str, Any], *, asked: bool) -> bool:
    """Whether this same request was begun here and continues; what another one left is removed.

    Args:
        asked: this request has rows here that the original model said.

    Raises:
        FileExistsError: another request has training results.
    """
    before = files.key()
    if not folder.overwrite:
        if before == key:
            return True
        if folder.has_results():
            raise FileExistsError(
                f"{folder.work} holds an unfinished request that differs in "
                f"{', '.join(key_differences(before or {}, key))}; repeat its "
                "command to finish it, or pass --overwrite to discard it."
            )
    files.clear(keep_asked=asked)
    folder.clear()
    return False


def _resume(request: UnlearningRequest, files: RequestFolder, say: Say) -> PreparedRequest:
    record, generated = files.request(), files.rows("retain")
    kept = () if record.retain is None else request.retain_rows or generated or ()
    say(f"resuming the request prepared at {record.prepared_at}")
    for line in settings_shown(record.choices):
        say(line)
    rows = with_facts(request.rows, record.facts)
    sets = measured_sets(rows, kept, request.holdout_rows, files.rows("general") or (), chained=request.chained)
    return PreparedRequest(sets, generated, record, _marked(request, rows))


def _marked(request: UnlearningRequest, rows: Sequence[Example]) -> LoadedRows:
    return dataclasses.replace(request.forget_set, rows=rows, warnings=())  # `run_request` has said them


def settings_shown(choices: Sequence[Choice]) -> list[str]:
    """Return the chosen settings in a few lines, without their reasons."""
    title = f"{len(choices)} settings are chosen; the reasons are in request/request.json of the output folder:"
    return [title, *wrap_text(" ".join(map(str, choices)), "  ", "  ")]


def facts_shown(rows: Sequence[Example]) -> list[str]:
    """Return some forget rows with what is taken as their fact in brackets, to be checked before training."""
    lines: list[str] = []
    asked = [row for row in rows if row.messages and row.forget_spans]
    if asked:
        shown = asked[:FACTS_SHOWN]
        title = (
            f"taken as the fact (in brackets; a column forget_spans overrides it), {len(shown)} of {len(asked)} rows:"
        )
        lines += [title, *(f"  {shorten(in_brackets(row))}" for row in shown)]
    texts = [row for row in rows if row.chance_run is not None]
    if texts:
        by_heart = [row for row in texts if row.forget_spans]
        shown = by_heart[:FACTS_SHOWN]
        lines.append(
            f"known by heart (words in brackets) of {len(by_heart)} of {len(texts)} texts; a run of more than "
            f"{texts[0].chance_run} words is recited, since texts it never saw have up to that many, {len(shown)} of them:"
        )
        lines += [f"  {shorten(in_brackets(row))}" for row in shown]
    return lines


def chosen_options(request: UnlearningRequest, choices: Sequence[Choice]) -> dict[str, Any]:
    return {**{choice.name: choice.value for choice in choices}, **request.options}


def after_loading(source: ModelSource) -> ModelLoadArgs:
    """Return how to load the model that a run left; adapters name their base."""
    return ModelLoadArgs(dtype=source.dtype, trust_remote_code=source.trust_remote_code)
