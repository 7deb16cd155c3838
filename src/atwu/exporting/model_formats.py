"""Export formats: what each supports, and how it is written.

The converter of a local llama.cpp checkout writes models and GGUF types that atwu does not write itself.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from atwu._file_reading import read_object
from atwu._files import write_json
from atwu.data.encode import Encoder
from atwu.data.schema import Example
from atwu.exporting.export_source import Source
from atwu.modeling.generate import set_end_ids
from atwu.modeling.gguf_write import check_gguf, read_back_tokenizer, write_gguf
from atwu.modeling.load import ADAPTER_CONFIG, ADAPTER_WEIGHTS, is_adapter
from atwu.modeling.model_checks import state_tying
from atwu.modeling.quantization import BIT_WIDTHS, check_quantization, plain_weights, quantize_model, relative_change

_PROBES = (
    "  two  spaces,\ttabs and a trailing one ",
    "In 1789: 3.14, 1,000,000 and 2nd.",
    "lines\nof\r\n\n  text",
    "ünï — 東京 مرحبا ☃🎉 é",
    "it's we'll DON'T x+=1; <b>a_b</b> http://a.b/c?d=e",
)
"""Texts that tokenizers are compared on, besides special tokens."""
SCRIPT = "convert_hf_to_gguf.py"
CONVERTED = {"F32": "f32", "F16": "f16", "BF16": "bf16", "Q8_0": "q8_0"}
"""Types that the script writes; `llama-quantize` makes all others from F32."""
_PLACES = ("build/bin", "bin", ".")
"""Where builds of llama.cpp leave their programs."""


def check_format(
    form: str,
    kind: str,
    llama_cpp: Path | None,
    source: Source,
    config: Any,
    tokenizer: Any,
    rows: Sequence[Example],
) -> None:
    """Check that a model can be exported, as far as possible without weights; a GGUF file must tokenize the rows alike.

    Args:
        llama_cpp: checkout of llama.cpp that writes the GGUF file; None for the built-in writer.
    """
    if form == "adapter" and not is_adapter(str(source.path)):
        raise ValueError(
            f"{source.path} has full weights and no adapters (atwu unlearn --lora-r 16 --save-adapter saves adapters); "
            "use --format safetensors."
        )
    if form in BIT_WIDTHS:
        check_quantization(form)
    if form == "gguf" and llama_cpp is not None:
        if not (llama_cpp / SCRIPT).is_file():
            raise FileNotFoundError(f"{llama_cpp} has no {SCRIPT}; --llama-cpp needs a checkout of llama.cpp.")
        if kind.upper() not in CONVERTED and _quantizer(llama_cpp) is None:
            raise FileNotFoundError(
                f"{kind} needs llama-quantize, which is not built in {llama_cpp} (build/bin); build it, or choose one of "
                f"{', '.join(CONVERTED)}."
            )
    elif form == "gguf":
        try:
            check_gguf(config)
            same_tokens(tokenizer, read_back_tokenizer(tokenizer, config), rows)
        except ValueError as error:
            raise ValueError(f"{source.path} cannot be exported to GGUF: {error}") from error


def write_export(
    form: str, kind: str, llama_cpp: Path | None, source: Source, model: Any, tokenizer: Any, folder: Path
) -> tuple[Path, float | None, Any]:
    """Write the export into an empty folder; `model` has plain weights (`Source.merge_adapters`), which adapters do not need.

    Returns:
        The path for `--model`; the relative change of the matrices by quantization, None if llama.cpp quantized them; and the
        written model, to compare with the loaded one, None for GGUF and adapters.
    """
    if form == "gguf":
        path = folder / f"{source.path.name}-{kind}.gguf"
        if llama_cpp is None:
            return path, relative_change(model, write_gguf(model, tokenizer, path, kind, name=source.path.name)), None
        # Beside the export, where there is room for a model; the system's folder for temporary files is often in
        # memory.
        with tempfile.TemporaryDirectory(prefix="atwu-", dir=folder) as saved:
            set_end_ids(model, tokenizer)
            state_tying(model)
            model.save_pretrained(saved)
            tokenizer.save_pretrained(saved)
            convert(llama_cpp, Path(saved), path, kind)
        return path, None, None
    tokenizer.save_pretrained(folder)
    if form == "adapter":
        shutil.copyfile(source.path / ADAPTER_WEIGHTS, folder / ADAPTER_WEIGHTS)
        settings = read_object(source.path / ADAPTER_CONFIG)
        base = source.loading.base
        if base is not None:  # it replaces the one that the adapters name
            # peft loads this base when the adapter is loaded by its folder alone.
            settings["base_model_name_or_path"] = str(Path(base).absolute()) if Path(base).is_dir() else base
        write_json(folder / ADAPTER_CONFIG, settings)
        return folder, 0.0, None
    set_end_ids(model, tokenizer)
    state_tying(model)
    if form == "safetensors":
        model.save_pretrained(folder)
        return folder, 0.0, model
    quantized = quantize_model(model, form)
    quantized.save_pretrained(folder)
    return folder, relative_change(model, plain_weights(quantized)), quantized


def same_tokens(tokenizer: Any, other: Any, rows: Sequence[Example]) -> None:
    """Check that two tokenizers agree on rows, on special tokens, and on spaces, digits, lines and Unicode."""
    # Added tokens with text around them, at which tokenizers treat spaces differently.
    probes = (*_PROBES, "".join(f"{token} a " for token in tokenizer.get_added_vocab()))
    texts = [*probes, *((row.question or row.answer) for row in rows)]
    encoded = []
    for compared in (tokenizer, other):
        ids = [compared(text).input_ids for text in probes]
        encoded.append([*ids, *Encoder(compared).encode_rows(rows, what="rows").rows])
    different = [text for text, left, right in zip(texts, *encoded, strict=True) if left != right]
    if different:
        raise ValueError(
            f"{len(different)} of {len(texts)} texts are tokenized differently when transformers reads the file, such as "
            f"{different[0][:60]!r}; export with --llama-cpp, or as safetensors."
        )


def convert(folder: Path, model: Path, path: Path, kind: str) -> None:
    script = [sys.executable, str(folder / SCRIPT), str(model), "--outfile"]
    written = CONVERTED.get(kind.upper())
    if written is not None:
        _run([*script, str(path), "--outtype", written], path)
        return
    # `llama-quantize` reads GGUF alone.
    whole = path.with_suffix(".f32.gguf")
    _run([*script, str(whole), "--outtype", "f32"], whole)
    _run([str(_quantizer(folder)), str(whole), str(path), kind], path)
    whole.unlink()


def _quantizer(folder: Path) -> Path | None:
    places = [folder / place / "llama-quantize" for place in _PLACES]
    return next((place for place in places if place.is_file()), None)


def _run(command: list[str], written: Path) -> None:
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode or not written.is_file():
        # Both programs write pages; the last line says what went wrong.
        output = (done.stderr.strip() or done.stdout.strip() or "no output").splitlines()
        program = command[0]
        if program == sys.executable:  # the script, not Python
            program = command[1]
        raise ValueError(f"{Path(program).name} failed: {output[-1]}")
