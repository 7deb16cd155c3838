"""Exports of small real runs: what is written is read and measured, and what cannot be is refused before anything is spent."""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch

pytest.importorskip("peft")

from atwu.benchmarks.people.rows import people
from atwu.benchmarks.sources import load_rows
from atwu.data.collate import collate_rows
from atwu.data.encode import Encoder
from atwu.data.rows import write_rows
from atwu.errors import AtwuError, DiskFullError
from atwu.modeling.adapters import adapters_of
from atwu.modeling.fingerprint import model_fingerprint
from atwu.modeling.gguf_write import write_gguf
from atwu.modeling.load import add_adapter, load_model, load_tokenizer
from atwu.modeling.opening import Loading
from atwu.modeling.rounding import moved, plain, plain_weights, rounded
from atwu.modeling.scratch import ScratchShape, scratch_model, train_tokenizer
from atwu.shipping import run as shipping
from atwu.shipping import source
from atwu.shipping.run import Exported, export
from atwu.shipping.source import read_source
from atwu.training.config import UnlearnConfig
from atwu.training.run import ModelSource, run_unlearn
from tests.commands import run_command
from tests.damage import disk

SETTINGS = {
    "max_steps": 3,
    "learning_rate": 3e-3,
    "per_device_train_batch_size": 4,
    "use_cpu": True,
    "disable_tqdm": True,
    "save_strategy": "no",
    "logging_steps": 1,
    "method": "grad_diff",
}


@pytest.fixture(scope="module", autouse=True)
def _cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("ATWU_CACHE", str(tmp_path_factory.mktemp("cache")))
        yield


@pytest.fixture(scope="module")
def rows(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder, small = tmp_path_factory.mktemp("rows"), people("tiny")
    for name, some in (("forget", small.forget), ("retain", small.retain), ("unseen", small.holdout)):
        write_rows(folder / f"{name}.jsonl", some[:4])
    return folder


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("base") / "base"
    tokenizer = train_tokenizer((f"{row.question} {row.answer}" for row in people("tiny").full), vocab_size=400)
    shape = ScratchShape(vocab_size=len(tokenizer), hidden_size=64, layers=2, heads=2, intermediate_size=128)
    scratch_model(shape).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


def unlearned(base: Path, rows: Path, output: Path, **more: object) -> Path:
    sets = {name: str(rows / f"{name}.jsonl") for name in ("forget", "retain")}
    run_unlearn(ModelSource(model=str(base)), UnlearnConfig(**SETTINGS, **more), output=output, **sets)
    return output


@pytest.fixture(scope="module")
def run(base: Path, rows: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run on all weights."""
    return unlearned(base, rows, tmp_path_factory.mktemp("runs") / "whole")


@pytest.fixture(scope="module")
def adapters(base: Path, rows: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run that left adapters."""
    return unlearned(base, rows, tmp_path_factory.mktemp("runs") / "lora", lora_r=4, save_adapter=True)


def exported(run: Path, form: str, output: Path, rows: Path, **more: object) -> Exported:
    return export(run, form, output=output, unseen=str(rows / "unseen.jsonl"), **more)


def record(folder: Path) -> dict[str, object]:
    """The record of an export, with its checksums looked at."""
    found = json.loads((folder / "export.json").read_text())
    files = {file.relative_to(folder).as_posix() for file in folder.rglob("*") if file.is_file()}
    assert set(found["files"]) == files - {"export.json"}
    for name, facts in found["files"].items():
        assert hashlib.sha256((folder / name).read_bytes()).hexdigest() == facts["sha256"]
        assert (folder / name).stat().st_size == facts["bytes"]
    return found


def values(found: dict[str, object], when: str) -> list[float]:
    return [line[when] for line in found["verdict"]["lines"]]


def test_whole_weights_are_the_runs_own_and_measure_the_same(run: Path, rows: Path, tmp_path: Path) -> None:
    said: list[str] = []
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "export.json").write_text("{}")
    done = exported(run, "safetensors", tmp_path / "out", rows, say=said.append, overwrite=True)
    found = record(tmp_path / "out")
    assert model_fingerprint(load_model(str(done.model))) == found["fingerprint"] == found["run_fingerprint"]
    assert values(found, "before") == values(found, "after")
    assert (done.verdict.word, done.good) == ("as before export", True)
    assert found["matrices_moved"]["by_rounding"] == 0 < found["matrices_moved"]["by_unlearning"]
    assert load_tokenizer(str(done.model))("Orla Venn").input_ids == load_tokenizer(str(run))("Orla Venn").input_ids
    assert "measuring what was written on the same rows" in said
    assert not list(tmp_path.glob(".out*"))
    secrets = [row.answer for row in people("tiny").forget[:4]]
    assert not any(secret in (tmp_path / "out" / "export.json").read_text() for secret in secrets)


@pytest.mark.parametrize(("form", "low", "high"), [("4bit", 0.03, 0.12), ("8bit", 1e-4, 0.01)])
def test_rounded_weights_are_a_folder_that_loads_and_was_measured(
    run: Path, rows: Path, tmp_path: Path, form: str, low: float, high: float
) -> None:
    pytest.importorskip("bitsandbytes")
    done = exported(run, form, tmp_path / "out", rows)
    found, read = record(tmp_path / "out"), load_model(str(tmp_path / "out"))
    assert read.is_quantized
    assert model_fingerprint(read) == found["fingerprint"]
    told = found["matrices_moved"]["by_rounding"]
    assert low < told < high
    assert moved(load_model(str(run)), plain_weights(read)) == pytest.approx(told)
    assert f"Rounding moved the matrices by {100 * told:.2g} %" in done.verdict.why.replace("\n", " ")
    assert done.bytes < sum(file.stat().st_size for file in run.glob("*.safetensors"))


def test_a_gguf_file_is_the_run_within_its_rounding(run: Path, rows: Path, tmp_path: Path) -> None:
    done = exported(run, "gguf", tmp_path / "out", rows, gguf_type="F16")
    assert done.model == tmp_path / "out" / "whole-F16.gguf"
    found = record(tmp_path / "out")
    assert found["matrices_moved"]["by_rounding"] < 3e-4
    assert values(found, "after") == pytest.approx(values(found, "before"), rel=0.05, abs=5e-3)
    assert model_fingerprint(load_model(str(done.model))) == found["fingerprint"]
    assert f"next: llama-server -m {done.model}" in done.summary()


def test_adapters_are_merged_or_shipped_as_they_are(adapters: Path, base: Path, rows: Path, tmp_path: Path) -> None:
    merged = exported(adapters, "safetensors", tmp_path / "merged", rows)
    assert adapters_of(load_model(str(merged.model))) is None
    assert model_fingerprint(load_model(str(merged.model))) == model_fingerprint(load_model(str(adapters)))
    alone = exported(adapters, "adapter", tmp_path / "alone", rows)
    assert {"adapter_model.safetensors", "adapter_config.json", "tokenizer.json"} <= set(
        record(tmp_path / "alone")["files"]
    )
    assert model_fingerprint(load_model(str(alone.model))) == model_fingerprint(load_model(str(adapters)))
    moved_base = shutil.copytree(base, tmp_path / "elsewhere")
    exported(adapters, "adapter", tmp_path / "other", rows, loading=Loading(base=str(moved_base)))
    settings = json.loads((tmp_path / "other" / "adapter_config.json").read_text())
    assert settings["base_model_name_or_path"] == str(moved_base)


def test_adapters_on_a_rounded_base_are_added_to_the_numbers_they_were_trained_on(
    adapters: Path, base: Path, rows: Path, tmp_path: Path
) -> None:
    """Whether the run rounded its base, or the base lies in four bits on the disk."""
    pytest.importorskip("bitsandbytes")
    small = rounded(load_model(str(base)), "4bit")
    expected = add_adapter(plain(small), str(adapters))
    trained = shutil.copytree(adapters, tmp_path / "trained")
    run = json.loads((trained / "run.json").read_text())
    run["config"]["quantize"] = "4bit"
    (trained / "run.json").write_text(json.dumps(run))
    (trained / "manifest.json").unlink()
    said: list[str] = []
    done = exported(trained, "safetensors", tmp_path / "one", rows, say=said.append)
    assert any("rounded to 4bit" in line for line in said)
    assert moved(expected, load_model(str(done.model)).named_parameters()) == 0
    assert moved(load_model(str(adapters)), expected.named_parameters()) > 0.02

    stored = tmp_path / "stored"
    rounded(load_model(str(base)), "4bit").save_pretrained(stored)
    load_tokenizer(str(base)).save_pretrained(stored)
    done = exported(adapters, "safetensors", tmp_path / "two", rows, loading=Loading(base=str(stored)))
    assert moved(expected, load_model(str(done.model)).named_parameters()) == 0


def noting(option: str, asked: list[object]) -> Callable[..., torch.nn.Module]:
    """Loads models by name, and notes what was given for one option."""

    def load(name: str, **how: object) -> torch.nn.Module:
        asked.append(how[option])
        return load_model(name)

    return load


def test_the_base_that_was_rounded_is_of_the_recorded_commit(adapters: Path, tmp_path: Path) -> None:
    pytest.importorskip("bitsandbytes")
    noted = shutil.copytree(adapters, tmp_path / "noted")
    settings = json.loads((noted / "adapter_config.json").read_text()) | {"revision": "0123abc"}
    (noted / "adapter_config.json").write_text(json.dumps(settings))
    (noted / "manifest.json").unlink()
    asked: list[object] = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(source, "load_model", noting("revision", asked))
        for loading in (Loading(), Loading(revision="main"), Loading(base=settings["base_model_name_or_path"])):
            read_source(noted, loading)._rounded_base("4bit", torch.device("cpu"))
    assert asked == ["0123abc", "main", None]


@pytest.mark.parametrize("code", [False, True])
def test_the_starting_model_may_bring_its_code_where_the_run_may(code: bool, run: Path) -> None:
    asked: list[object] = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(shipping, "load_model", noting("trust_remote_code", asked))
        found = read_source(run, Loading(trust_remote_code=code))
        assert shipping._unlearning(found, load_model(str(run)), print) > 0
    assert asked == [code]


def test_several_chat_templates_are_exported_with_the_model(run: Path, rows: Path, tmp_path: Path) -> None:
    several = shutil.copytree(run, tmp_path / "several")
    tokenizer = load_tokenizer(str(several))
    turns = "{% for each in messages %}{{ each.role }}: {{ each.content }}\n{% endfor %}"
    tokenizer.chat_template = {"default": turns, "tool_use": turns}
    tokenizer.save_pretrained(several)
    (several / "manifest.json").unlink()
    done = exported(several, "safetensors", tmp_path / "out", rows)
    assert "additional_chat_templates/tool_use.jinja" in record(tmp_path / "out")["files"]
    assert load_tokenizer(str(done.model)).chat_template == tokenizer.chat_template


def test_what_rounding_brings_back_is_told_in_words(base: Path, rows: Path, tmp_path: Path) -> None:
    """A model on the grid of its format that knows four rows; changes below half a step hide them, and rounding finds them."""
    tokenizer, model = load_tokenizer(str(base)), load_model(str(base))
    source = str(rows / "forget.jsonl")
    encoded = Encoder(tokenizer).encode_rows(load_rows(source).rows, what="forget").rows
    batch = collate_rows(encoded)
    inputs = {name: batch[name] for name in ("input_ids", "attention_mask", "labels")}
    adam = torch.optim.Adam(model.parameters(), lr=3e-3)
    for _ in range(60):
        adam.zero_grad()
        model(**inputs).loss.backward()
        adam.step()
    with torch.no_grad():
        grid = dict(write_gguf(model, tokenizer, tmp_path / "grid.gguf", "Q4_0", name="grid", progress=False))
        for name, weight in model.named_parameters():
            weight.copy_(grid[name])
    assert model(**inputs).loss < 0.3
    free = {name: weight for name, weight in model.named_parameters() if "_proj" in name}
    room = {name: half_step(weight.detach()) for name, weight in free.items()}
    for _ in range(60):
        model.zero_grad()
        (-model(**inputs).loss).backward()
        with torch.no_grad():
            for name, weight in free.items():
                step = weight + room[name] * weight.grad.sign() * -0.1
                weight.copy_(grid[name] + (step - grid[name]).clamp(-room[name], room[name]))
    assert model(**inputs).loss > 3
    model.save_pretrained(tmp_path / "hidden")
    tokenizer.save_pretrained(tmp_path / "hidden")
    done = exported(tmp_path / "hidden", "gguf", tmp_path / "out", rows, forget=source, gguf_type="Q4_0")
    assert (done.verdict.word, done.good) == ("what was forgotten comes back", False)
    assert "After export telling words p rose from" in done.verdict.why
    assert "next: export with more bits" in done.summary()
    back = dict(load_model(str(done.model)).named_parameters())
    assert all(back[name].equal(grid[name]) for name in free)
    fine = exported(tmp_path / "hidden", "gguf", tmp_path / "fine", rows, forget=source, gguf_type="F16")
    assert fine.good


def half_step(weight: torch.Tensor) -> torch.Tensor:
    """How far weights on the grid of Q4_0 may move without rounding to another point: nothing for a block's largest."""
    blocks = weight.abs().view(-1, 32)
    step = blocks.amax(-1, keepdim=True) / 8
    return torch.where(blocks > 6.5 * step, 0, 0.45 * step).view(weight.shape)


REFUSED = [
    ("nowhere", {}, "nowhere not found: export takes the folder of a run"),
    ("", {}, "holds no model: config.json is missing"),
    ("run", {"form": "adapter"}, "holds whole weights and no adapters .* use --format safetensors"),
    ("run", {"form": "onnx"}, "format must be one of safetensors, adapter, 4bit, 8bit, gguf, got 'onnx'"),
    ("run", {"gguf_type": "Q4_K_M"}, r"gguf_type must be one of F32, .* \(all others take --llama-cpp PATH\)"),
    ("run", {"llama_cpp": "."}, "holds no convert_hf_to_gguf.py; --llama-cpp takes a checkout"),
    ("run", {"output": "taken"}, "taken exists and is no export of atwu; choose another output"),
    ("run", {"forget": "nothing.jsonl"}, "nothing.jsonl"),
    ("plain", {}, "does not say which forget rows it belongs to; name them with --forget FILE"),
    ("stale", {}, "no longer holds the run's forget rows; name them with --forget FILE"),
    ("lost", {}, "are not found from here; name them with --forget FILE"),
    ("qwen", {}, "cannot become GGUF: it is a qwen2 model, and only Llama-shaped"),
    ("words", {}, "cannot become GGUF: its tokenizer cuts words by Whitespace"),
]


@pytest.mark.parametrize(("name", "more", "message"), REFUSED)
def test_what_cannot_be_is_refused_before_weights_are_read(
    name: str,
    more: dict[str, str],
    message: str,
    run: Path,
    base: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("atwu.shipping.source.open_model", lambda *_, **__: pytest.fail("weights were read"))
    monkeypatch.chdir(tmp_path)
    (tmp_path / "taken").mkdir()
    folder = run if name == "run" else tmp_path / name
    if name == "plain":
        folder = base
    elif name in ("stale", "lost", "qwen", "words"):
        shutil.copytree(run, folder)
        (folder / "manifest.json").unlink()  # it is edited
        file = folder / ("config.json" if name == "qwen" else "run.json")
        told = json.loads(file.read_text())
        if name == "qwen":
            told |= {"model_type": "qwen2", "architectures": ["Qwen2ForCausalLM"]}
        elif name == "stale":
            told["data"]["forget"]["fingerprint"] = "0" * 64
        elif name == "lost":
            told["data"]["forget"]["source"] = "gone.jsonl"
        file.write_text(json.dumps(told))
    if name == "words":
        tokenizer = json.loads((folder / "tokenizer.json").read_text())
        tokenizer["pre_tokenizer"] = {"type": "Whitespace"}
        (folder / "tokenizer.json").write_text(json.dumps(tokenizer))
    options = {"form": "gguf", "output": "out"} | more
    with pytest.raises((ValueError, OSError), match=message) as caught:
        export(folder, options.pop("form"), **options)
    assert "\n" not in str(caught.value)
    assert not (tmp_path / "out").exists()
    assert {path.name for path in tmp_path.iterdir()} <= {"taken", "stale", "lost", "qwen", "words"}


def test_an_unfinished_run_and_missing_packages_are_said(
    run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "mine.incomplete").mkdir()
    with pytest.raises(FileNotFoundError, match=r"The run is not finished \(mine.incomplete\)"):
        export(tmp_path / "mine", "safetensors")
    monkeypatch.setitem(__import__("sys").modules, "bitsandbytes", None)
    with pytest.raises(ImportError, match=r"bitsandbytes is needed here .* pip install 'atwu\[quantize\]'"):
        export(run, "4bit", output=tmp_path / "out")


def test_what_is_read_back_otherwise_is_not_left_lying(
    run: Path, rows: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shipping, "model_fingerprint", lambda model: str(id(model)))
    with pytest.raises(AtwuError, match="what was read back is not what was written"):
        exported(run, "safetensors", tmp_path / "out", rows)
    assert not list(tmp_path.iterdir())


CONVERTER = """
import shutil, sys
from pathlib import Path

path, kind = (sys.argv[sys.argv.index(flag) + 1] for flag in ("--outfile", "--outtype"))
if kind == "bf16":
    raise SystemExit("BPE pre-tokenizer was not recognized")
assert (Path(sys.argv[1]) / "model.safetensors").is_file()
shutil.copy(Path(__file__).with_name(f"{kind}.gguf"), path)
"""


def test_a_checkout_of_llama_cpp_writes_what_is_measured(run: Path, rows: Path, tmp_path: Path) -> None:
    """A stand-in with the converter's command line."""
    checkout = tmp_path / "llama.cpp"
    checkout.mkdir()
    (checkout / "convert_hf_to_gguf.py").write_text(CONVERTER)
    model, tokenizer = load_model(str(run)), load_tokenizer(str(run))
    list(write_gguf(model, tokenizer, checkout / "q8_0.gguf", "Q8_0", name="theirs", progress=False))
    exported(run, "gguf", tmp_path / "out", rows, llama_cpp=checkout, gguf_type="Q8_0")
    found = record(tmp_path / "out")
    assert found["written_by"] == "llama.cpp"
    assert 1e-4 < found["matrices_moved"]["by_rounding"] < 6e-3
    with pytest.raises(ValueError, match=r"convert_hf_to_gguf.py failed: BPE pre-tokenizer was not recognized"):
        exported(run, "gguf", tmp_path / "failed", rows, llama_cpp=checkout, gguf_type="BF16")
    with pytest.raises(FileNotFoundError, match="Q4_K_M takes llama-quantize, which is not built in"):
        exported(run, "gguf", tmp_path / "failed", rows, llama_cpp=checkout, gguf_type="Q4_K_M")
    assert {path.name for path in tmp_path.iterdir()} == {"llama.cpp", "out"}


def test_the_command_says_what_it_does_and_ends_with_the_verdict(run: Path, rows: Path, tmp_path: Path) -> None:
    command = [
        "export",
        run,
        "--format",
        "safetensors",
        "--unseen",
        rows / "unseen.jsonl",
        "--output",
        tmp_path / "out",
    ]
    done = run_command(command)
    assert done.returncode == 0, done.stderr
    assert not list(tmp_path.glob(".out*"))
    assert f"exported to {tmp_path / 'out'} (" in done.stdout
    assert "VERDICT: AS BEFORE EXPORT" in done.stdout
    again = run_command(command)
    assert (again.returncode, again.stdout) == (1, "")
    assert "holds an export already; choose another output or pass --overwrite." in again.stderr


@pytest.mark.parametrize("form", ["safetensors", "gguf"])
def test_a_full_disk_ends_in_a_line_and_leaves_nothing(form: str, run: Path, rows: Path, tmp_path: Path) -> None:
    with disk(tmp_path / "disk", "16m") as folder:
        filler = folder / "filler"

        def fill(line: str) -> None:
            if line.startswith("writing"):
                filler.write_bytes(bytes(shutil.disk_usage(folder).free - 30_000))

        with pytest.raises(
            DiskFullError, match=rf"^the disk is full: {folder / 'out'} could not be written; free some"
        ):
            exported(run, form, folder / "out", rows, say=fill)
        assert list(folder.iterdir()) == [filler]
