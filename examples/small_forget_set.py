"""Options that help ATWU with only 24 or 40 forget rows, where the published schedule updates the scorer only twice.

    python examples/small_forget_set.py                            # people:tiny, 24 forget rows
    ATWU_DATA=folder-with-tofu python examples/small_forget_set.py # also forget01, after examples/tofu_small.py

Ten epochs in batches of 8 x 4, as published. Prints mean and standard deviation over seeds.
"""

import os
import statistics
from pathlib import Path

from atwu import Evaluation, UnlearnConfig, UnlearnTrainer, evaluate, load_rows
from atwu.benchmarks.base import evenly_spaced
from atwu.benchmarks.people_rows import people
from atwu.experiments.benchmark_settings import find_setting
from atwu.experiments.study_models import prepare_models
from atwu.modeling.load import load_model, load_tokenizer, quiet_transformers

SEEDS = range(3 if "ATWU_DATA" in os.environ else 5)
VARIANTS = {
    "wga (no scorer)": {"method": "wga"},
    "rarity (no scorer)": {"weighting": "rarity"},
    "headline": {},
    "headline, as the authors": {"configuration": "authors"},
    "scorer at every step": {"scorer_every": 1},
    "at least 25 updates": {"scorer_min_updates": 25},
    "at least 100 updates": {"scorer_min_updates": 100},
    "pretrained, 100 updates": {"scorer_pretrain": True, "scorer_min_updates": 100},
    "warm start": {"scorer_from": "warm"},
    "warm start, 25 updates": {"scorer_from": "warm", "scorer_min_updates": 25},
    "rarity prior": {"scorer_prior": "rarity"},
    "rarity prior, 100 updates": {"scorer_prior": "rarity", "scorer_min_updates": 100},
    "rarity prior x 0.5, 100 updates": {
        "scorer_prior": "rarity",
        "scorer_prior_strength": 0.5,
        "scorer_min_updates": 100,
    },
}
COLUMNS = {
    "AUROC": ("forget", "auroc_scorer"),
    "forget ES": ("forget", "extraction_strength"),
    "forget prob.": ("forget", "probability"),
    "retain ES": ("retain", "extraction_strength"),
    "retain prob.": ("retain", "probability"),
}


def unlearn(target, forget, retain, seed, rate, options):
    config = UnlearnConfig(
        output_dir="runs/small", save_strategy="no", seed=seed, disable_tqdm=True, learning_rate=rate, **options
    )
    trainer = UnlearnTrainer(
        load_model(str(target)),
        config,
        forget_dataset=forget,
        retain_dataset=retain,
        processing_class=load_tokenizer(str(target)),
    )
    trainer.train()
    return trainer


def study(title, target, forget, earlier, retain, rate):
    """`earlier`: rows unlearned by an earlier run on the same model, for the warm start."""
    print(f"\n{title}: {len(forget)} forget rows, learning rate {rate:g}, {len(SEEDS)} seeds\n", flush=True)
    print(f"| variant | scorer updates | {' | '.join(COLUMNS)} |\n|{'---|' * (len(COLUMNS) + 2)}", flush=True)
    warm = Path("runs/small") / title.replace(":", "-").replace(" ", "-")
    warm.mkdir(parents=True, exist_ok=True)
    unlearn(target, earlier, retain, 0, rate, {}).scorer.save_pretrained(warm)
    for name, options in VARIANTS.items():
        options = {key: str(warm) if value == "warm" else value for key, value in options.items()}
        results, updates = [], 0
        for seed in SEEDS:
            trainer = unlearn(target, forget, retain, seed, rate, options)
            sets = evaluate(
                trainer.model,
                {"forget": forget, "retain": evenly_spaced(retain, 200)},
                Evaluation(scorer=trainer.scorer, metrics=("memorization", "scores"), progress=False),
                tokenizer=trainer.processing_class,
            ).sets
            values = {column: sets[split].get(key) for column, (split, key) in COLUMNS.items()}
            results.append({column: value.value for column, value in values.items() if value is not None})
            updates = trainer.alternation.updates if trainer.alternation else 0
        cells = []
        for column in COLUMNS:
            known = [result[column] for result in results if column in result]
            cells.append(f"{statistics.mean(known):.3f} ± {statistics.stdev(known):.3f}" if known else "–")
        print(f"| {name} | {updates} | {' | '.join(cells)} |", flush=True)


quiet_transformers()
if "ATWU_DATA" in os.environ:
    runs = Path("runs/tofu-small")
    rows = load_rows(runs / "forget.jsonl").rows
    study("TOFU forget01", runs / "target", rows[-40:], rows[:160], load_rows(runs / "retain.jsonl").rows, 5e-4)
else:
    target, rows = prepare_models(find_setting("people-tiny"), say=print).target, people("tiny")
    study("people:tiny", target, rows.forget, rows.retain[: len(rows.forget)], rows.retain, 1e-3)
