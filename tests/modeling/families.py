"""Take a small model of every current family through the whole package, and print what works as a table.

python -m tests.modeling.families                 # all of them
python -m tests.modeling.families gpt_oss mamba2  # some
python -m tests.modeling.families --docs          # all, and the table in benchmarks/results/families.md

`tests.modeling.architectures` compares numbers of all types; here one random model per family is fine-tuned, unlearned,
evaluated, asked, exported, and killed and resumed, from a folder each time, as a user does it.
"""

from __future__ import annotations

import argparse
import contextlib
import re
import sys
import tempfile
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import TrainerCallback

from atwu.benchmarks.people_rows import people
from atwu.benchmarks.sources import load_rows
from atwu.evaluation.backends import TransformersGenerator
from atwu.evaluation.evaluate import Evaluation, evaluate
from atwu.evaluation.facts.askings import form_askings
from atwu.evaluation.facts.fact_table import answerer, ask_facts
from atwu.evaluation.registry import EvaluateConfig
from atwu.exporting.export_run import export
from atwu.modeling.load import quiet_transformers
from atwu.modeling.open_model import ModelLoadArgs, open_model
from atwu.modeling.scratch import train_tokenizer
from atwu.request import measurement
from atwu.training.config import FinetuneConfig, UnlearnConfig
from atwu.training.load_to_train import ModelSource
from atwu.training.progress import silent
from atwu.training.unlearn_run import run_finetune, run_unlearn
from tests.modeling.small_models import small_model

DOCS = Path(__file__).parents[2] / "benchmarks" / "results" / "families.md"
MARK = "<!-- what follows is written by python -m tests.modeling.families --docs -->"
FAMILIES = {
    "Llama 3": "llama",
    "Llama 4": "llama4_text",
    "Qwen 3": "qwen3",
    "Qwen 3 Next": "qwen3_next",
    "Qwen 3.5": "qwen3_5_text",
    "Qwen 3.5 MoE": "qwen3_5_moe_text",
    "Gemma 4": "gemma4_text",
    "gpt-oss": "gpt_oss",
    "DeepSeek V3": "deepseek_v3",
    "DeepSeek V3.2": "deepseek_v32",
    "DeepSeek V4": "deepseek_v4",
    "LongCat Flash": "longcat_flash",
    "GLM 4.5 MoE": "glm4_moe",
    "GLM 5 MoE": "glm_moe_dsa",
    "Mamba 2": "mamba2",
    "Jamba (Mamba hybrid)": "jamba",
    "Falcon H1 (Mamba hybrid)": "falcon_h1",
    "Nemotron H (Mamba hybrid)": "nemotron_h",
    "Granite 4 (Mamba hybrid)": "granitemoehybrid",
    "MiniMax (lightning attention)": "minimax",
    "LFM 2 MoE (short convolutions)": "lfm2_moe",
    "xLSTM (no attention)": "xlstm",
    "Qwen 3.5 with images": "qwen3_5",
    "Gemma 4 with images": "gemma4",
    "Llama 4 with images": "llama4",
    "Qwen 3 VL": "qwen3_vl",
    "Mistral 3 with images": "mistral3",
    "LLaVA": "llava",
    "InternVL": "internvl",
}
"""Family -> model type; types with images in the name wrap a language model, which is used without images."""
BY_DAY = "qwen3_5_moe_text"
"""The type that is tested in every run: it has linear attention, full attention and experts."""
WORKS = "yes"
STEPS = 4
SIZES = {"vocab_size": 400, "max_position_embeddings": 512}
TRAINING: dict[str, Any] = {
    "max_steps": STEPS,
    "learning_rate": 1e-3,
    "per_device_train_batch_size": 4,
    "use_cpu": True,
    "disable_tqdm": True,
    "logging_steps": 1,
    "save_strategy": "no",
}
UNLEARNING = TRAINING | {
    "method": "satga",
    "weighting": "key_tokens",
    "beta": 0.5,
    "preserve": "kl",
    "pairing": "closest",
    "retain_per_forget": 2,
    "retain_loss": "kl_first",
}
"""The method that `atwu unlearn` chooses."""
FORGET, RETAIN = (load_rows(f"people:tiny:{split}") for split in ("forget:4", "retain:8"))


@dataclass
class Pipeline:
    """One model on its way; each step reads what the ones before it wrote."""

    kind: str
    folder: Path
    found: dict[str, str] = field(default_factory=dict)
    """Step -> `WORKS`, or why not."""

    def model(self) -> None:
        small_model(self.kind, **SIZES).save_pretrained(self.folder / "base")
        texts = (f"{row.question} {row.answer}" for row in people("tiny").full)
        train_tokenizer(texts, vocab_size=SIZES["vocab_size"]).save_pretrained(self.folder / "base")

    def finetune(self) -> None:
        source, config = ModelSource(model=str(self.folder / "base")), FinetuneConfig(**TRAINING)
        run_finetune(source, config, data=FORGET, output=self.folder / "target", say=silent)

    def _unlearn(self, name: str, *, watch: Any = None, **more: Any) -> Path:
        source, config = ModelSource(model=str(self.folder / "target")), UnlearnConfig(**UNLEARNING | more)
        output = self.folder / name
        run_unlearn(source, config, forget=FORGET, retain=RETAIN, output=output, watch=watch, say=silent)
        return output

    def unlearn(self) -> None:
        before, after = _weights(self.folder / "target"), _weights(self._unlearn("unlearned"))
        assert any(not torch.equal(before[name], after[name]) for name in before), "no weight changed"

    def lora(self) -> None:
        before, after = _weights(self.folder / "target"), _weights(self._unlearn("adapted", lora_r=4))
        assert any(not torch.equal(before[name], after[name]) for name in before), "no weight changed"

    def evaluate(self) -> None:
        model, tokenizer = open_model(str(self.folder / "unlearned"), ModelLoadArgs())
        result = evaluate(
            model,
            {"forget": FORGET.rows, "retain": RETAIN.rows},
            Evaluation(metrics=("memorization", "rouge"), settings=EvaluateConfig(max_new_tokens=8), progress=False),
            tokenizer=tokenizer,
        )
        assert result.overall or result.sets, "nothing was measured"

    def ask(self) -> None:
        model, tokenizer = open_model(str(self.folder / "unlearned"), ModelLoadArgs())
        table = ask_facts(answerer(TransformersGenerator(model, tokenizer)), form_askings(FORGET.rows[:2]))
        assert table.count().facts == 2, "not all facts were asked"

    def export(self) -> None:
        self._export("safetensors")

    def gguf(self) -> None:
        self._export("gguf")

    def _export(self, form: str) -> None:
        with pytest.MonkeyPatch.context() as patch:  # how well it is measured does not matter here
            patch.setattr(measurement, "fact_askings", lambda rows, *_, **__: form_askings(rows, forms=("question",)))
            patch.setattr(measurement, "general_questions", lambda kind: ("Why is the sky blue?",))
            patch.setattr(measurement, "common_questions", lambda kind: ())
            export(self.folder / "unlearned", format=form, device="cpu", say=silent)

    def resume(self) -> None:
        saving = {"save_strategy": "steps", "save_steps": 1}

        def stop(_trainer: Any) -> list[TrainerCallback]:
            return [_StopAfter(3)]

        with contextlib.suppress(_StoppedError):
            self._unlearn("resumed", watch=stop, **saving)
        whole, resumed = _weights(self.folder / "unlearned"), _weights(self._unlearn("resumed", **saving))
        assert all(torch.equal(whole[name], resumed[name]) for name in whole), "a resumed run has other weights"


class _StoppedError(Exception):
    """Stands for a kill after a checkpoint."""


class _StopAfter(TrainerCallback):
    def __init__(self, step: int) -> None:
        self._step = step

    def on_save(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        if state.global_step == self._step:
            raise _StoppedError


STEPS_OF: dict[str, tuple[Callable[[Pipeline], None], tuple[str, ...]]] = {
    "finetune": (Pipeline.finetune, ()),
    "unlearn": (Pipeline.unlearn, ("finetune",)),
    "LoRA": (Pipeline.lora, ("finetune",)),
    "evaluate": (Pipeline.evaluate, ("unlearn",)),
    "ask": (Pipeline.ask, ("unlearn",)),
    "export": (Pipeline.export, ("unlearn",)),
    "GGUF": (Pipeline.gguf, ("unlearn",)),
    "resume": (Pipeline.resume, ("unlearn",)),
}
"""Step -> what it does, and the steps whose results it reads."""


def _weights(folder: Path) -> dict[str, torch.Tensor]:
    from safetensors.torch import load_file

    return {name: value for file in sorted(folder.glob("*.safetensors")) for name, value in load_file(file).items()}


def run_family(kind: str) -> dict[str, str]:
    """Return step -> `WORKS`, `refused: why` (before training), or the first line of a failure."""
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        patch.setenv("ATWU_CACHE", f"{folder}/cache")
        pipeline = Pipeline(kind, Path(folder))
        try:
            pipeline.model()
        except Exception as error:  # of transformers; our code was not called yet
            return {"model": f"{type(error).__name__}: {_line(error)}"}
        for name, (step, needed) in STEPS_OF.items():
            if any(pipeline.found[other] != WORKS for other in needed):
                pipeline.found[name] = ""
                continue
            pipeline.found[name] = _outcome(step, pipeline)
    return pipeline.found


def _outcome(step: Callable[[Pipeline], None], pipeline: Pipeline) -> str:
    try:
        step(pipeline)
    except (ValueError, ImportError, OSError) as error:
        return f"refused: {_line(error)}"
    except Exception as error:
        return f"{type(error).__name__}: {_line(error)}"
    return WORKS


def _line(error: Exception) -> str:
    text = " ".join(str(error).split())
    text = re.sub(r"its model type is \w+, but ", "", text)  # one reason for all types
    return re.sub(r"\S*/(base|target|unlearned)\b", "the model", text)


def table(found: dict[str, dict[str, str]]) -> str:
    """Return the results as a Markdown table, with the reasons below it."""
    reasons: dict[str, int] = {}
    lines = [f"| family (type) | {' | '.join(STEPS_OF)} |", "|---" * (1 + len(STEPS_OF)) + "|"]
    for family, steps in found.items():
        cells = []
        for step in STEPS_OF:
            outcome = steps.get(step, steps.get("model", ""))
            if outcome not in (WORKS, ""):
                outcome = f"({reasons.setdefault(outcome, len(reasons) + 1)})"
            cells.append(outcome or "–")
        lines.append(f"| {family} | {' | '.join(cells)} |")
    return "\n".join([*lines, "", *(f"({number}) {reason}  " for reason, number in reasons.items())])


def main(arguments: list[str]) -> int:
    """Print the table; return 1 if a family fails without being refused."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("kinds", nargs="*", metavar="TYPE", help="types of models; default: all of the table")
    parser.add_argument("--docs", action="store_true", help=f"write the table into {DOCS.name}, too")
    given = parser.parse_args(arguments)
    quiet_transformers()
    warnings.simplefilter("ignore")
    families = {name: kind for name, kind in FAMILIES.items() if not given.kinds or kind in given.kinds}
    found = {}
    for name, kind in families.items():
        found[f"{name} (`{kind}`)"] = steps = run_family(kind)
        print(kind, {step: outcome[:160] for step, outcome in steps.items() if outcome != WORKS} or WORKS, flush=True)
    print("\n" + table(found))
    if given.docs:
        before, _, _ = DOCS.read_text(encoding="utf-8").partition(MARK)
        DOCS.write_text(f"{before}{MARK}\n\n{table(found)}\n", encoding="utf-8")
    outcomes = [outcome for steps in found.values() for outcome in steps.values()]
    return int(any(outcome not in (WORKS, "") and not outcome.startswith("refused: ") for outcome in outcomes))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
