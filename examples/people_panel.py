"""The whole panel for seven methods on the embedded benchmark: three seeds, intervals, and what attacks bring back.

    python examples/people_panel.py

Every method gets the same tuning: the learning rate out of four with the largest ES_delta, on a seed of its own. Prints the
headline panel and the attacks as Markdown; the results of single runs are written to runs/people-panel.
"""

from functools import partial
from pathlib import Path

from atwu import UnlearnConfig, UnlearnTrainer, evaluate
from atwu.demo import UNLEARNING, epochs, prepare
from atwu.evaluation.panel.config import EvaluateConfig
from atwu.evaluation.panel.seeds import over_seeds
from atwu.evaluation.result import read_result
from atwu.modeling.load import load_model, load_tokenizer, quiet_transformers
from atwu.report.panel import HEADLINE, lines_of, panel_markdown

METHODS = ("grad_diff", "wga", "satimp", "npo", "simnpo", "rmu", "atwu")
RATES, TUNING_SEED, SEEDS = (1e-4, 3e-4, 1e-3, 3e-3), 100, (0, 1, 2)
OUTPUT = Path("runs/people-panel")


def unlearn(method, rate, seed):
    shared = UNLEARNING | {"learning_rate": rate, "num_train_epochs": epochs(len(forget))}
    config = UnlearnConfig(
        method=method, seed=seed, output_dir="runs/work", save_strategy="no", disable_tqdm=True, **shared
    )
    model = load_model(str(targets.target))
    trainer = UnlearnTrainer(model, config, forget_dataset=forget, retain_dataset=pool, processing_class=tokenizer)
    trainer.train()
    return trainer.model


def measure(name, model, **options):
    path = OUTPUT / f"{name}.json"
    if not path.is_file():
        evaluate(model(), tokenizer, name=name, **rows, **options).write(path)
    return read_result(path)


def tuned_rate(method):
    def kept_minus_left(rate):
        model = unlearn(method, rate, TUNING_SEED)
        quick = {"forget": forget, "retain": retain, "metrics": "memorization", "progress": False}
        return evaluate(model, tokenizer, **quick).overall["ES_delta"].value

    return max(RATES, key=kept_minus_left)


quiet_transformers()
OUTPUT.mkdir(parents=True, exist_ok=True)
targets = prepare("small")
tokenizer = load_tokenizer(str(targets.target))
forget, pool, holdout = (targets.benchmark.split(name) for name in ("forget", "retain", "holdout"))
retain = pool[::7]
rows = {"forget": forget, "retain": retain, "pool": pool, "holdout": holdout, "metrics": "all", "progress": False}
rows["config"] = EvaluateConfig(relearn_learning_rate=3e-4)
original = measure("original", partial(load_model, str(targets.target)))
retain_only = measure("retain-only", partial(load_model, str(targets.retain_only)), original=original)
references = {"original": original, "retain_only": retain_only}
table = {"original": original, "retain-only": retain_only}
for method in METHODS:
    names = [f"{method}-{seed}" for seed in SEEDS]
    rate = None if all((OUTPUT / f"{name}.json").is_file() for name in names) else tuned_rate(method)
    results = [
        measure(name, partial(unlearn, method, rate, seed), **references)
        for seed, name in zip(SEEDS, names, strict=True)
    ]
    print(f"{method}: learning rate {rate}", flush=True)
    table[method] = over_seeds(results, references=references.values(), name=method)
print(panel_markdown(table, lines=HEADLINE))
print(panel_markdown(table, lines=[line for line in lines_of(table) if line not in HEADLINE]))
