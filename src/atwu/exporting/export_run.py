"""Run an export: check, measure the model of the run, write, load, measure the exported model, decide the verdict.

The verdict is that of a request (`atwu.request.verdict`): does the exported model state facts that the model of the run does
not, and what else did the export change?
"""

from __future__ import annotations

import gc
import os
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from rich.filesize import decimal

from atwu._command import command_line, program
from atwu._files import (
    atomic_sibling,
    check_output_folder,
    clear_atomic_siblings,
    explain_full_disk,
    plain_modes,
    sha256_of,
    versions,
    write_json,
)
from atwu._options import Option
from atwu.data.encode import Encoder
from atwu.data.row_parsing import fingerprint
from atwu.data.schema import Example
from atwu.errors import AtwuError
from atwu.evaluation.backends import TransformersGenerator
from atwu.evaluation.columns import FORGET, RETAIN
from atwu.evaluation.facts.fact_table import GENERAL, FactTable
from atwu.evaluation.teacher_forced import read_tokens
from atwu.exporting import EXPORT_FORMATS
from atwu.exporting.export_source import Source, read_source
from atwu.exporting.model_formats import check_format, same_tokens, write_export
from atwu.modeling.device import pick_device
from atwu.modeling.gguf_write import GGUF_TYPES
from atwu.modeling.load import (
    base_of,
    check_vocabulary,
    is_adapter,
    load_config,
    load_tokenizer,
    model_fingerprint,
    weight_bytes,
)
from atwu.modeling.open_model import ModelLoadArgs, open_model
from atwu.modeling.quantization import plain_weights, relative_change
from atwu.request.measurement import RowEncoding, ask_model, general_answers, measured_sets, untested
from atwu.request.request_defaults import MAX_RETAIN_INCREASE
from atwu.request.request_folder import RequestFolder
from atwu.request.screen import verdict_text
from atwu.request.verdict import (
    RequestVerdict,
    all_met,
    clearly_more,
    cost_criteria,
    fact_criteria,
    facts_forgotten,
    rule,
    sample_answers,
    state_counts,
)
from atwu.training.model_card import public_text
from atwu.training.progress import Say, logged
from atwu.training.run_folder import check_inputs_kept
from atwu.training.unlearn_run import rows_read

SAME = "as before export"
WITHIN = "a little comes back"
BACK = "what was forgotten comes back"
EXPORT_DAMAGED = "damaged by the export"
GOOD = (SAME, WITHIN)
_ADVICE = {
    BACK: "export with more bits, or unlearn further (raise --max-retain-increase)",
    EXPORT_DAMAGED: "export with more bits (8bit, or gguf with Q8_0)",
}


def judge_export(
    before: FactTable,
    after: FactTable,
    *,
    retain_loss_increase: float,
    max_retain_increase: float,
    notes: tuple[str, ...] = (),
    next_commands: tuple[str, ...] = (),
    not_tested: tuple[str, ...] = (),
) -> RequestVerdict:
    """Decide the verdict on an export.

    Args:
        before: what the model of the run said.
        after: what the exported model said to the same questions.
        notes: further sentences, such as how much the export changed the weights.
    """
    about_facts = fact_criteria(before, after)
    about_cost = cost_criteria(before, after, retain_loss_increase, max_retain_increase)
    outcome = _outcome(before.select(set=FORGET), after.select(set=FORGET), damaged=not all_met(about_cost))
    missed = [criterion.sentence for criterion in about_cost if not criterion.met]
    next_steps = next_commands
    if outcome not in GOOD:
        next_steps = (_ADVICE[outcome], *next_commands)
    return RequestVerdict(
        outcome=outcome,
        reason=" ".join((about_facts[0].sentence, *missed)),
        rule=rule(max_retain_increase),
        criteria=(*about_facts, *about_cost),
        states=state_counts(before.select(set=FORGET), after.select(set=FORGET)),
        leaks=after.select(set=FORGET).stating,
        samples=sample_answers(after),
        next_steps=next_steps,
        not_tested=not_tested,
        notes=notes,
    )


def _outcome(before: FactTable, after: FactTable, *, damaged: bool) -> str:
    """Return the outcome: facts came back if the rule held and does not any more, or clearly more answers state one."""
    earlier, now = before.count(), after.count()
    # A run that had not forgotten either does not lose its verdict by the export.
    if not facts_forgotten(after) and (facts_forgotten(before) or clearly_more(now, earlier)):
        return BACK
    if damaged:
        return EXPORT_DAMAGED
    if now.answers_stating > earlier.answers_stating:
        return WITHIN
    return SAME


EXPORT_NAME, EXPORT_SCHEMA = "export.json", "atwu.export/2"  # also what tells an export from another folder

Form = tuple[str, str, Path | None]
"""Format, GGUF type, and checkout of llama.cpp."""

_MAX_RETAIN_INCREASE = Option("max_retain_increase", float, MAX_RETAIN_INCREASE, least=0)


@dataclass(frozen=True, slots=True)
class Exported:
    model: Path
    """Path for `--model`."""
    verdict: RequestVerdict
    bytes: int
    """Size of all files in bytes."""

    @property
    def good(self) -> bool:
        """Whether forgotten rows stay forgotten at acceptable cost."""
        return self.verdict.outcome in GOOD

    def summary(self) -> str:
        return verdict_text(self.verdict)


def export(
    run: str | Path,
    format: str,
    *,
    output: str | Path | None = None,
    forget: str | None = None,
    retain: str | None = None,
    gguf_type: str = "Q8_0",
    llama_cpp: str | Path | None = None,
    max_retain_increase: float = MAX_RETAIN_INCREASE,
    loading: ModelLoadArgs | None = None,
    device: str | None = None,
    overwrite: bool = False,
    say: Say = logged,
) -> Exported:
    """Export the model of a run and measure the result; the same as `atwu export`.

    Args:
        run: folder of a run, with full weights or adapters, or of any model.
        format: one of `atwu.exporting.EXPORT_FORMATS`.
        output: folder to create; by default `RUN-FORMAT` in the same folder as the run.
        forget: source of the forget rows; by default those of the run.
        retain: source of the retain rows, likewise.
        gguf_type: GGUF type of the weight matrices.
        llama_cpp: checkout of llama.cpp whose converter writes the GGUF file.
        max_retain_increase: largest accepted increase of the retain loss, in nats/token.
        say: receives one line of plain text per stage.

    Raises:
        ValueError, FileNotFoundError, FileExistsError, ImportError, OSError: see the message; nothing was written.
        AtwuError: the loaded model differs from the written one.
        DiskFullError: the disk is full; the export was removed.
    """
    _MAX_RETAIN_INCREASE.value(max_retain_increase, strict=True)
    form = _checked_form(format, gguf_type, llama_cpp)
    source = read_source(run, loading or ModelLoadArgs())
    folder = source.path.with_name(f"{source.path.name}-{format}")
    if output:
        folder = Path(output).expanduser().absolute()
    _check_inputs_kept(folder, source, {"forget rows": forget, "retain rows": retain}, llama_cpp)
    _check_output(folder, source, overwrite=overwrite)
    # All checks that need no weights come first: what follows takes minutes and gigabytes.
    place = pick_device(device)
    config = load_config(str(source.path), **source.loading.load_kwargs)
    tokenizer = load_tokenizer(str(source.path), **source.loading.tokenizer_kwargs)
    check_vocabulary(tokenizer, config, name=str(source.path))
    rows = _rows(source, forget, retain, say)
    every = [row for split in rows.values() for row in split]
    check_format(*form, source, config, tokenizer, every)

    # As after training: adapters on a quantized base are not merged yet.
    model, tokenizer = source.open(place)
    say(f"model {source.path.name}: {model.num_parameters() / 1e6:.3g}M parameters on {place}")
    questions = _questions(source, rows, model, tokenizer)
    say(f"asking the model about {len(questions.sets[FORGET])} facts")
    # Before adapters are merged: what is compared is the model of the run, as it was trained.
    before = _measure(model, tokenizer, questions, name="before export")
    if format != "adapter":
        if source.base_bits:
            say(f"merging the adapters into the base model, quantized to {source.base_bits}")
        model = source.merge_adapters(model, place)

    folder.parent.mkdir(parents=True, exist_ok=True)
    with explain_full_disk(folder), atomic_sibling(folder) as staging:
        say(f"writing {format} {form[1]}" if format == "gguf" else f"writing {format}")
        written, by_quantization, stored = write_export(*form, source, model, tokenizer, staging)
        loaded, loaded_tokenizer = _load_as_a_user(written, stored, source, format, place)
        # llama.cpp quantized it; the loaded weights tell by how much.
        if by_quantization is None:
            by_quantization = relative_change(model, plain_weights(loaded))
        if llama_cpp is not None:  # files of our own writer were checked before
            same_tokens(tokenizer, loaded_tokenizer, every)
            _check_config(config, loaded.config)
        # Before the exported model is run, since the memory may not hold both at work.
        del model, stored
        gc.collect()
        say("asking the exported model the same questions")
        after = _measure(loaded, loaded_tokenizer, questions, name="after export")
        exported_model = folder / written.relative_to(staging)
        notes: tuple[str, ...] = ()
        if by_quantization:
            notes = (f"Quantization changed the weight matrices by {100 * by_quantization:.2g} %.",)
        verdict = judge_export(
            before.answers,
            after.answers,
            retain_loss_increase=retain_loss_increase(before, after),
            max_retain_increase=max_retain_increase,
            not_tested=untested(rows[FORGET], retain_given=True),
            notes=notes,
            next_commands=_next_commands(exported_model, source, format, forget),
        )
        files = _files_of(staging)
        about = {
            "fingerprint": after.fingerprint,
            "relative_weight_change": by_quantization,
            "retain_loss_increase": retain_loss_increase(before, after),
        }
        write_json(staging / EXPORT_NAME, _record(source, form, files, questions, verdict, about))
        _publish(staging, folder)
    return Exported(exported_model, verdict, sum(file["bytes"] for file in files.values()))


def _check_inputs_kept(
    folder: Path, source: Source, rows: Mapping[str, str | None], llama_cpp: str | Path | None
) -> None:
    """Check that the output would replace nothing that the export reads."""
    inputs: dict[str, str | Path | None] = {"model": source.path, "llama.cpp checkout": llama_cpp}
    if is_adapter(str(source.path)):
        inputs["base model"] = base_of(str(source.path), base=source.loading.base)
    check_inputs_kept(folder, inputs | rows_read(rows))


def _files_of(folder: Path) -> dict[str, dict[str, Any]]:
    """Return digest and size of every file, by its path inside of the folder."""
    files = {}
    for file in sorted(folder.rglob("*")):
        if file.is_file():
            name = file.relative_to(folder).as_posix()
            files[name] = {"sha256": sha256_of(file), "bytes": file.stat().st_size}
    return files


def _record(
    source: Source,
    form: Form,
    files: Mapping[str, Any],
    questions: _Questions,
    verdict: RequestVerdict,
    about: Mapping[str, Any],
) -> dict[str, Any]:
    """Return the contents of `export.json`; it goes out with the model, so it names no folders and quotes no answers."""
    format, gguf_type, llama_cpp = form
    original = source.record.get("original_model", {}).get("model")
    if original is not None:
        original = public_text(original)
    private = ("leaks", "samples", "next_steps")
    return {
        "schema": EXPORT_SCHEMA,
        "run": source.path.name,
        "run_fingerprint": source.record.get("result_fingerprint"),
        "original_model": original,
        "format": format,
        "gguf_type": gguf_type if format == "gguf" else None,
        "written_by": "atwu" if llama_cpp is None else "llama.cpp",
        "files": files,
        **about,
        "rows": {
            name: {"rows": len(asked), "fingerprint": fingerprint(asked)} for name, asked in questions.sets.items()
        },
        "verdict": {key: value for key, value in asdict(verdict).items() if key not in private},
        "versions": versions(),
    }


def _checked_form(format: str, gguf_type: str, llama_cpp: str | Path | None) -> Form:
    if format not in EXPORT_FORMATS:
        raise ValueError(f"format must be one of {', '.join(EXPORT_FORMATS)}, got {format!r}.")
    # Types of llama.cpp alone, such as Q4_K_M, stay as they are written.
    if gguf_type.upper() in GGUF_TYPES:
        gguf_type = gguf_type.upper()
    if llama_cpp is None and gguf_type not in GGUF_TYPES:
        raise ValueError(
            f"gguf_type must be one of {', '.join(GGUF_TYPES)} (other types need --llama-cpp PATH), got {gguf_type!r}."
        )
    if format != "gguf" and (gguf_type != "Q8_0" or llama_cpp is not None):
        raise ValueError(f"gguf_type and llama_cpp are for format gguf, got format {format}; leave them out.")
    checkout = None
    if llama_cpp is not None:
        checkout = Path(llama_cpp).expanduser().absolute()
    return format, gguf_type, checkout


@dataclass(frozen=True, slots=True)
class _Questions:
    """What both models are asked."""

    sets: Mapping[str, Sequence[Example]]
    row_encoding: RowEncoding


@dataclass(frozen=True, slots=True)
class _Measured:
    fingerprint: str
    answers: FactTable
    losses: tuple[float, ...]
    """On each set of rows that are to be kept: mean over rows, in nats/token."""


def _questions(source: Source, rows: Mapping[str, Sequence[Example]], model: Any, tokenizer: Any) -> _Questions:
    """Return the rows of the run, with general questions that the model of the run answers."""
    row_encoding = RowEncoding(source.config.get("system"), source.config.get("max_length") or 512)
    general = general_answers(TransformersGenerator(model, tokenizer), rows[FORGET], system=row_encoding.system)
    request = RequestFolder(source.path)
    neighbours, chained = request.neighbours(rows[RETAIN]), request.rows("chained") or ()
    return _Questions(measured_sets(rows[FORGET], rows[RETAIN], (), general, neighbours, chained), row_encoding)


def _measure(model: Any, tokenizer: Any, questions: _Questions, *, name: str) -> _Measured:
    sets, row_encoding = questions.sets, questions.row_encoding
    answers = ask_model(TransformersGenerator(model, tokenizer), sets, row_encoding, progress=name)
    encoder = Encoder(tokenizer, max_length=row_encoding.max_length, system=row_encoding.system)
    losses = []
    for split in (RETAIN, GENERAL):
        if sets[split]:
            tokens = read_tokens(model, encoder.encode_rows(sets[split], what=split).rows, entropy=False)
            losses.append(-float(np.mean([row.logps.mean() for row in tokens])))
    return _Measured(model_fingerprint(model), answers, tuple(losses))


def retain_loss_increase(before: _Measured, after: _Measured) -> float:
    """Return the increase of the retain loss: largest over sets, at least 0; NaN stays NaN."""
    rises = [now - then for then, now in zip(before.losses, after.losses, strict=True)]
    return float(np.max([0.0, *rises]))


def _load_as_a_user(written: Path, stored: Any, source: Source, format: str, place: Any) -> tuple[Any, Any]:
    """Load the written model as a user would; AtwuError if it is not the one that was `stored`."""
    base = None
    if format == "adapter":  # all others are models of their own
        base = source.loading.base
    loading = ModelLoadArgs(trust_remote_code=source.loading.trust_remote_code, base=base)
    loaded, tokenizer = open_model(str(written), loading, device=place)
    if stored is not None and model_fingerprint(loaded) != model_fingerprint(stored):
        raise AtwuError(f"{written.name}: the loaded model differs from the written one; the export was removed.")
    return loaded, tokenizer


def _publish(staging: Path, folder: Path) -> None:
    """Move the finished export to its place; an export that was there is removed after."""
    plain_modes(staging, *staging.rglob("*"))
    # `os.replace` does not replace a folder that has files.
    with atomic_sibling(folder) as aside:
        if folder.exists():
            os.replace(folder, aside / "old")
        os.replace(staging, folder)


def _rows(source: Source, forget: str | None, retain: str | None, say: Say) -> dict[str, Sequence[Example]]:
    sets: dict[str, Sequence[Example]] = {FORGET: source.rows(FORGET, forget), RETAIN: ()}
    try:
        sets[RETAIN] = source.rows(RETAIN, retain)
    except (ValueError, FileNotFoundError) as error:
        if retain is not None:
            raise
        say(f"without a retain set: {error}")
    return sets


def _check_output(folder: Path, source: Source, *, overwrite: bool) -> None:
    if folder.exists():
        if not (folder / EXPORT_NAME).is_file():
            raise FileExistsError(f"{folder} exists and is not an export of atwu; choose another output.")
        if not overwrite:
            raise FileExistsError(f"{folder} holds an export already; choose another output or pass --overwrite.")
    check_output_folder(folder.parent)
    parent = next(path for path in folder.parents if path.exists())
    clear_atomic_siblings(folder)
    # Before the model of the run is asked, which takes minutes.
    needed, free = weight_bytes(str(source.path), base=source.loading.base) or 0, shutil.disk_usage(parent).free
    if free < needed:
        raise OSError(
            f"{parent} has {decimal(int(free))} free, and the export may need {decimal(int(needed))}; free some space."
        )


def _check_config(one: Any, other: Any) -> None:
    """Check that transformers reads the same architecture from a GGUF file of llama.cpp."""
    for name in ("hidden_size", "num_hidden_layers", "num_attention_heads", "num_key_value_heads", "hidden_act"):
        pair = [getattr(settings, name, None) for settings in (one, other)]
        if pair[0] != pair[1]:
            raise AtwuError(f"transformers reads {name} {pair[1]} from the file, but the model has {pair[0]}.")
    # Not in the weights: with other rotary frequencies the same weights are another model.
    for rope in ("rope_type", "rope_theta", "factor"):
        pair = [(getattr(settings, "rope_parameters", None) or {}).get(rope) for settings in (one, other)]
        if pair[0] != pair[1]:
            raise AtwuError(
                f"transformers reads {rope} {pair[1]} from the file, but the model has {pair[0]}: llama.cpp would run another "
                "model than the measured one."
            )


def _next_commands(model: Path, source: Source, form: str, forget: str | None) -> tuple[str, ...]:
    rows = forget or source.record["data"][FORGET]["source"]
    options = ["--original", str(source.path), "--forget", rows, "--all", "--output", "eval.json"]
    commands = [
        command_line([*program(), "chat", str(model), "--compare", str(source.path)]),
        command_line([*program(), "evaluate", "--model", str(model), *options]),
    ]
    if form == "gguf":
        commands.append(command_line(["llama-server", "-m", str(model)]))
    return tuple(commands)
