"""TOFU in miniature: a 6M-parameter Llama memorizes 2,400 rows, then unlearns forget10 with four methods.

    ATWU_DATA=folder-with-tofu python examples/tofu_small.py

All output is in runs/tofu-small; finished steps are skipped and killed ones continue. TOFU has no word labels, so a
word is labelled if it is in the paraphrased answer and not in the question or the perturbed answers.
"""

import json
import os
import re
from pathlib import Path

from atwu import Evaluation, FinetuneConfig, UnlearnConfig, evaluate, load_rows
from atwu.methods.weightings.token_scorer import find_scorer
from atwu.modeling.device import pick_device
from atwu.modeling.load import load_model, load_tokenizer, quiet_transformers
from atwu.report.metric_table import table_of
from atwu.report.table_writers import models_markdown
from atwu.training.unlearn_run import ModelSource, run_finetune, run_unlearn

TOFU = Path(os.environ["ATWU_DATA"]) / "tofu"
RUNS = Path("runs/tofu-small")
LEARNING_RATE = 3e-4  # the same for every method
METHODS = {"grad_diff": {}, "wga": {}, "satimp": {}, "atwu": {}, "atwu own": {"hidden_position": "own"}}


def words(text):
    return {word.lower() for word in re.findall(r"\w+", text)}


def annotated(row):
    known = words(row["question"]).union(*map(words, row["perturbed_answer"]))
    labelled = words(row["paraphrased_answer"]) - known
    spans = [m.span() for m in re.finditer(r"\w+", row["answer"]) if m[0].lower() in labelled]
    return {"question": row["question"], "answer": row["answer"], "forget_spans": spans}


def write(name, rows):
    RUNS.mkdir(parents=True, exist_ok=True)
    path = RUNS / f"{name}.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return str(path)


quiet_transformers()
read = lambda name: [json.loads(line) for line in (TOFU / f"{name}.jsonl").open(encoding="utf-8")]  # noqa: E731
forget = write("forget", [annotated(row) for row in read("forget10_perturbed")])
retain = write("retain", read("retain90")[:2000])
full = write("full", read("retain90")[:2000] + read("forget10"))
target, source = RUNS / "target", ModelSource(scratch="tofu6m")
for output, rate, epochs in ((RUNS / "first", 1.5e-3, 16), (target, 1e-3, 8)):  # the second run memorizes word for word
    if not output.exists():
        config = FinetuneConfig(
            learning_rate=rate,
            num_train_epochs=epochs,
            per_device_train_batch_size=8,
            warmup_steps=100,
            weight_decay=0.0,
        )
        run_finetune(source, config, data=full, output=output, say=print)
    source = ModelSource(model=str(output))
models = {"original": target}
for name, options in METHODS.items():
    models[name] = RUNS / name.replace(" ", "_")
    if not models[name].exists():
        config = UnlearnConfig(method=name.split()[0], learning_rate=LEARNING_RATE, **options)
        run_unlearn(
            ModelSource(model=str(target)), config, forget=forget, retain=retain, output=models[name], say=print
        )
sets = {"forget": load_rows(forget).rows, "retain": load_rows(retain, limit=400).rows}
results = {}
for name, folder in models.items():
    result = evaluate(
        load_model(str(folder)).to(pick_device()),
        sets,
        Evaluation(scorer=find_scorer(folder), name=name),
        tokenizer=load_tokenizer(str(folder)),
    )
    result.write(RUNS / f"eval_{folder.name}.json")
    results[name] = result
print(models_markdown(table_of(results)))
