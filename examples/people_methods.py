"""Compare token-weighting methods on the built-in benchmark, three seeds each, at one learning rate.

    python examples/people_methods.py

Prints mean and standard deviation over seeds of forget and retain metrics, and the AUROC of token scores against the
labels. The target is that of the demo, trained if not cached.
"""

import statistics

from atwu import Evaluation, UnlearnConfig, UnlearnTrainer, evaluate
from atwu.benchmarks.base import evenly_spaced
from atwu.benchmarks.people_rows import people
from atwu.experiments.benchmark_settings import find_setting
from atwu.experiments.study_models import prepare_models
from atwu.modeling.load import load_model, load_tokenizer, quiet_transformers

SIZE, SEEDS = "small", (0, 1, 2)
UNLEARNING = {"learning_rate": 3e-4, "per_device_train_batch_size": 8, "gradient_accumulation_steps": 1}
UNLEARNING |= {"warmup_steps": 0.1, "num_train_epochs": 10}
NAMES = ("grad_diff", "wga", "satimp", "etw", "satga", "seul", "su_ngram", "gt_ga", "gt_satga")
RUNS = {name: {"method": name} for name in (*NAMES, "atwu_ga", "atwu_satga", "atwu")} | {
    "atwu, own state": {"method": "atwu", "hidden_position": "own"},
    "atwu, joint": {"method": "atwu", "scorer_procedure": "joint"},
    "atwu, rarity prior": {"method": "atwu", "scorer_prior": "rarity"},
    "rarity, not learned": {"method": "atwu", "weighting": "rarity"},
}
COLUMNS = {
    "forget ES": ("forget", "extraction_strength"),
    "forget prob.": ("forget", "probability"),
    "retain ES": ("retain", "extraction_strength"),
    "retain prob.": ("retain", "probability"),
    "AUROC scorer": ("forget", "auroc_scorer"),
    "importance": ("forget", "auroc_importance"),
    "entropy": ("forget", "auroc_entropy"),
}


def measure(model, scorer=None):
    rows = {"forget": rows_of.forget, "retain": evenly_spaced(rows_of.retain, 200)}
    sets = evaluate(
        model, rows, Evaluation(scorer=scorer, metrics=("memorization", "scores"), progress=False), tokenizer=tokenizer
    ).sets
    return [sets[split][key].value if key in sets[split] else None for split, key in COLUMNS.values()]


def line(name, results):
    cells = []
    for values in zip(*results, strict=True):
        known = [value for value in values if value is not None]
        deviation = f" ± {statistics.stdev(known):.3f}" if len(known) > 1 else ""
        cells.append(f"{statistics.mean(known):.3f}{deviation}" if known else "–")
    print(f"| {name} | {' | '.join(cells)} |", flush=True)


quiet_transformers()
rows_of, targets = people(SIZE), prepare_models(find_setting(f"people-{SIZE}"), say=print)
tokenizer = load_tokenizer(targets.target)
print(f"\n| method | {' | '.join(COLUMNS)} |\n|{'---|' * (len(COLUMNS) + 1)}")
for name, folder in (("original", targets.target), ("retain-only", targets.retain_only)):
    line(name, [measure(load_model(folder))])
for name, options in RUNS.items():
    results = []
    for seed in SEEDS:
        config = UnlearnConfig(
            output_dir="runs/people", save_strategy="no", seed=seed, disable_tqdm=True, **UNLEARNING, **options
        )
        trainer = UnlearnTrainer(
            load_model(targets.target),
            config,
            forget_dataset=rows_of.forget,
            retain_dataset=rows_of.retain,
            processing_class=tokenizer,
        )
        trainer.train()
        results.append(measure(trainer.model, trainer.scorer))
    line(name, results)
