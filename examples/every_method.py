"""Run `atwu unlearn --method NAME` for every method on the built-in benchmark, one process each.

    python examples/every_method.py            # people:tiny; all output in runs/every-method

Every method uses its published weights at the same learning rate. Nothing is tuned, so the table shows cost and that each
method works, not which one is best. AUROC is that of the training token weights, in the first and the last epoch. Memory is
the peak resident size of the process, with reference values in the cache.
"""

import json
import statistics
import subprocess
import sys
from pathlib import Path

from atwu import METHODS, Evaluation, evaluate
from atwu.benchmarks.people_rows import people
from atwu.experiments.benchmark_settings import find_setting
from atwu.experiments.study_models import prepare_models
from atwu.methods.recipe import recipe
from atwu.methods.weightings.token_scorer import find_scorer
from atwu.modeling.load import load_model, load_tokenizer, quiet_transformers

SIZE, RUNS = "tiny", Path("runs/every-method")
COLUMNS = ("forget ES", "forget prob.", "retain ES", "retain prob.", "AUROC first", "AUROC last", "s/step", "peak MB")
UNLEARNING = {"learning_rate": 3e-4, "per_device_train_batch_size": 8, "gradient_accumulation_steps": 1}
UNLEARNING |= {"warmup_steps": 0.1}
EXTRA = {"fundial": ["--noun-finder", "simple"]}  # no model to download


def unlearn(method, output, *options):
    """Run the command."""
    command = [sys.executable, "-m", "atwu", "unlearn", "--model", targets.target, "--method", method]
    command += ["--forget", f"people:{SIZE}:forget", "--retain", f"people:{SIZE}:retain", "--output", output]
    command += [part for name, value in UNLEARNING.items() for part in (f"--{name.replace('_', '-')}", value)]
    command += ["--save-strategy", "no", "--disable-tqdm", "--overwrite", *EXTRA.get(method, []), *options]
    subprocess.run(list(map(str, command)), stdout=subprocess.DEVNULL, check=True)


def measure(folder):
    model, scorer = load_model(str(folder)), find_scorer(folder)
    rows = {"forget": rows_of.forget, "retain": rows_of.retain}
    sets = evaluate(
        model, rows, Evaluation(scorer=scorer, metrics=("memorization", "scores"), progress=False), tokenizer=tokenizer
    ).sets
    return [sets[split][name].value for split in rows for name in ("extraction_strength", "probability")]


def line(name, values):
    numbers = [f"{value:.3f}" if isinstance(value, float) else str(value) for value in values]
    print(f"| {name} | {' | '.join(numbers + ['–'] * (len(COLUMNS) - len(numbers)))} |", flush=True)


quiet_transformers()
rows_of, targets = (
    people(SIZE),
    prepare_models(find_setting(f"people-{SIZE}"), say=lambda text: print(text, file=sys.stderr)),
)
tokenizer = load_tokenizer(targets.target)
RUNS.mkdir(parents=True, exist_ok=True)
print(f"| method | {' | '.join(COLUMNS)} |\n|{'---|' * (len(COLUMNS) + 1)}")
for name, folder in (("original", targets.target), ("retain-only", targets.retain_only)):
    line(name, measure(folder))
for method in METHODS:
    unlearn(method, RUNS / "cache", "--max-steps", 1)  # fills the caches
    unlearn(method, RUNS / method, "--num-train-epochs", 33)  # a hundred steps
    record = json.loads((RUNS / method / "run.json").read_text())
    log = [json.loads(text) for text in (RUNS / method / "log.jsonl").read_text().splitlines()]
    steps = record["steps"] // record["config"]["num_train_epochs"]
    found = [entry["score_auroc"] for entry in log if "score_auroc" in entry]
    auroc = [f"{statistics.mean(part):.3f}" for part in (found[: int(steps)], found[-int(steps) :])] if found else []
    if recipe(method).weighting == "uniform":
        auroc = ["0.500", "0.500"]
    auroc = auroc or ["1.000", "1.000"]  # the labels themselves
    cost = [record["train_seconds"] / record["steps"], round(record["peak_memory_bytes"] / 2**20)]
    line(method, [*measure(RUNS / method), *auroc, *cost])
