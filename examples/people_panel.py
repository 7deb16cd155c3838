"""The whole panel for seven methods on the embedded benchmark: three seeds, intervals, and what attacks bring back.

    python examples/people_panel.py

Every method gets the same tuning: the learning rate out of four with the largest ES_delta, on a seed of its own. Models and
results are kept in runs/people-panel, so a run that is stopped goes on. Prints the panel as Markdown.
"""

from pathlib import Path

from atwu import EvaluateConfig, UnlearnConfig, UnlearnTrainer, evaluate, read_result
from atwu.demo import UNLEARNING, epochs, prepare
from atwu.evaluation.generations import GenerationStore
from atwu.evaluation.panel.seeds import over_seeds, seed_differences
from atwu.modeling.load import load_model, load_tokenizer, quiet_transformers
from atwu.report.panel import HEADLINE, lines_of, panel_markdown
from atwu.weighting.scorer import find_scorer

METHODS = ("grad_diff", "wga", "satimp", "npo", "simnpo", "rmu", "atwu")
RATES, TUNING_SEED, SEEDS = (1e-4, 3e-4, 1e-3, 3e-3), 100, (0, 1, 2)
OUTPUT = Path("runs/people-panel")


def unlearn(method, rate, seed):
    folder = OUTPUT / f"{method}-{rate:g}-{seed}"
    if not (folder / "model.safetensors").is_file():
        shared = UNLEARNING | {"learning_rate": rate, "num_train_epochs": epochs(len(forget)), "save_strategy": "no"}
        config = UnlearnConfig(method=method, seed=seed, output_dir="runs/work", disable_tqdm=True, **shared)
        trainer = UnlearnTrainer(
            load_model(str(targets.target)),
            config,
            forget_dataset=forget,
            retain_dataset=pool,
            processing_class=tokenizer,
        )
        trainer.train()
        trainer.save_model(str(folder))
    return folder


def kept_minus_left(folder):
    quick = {"forget": forget, "retain": retain, "metrics": "memorization", "progress": False}
    return evaluate(load_model(str(folder)), tokenizer, **quick).overall["ES_delta"].value


def measure(name, folder, **references):
    path = OUTPUT / f"{name}.json"
    if not path.is_file():
        model, scorer = load_model(str(folder)), find_scorer(folder)
        evaluate(model, tokenizer, scorer=scorer, name=name, **rows, **references).write(path)
    return read_result(path)


quiet_transformers()
targets = prepare("small")
tokenizer = load_tokenizer(str(targets.target))
forget, pool, holdout = (targets.benchmark.split(name) for name in ("forget", "retain", "holdout"))
retain = pool[::7]
rows = {"forget": forget, "retain": retain, "pool": pool, "holdout": holdout, "metrics": "all", "progress": False}
rows |= {"config": EvaluateConfig(relearn_learning_rate=3e-4), "store": GenerationStore(OUTPUT / "generations")}
original = measure("original", targets.target)
retain_only = measure("retain-only", targets.retain_only, original=original)
table = {"original": original, "retain-only": retain_only}
runs = {}
for method in METHODS:
    rate = max(RATES, key=lambda rate: kept_minus_left(unlearn(method, rate, TUNING_SEED)))
    print(f"{method}: learning rate {rate:g}", flush=True)
    folders = [unlearn(method, rate, seed) for seed in SEEDS]
    names = [f"{method}-{seed}" for seed in SEEDS]
    runs[method] = [
        measure(name, folder, original=original, retain_only=retain_only)
        for name, folder in zip(names, folders, strict=True)
    ]
    table[method] = over_seeds(runs[method], references=(original, retain_only), name=method)
print(panel_markdown(table, lines=HEADLINE))
print(panel_markdown(table, lines=[line for line in lines_of(table) if line not in HEADLINE]))
for method in METHODS[:-1]:
    differences = seed_differences(runs["atwu"], runs[method], (original, retain_only))
    for line in (("overall", "ES_delta"), ("overall", "UQ"), ("forget", "J_P@relearn_forget")):
        low, high = differences[line].interval()
        print(f"atwu - {method}: {line[1]} {differences[line].value:+.3f} [{low:+.3f}, {high:+.3f}]")
