"""The methods that weigh tokens on the embedded benchmark, three seeds each, at one learning rate.

    python examples/people_methods.py

Prints mean and spread (standard deviation over seeds) of what was forgotten and kept, and how well token scores find the
annotated secret words. The target is the demo's, from the cache or trained first.
"""

import statistics

from atwu import UnlearnConfig, UnlearnTrainer, evaluate
from atwu.experiments.demo import UNLEARNING, epochs, prepare, spread
from atwu.modeling.load import load_model, load_tokenizer, quiet_transformers

SIZE, SEEDS = "small", (0, 1, 2)
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
    rows = {"forget": targets.benchmark.forget, "retain": spread(targets.benchmark.retain, 200)}
    sets = evaluate(model, tokenizer, **rows, scorer=scorer, metrics=("memorization", "scores"), progress=False).sets
    return [sets[split][key].value if key in sets[split] else None for split, key in COLUMNS.values()]


def line(name, results):
    cells = []
    for values in zip(*results, strict=True):
        known = [value for value in values if value is not None]
        deviation = f" ± {statistics.stdev(known):.3f}" if len(known) > 1 else ""
        cells.append(f"{statistics.mean(known):.3f}{deviation}" if known else "–")
    print(f"| {name} | {' | '.join(cells)} |", flush=True)


quiet_transformers()
targets = prepare(SIZE)
tokenizer = load_tokenizer(str(targets.target))
print(f"\n| method | {' | '.join(COLUMNS)} |\n|{'---|' * (len(COLUMNS) + 1)}")
for name, folder in (("original", targets.target), ("retain-only", targets.retain_only)):
    line(name, [measure(load_model(str(folder)))])
for name, options in RUNS.items():
    results = []
    for seed in SEEDS:
        shared = UNLEARNING | {"num_train_epochs": epochs(len(targets.benchmark.forget))}
        config = UnlearnConfig(
            output_dir="runs/people", save_strategy="no", seed=seed, disable_tqdm=True, **shared, **options
        )
        trainer = UnlearnTrainer(
            load_model(str(targets.target)),
            config,
            forget_dataset=targets.benchmark.forget,
            retain_dataset=targets.benchmark.retain,
            processing_class=tokenizer,
        )
        trainer.train()
        results.append(measure(trainer.model, trainer.scorer))
    line(name, results)
