"""Compare variants of unlearning on SUITE (Peleg et al. 2026), with SmolLM2-135M fine-tuned on its facts.

    python benchmarks/suite_study.py --data ATWU_DATA/suite --out results                      # minutes on one H100
    python benchmarks/suite_study.py --data ATWU_DATA/suite --out results --tiny --device cpu  # rehearsal, scratch model
    python benchmarks/suite_table.py results/runs.jsonl

The target model is fine-tuned on direct questions about the facts and on the retain rows of training and evaluation, the
retain-only model on the retain rows. Each variant (`suite_losses.py`) then unlearns for the same number of steps of
8 forget and 8 retain rows. The learning rate is chosen on the first topic with seed 0; other seeds and the second topic are
reported. Runs of one group train in parallel (`model_ensemble.py`). Each finished run is one line of `runs.jsonl`, without
text of the data; answers go to `replies-*.jsonl`.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import random
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

os.environ.setdefault("PYTORCH_CUDA_ALLOC_CONF", "expandable_segments:True")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / "src"), str(ROOT / "benchmarks")]

from suite_scoring import Topic, load_topic, score, selection_score  # noqa: E402

TOPICS = ("challenger_disaster", "salem_witch_trials")
"""Learning rates are chosen on the first."""
REPORTED = ((TOPICS[1], 1), (TOPICS[0], 1), (TOPICS[1], 2), (TOPICS[0], 2), (TOPICS[1], 3))
RATES = (1e-5, 3e-5, 8e-5, 2e-4)
STEPS, ROWS = 60, 8
LONGER = 3
"""Factor on the number of steps of the part `long`."""
LONG_ONES = ("jensunpp", "preserve", "satga_kl", "undial", "npo", "rarity_preserve", "preserve_refusal")
EPOCHS, FINETUNING_RATE, FINETUNING_ROWS = 12, 5e-4, 32
RELEARNED, RELEARNING_STEPS, RELEARNING_RATE = 5, 10, 5e-5
SIDE_BY_SIDE, ANSWERED = 12, 256
NEW_TOKENS = {"short": 24, "sentence": 40}


@dataclass(frozen=True, slots=True)
class Member:
    """One run."""

    configuration: str
    """Name of the variant; a key of the result files."""
    topic: str
    seed: int
    style: str
    """`short`: answers as published; `sentence`: as sentences."""
    rate: float
    steps: int
    part: str
    """`models`, `grid`, `report` or `long`."""

    @property
    def name(self) -> str:
        return f"{self.part}-{self.style}-{self.configuration}-{self.topic}-s{self.seed}-{self.rate:g}"


class Study:
    """Train groups of runs within a time budget, and score them in other processes."""

    def __init__(self, options: argparse.Namespace, topics: Mapping[str, Topic], pool: Any) -> None:
        import torch
        from model_ensemble import Shape, flat_weights
        from transformers import AutoModelForCausalLM, AutoTokenizer, LlamaConfig, LlamaForCausalLM

        self.torch, self.options, self.topics, self.pool = torch, options, topics, pool
        self.device = torch.device(options.device)
        self.dtype = torch.bfloat16 if options.device == "cuda" else torch.float32
        torch.manual_seed(0)
        folder = options.model
        if folder == "smollm2":
            from atwu.modeling.named_models import model_source

            folder = model_source(folder)
        self.tokenizer = AutoTokenizer.from_pretrained(folder)
        if options.tiny:
            sizes = {"hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2, "num_attention_heads": 4}
            config = LlamaConfig(
                vocab_size=len(self.tokenizer), num_key_value_heads=2, head_dim=16, tie_word_embeddings=True, **sizes
            )
            model = LlamaForCausalLM(config)
        else:
            model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
        self.shape = Shape.of(model.config)
        self.original = flat_weights(model.state_dict(), self.shape).to(self.device)
        self.results: dict[str, dict[str, Any]] = {}
        self.waiting: list[Any] = []
        self.taken: dict[str, float] = {}
        self.runs = (options.out / "runs.jsonl").open("a", encoding="utf-8")

    def left(self) -> float:
        return float(self.options.budget - (time.monotonic() - self.options.begin))

    def say(self, *words: object) -> None:
        print(f"[{time.monotonic() - self.options.begin:6.1f}]", *words, flush=True)

    def finetune(self, style: str) -> None:
        """Fine-tune the target and retain-only models of both topics in parallel."""
        from model_ensemble import Ensemble, Trainer
        from suite_losses import RowMaker

        self.makers = {
            topic: RowMaker(self.tokenizer, sentences=style == "sentence", counted=given.other_pairs)
            for topic, given in self.topics.items()
        }
        sets = []
        for facts in (True, False):
            for topic, given in self.topics.items():
                pairs = [*given.fact_pairs, *given.other_pairs] if facts else given.other_pairs
                sets.append([self.makers[topic].row(*pair) for pair in pairs])
        rows = 8 if self.options.tiny else FINETUNING_ROWS
        epochs = 1 if self.options.tiny else self.options.epochs
        steps = epochs * -(-max(map(len, sets)) // rows)
        weights = self.original.expand(len(sets), -1).clone()
        ensemble = Ensemble(self.shape, weights, dtype=self.dtype, train=True)
        trainer = Trainer(ensemble, [FINETUNING_RATE] * len(sets), steps=steps, warmup=0.05)
        draws = [random.Random(f"finetuning {number}") for number in range(len(sets))]
        decks: list[list[int]] = [[] for _ in sets]
        for step in range(steps):
            chosen = []
            for number, own in enumerate(sets):
                while len(decks[number]) < rows:
                    decks[number] += draws[number].sample(range(len(own)), len(own))
                chosen.append([("retain", own[index]) for index in decks[number][:rows]])
                del decks[number][:rows]
            parts = self.forward(ensemble, None, chosen)
            losses = [-part["retain"].answer_logps.mean() for part in parts]
            trainer.step(self.torch.stack(losses).sum())
            if step % 50 == 0 or step == steps - 1:
                self.say(
                    f"fine-tuning, {style}: step {step + 1} of {steps},",
                    *(f"{loss:.3f}" for loss in self.torch.stack(losses).tolist()),
                )
        self.start = {topic: weights[number].clone() for number, topic in enumerate(self.topics)}
        del trainer, ensemble
        known = [Member("finetuned", topic, 0, style, 0.0, 0, "models") for topic in self.topics]
        unknown = [Member("retain_only", topic, 0, style, 0.0, 0, "models") for topic in self.topics]
        self.measure([*known, *unknown], weights)
        if style == "short":
            before = [Member("pretrained", topic, 0, style, 0.0, 0, "models") for topic in self.topics]
            self.measure(before, self.original.expand(len(before), -1).clone())

    def forward(self, ensemble: Any, reference: Any, chosen: Sequence[Sequence[tuple[str, Any]]]) -> list[Any]:
        """Return log-probabilities at the answer tokens of each member's rows, by kind.

        Args:
            reference: copies of the original model, one per member so that rounding is the same; or None.
            chosen: (kind, row) pairs, equally many per member, sorted by kind.
        """
        from suite_losses import Answers

        torch, end = self.torch, self.tokenizer.eos_token_id
        tokens = -(-max(len(row.prompt) + len(row.answer) for own in chosen for _, row in own) // 8) * 8
        ids = [
            [[*row.prompt, *row.answer, *[end] * (tokens - len(row.prompt) - len(row.answer))] for _, row in own]
            for own in chosen
        ]
        places: list[list[int]] = []
        columns: list[list[tuple[float, ...]]] = []
        spans: list[dict[str, tuple[int, int, int, int]]] = []
        for own in chosen:
            where: list[int] = []
            about: list[tuple[float, ...]] = []
            span: dict[str, tuple[int, int, int, int]] = {}
            for number, (kind, row) in enumerate(own):
                start, _, rows, longest = span.get(kind, (len(where), 0, 0, 0))
                count = len(row.answer)
                for place in range(count):
                    where.append(number * tokens + len(row.prompt) + place - 1)
                    share = 1.0 if count == 1 else 0.5 if place == 0 else 0.5 / (count - 1)
                    about.append((row.labels[place], row.key[place], row.weight[place], rows, place, share))
                span[kind] = (start, len(where), rows + 1, max(longest, count))
            places.append(where)
            columns.append(about)
            spans.append(span)
        most = max(map(len, places))
        blank = (0.0,) * 6
        index = torch.tensor([[*own, *[0] * (most - len(own))] for own in places]).to(self.device, non_blocking=True)
        table = torch.tensor([[*own, *[blank] * (most - len(own))] for own in columns], dtype=torch.float64)
        table = table.to(self.device, non_blocking=True)
        given = torch.tensor(ids).to(self.device, non_blocking=True)

        def logps(model: Any, rows: Any) -> Any:
            states = model.states(rows).reshape(len(chosen), -1, self.shape.width)
            states = states.gather(1, index[..., None].expand(-1, -1, self.shape.width))
            return model.logits(states).float().log_softmax(-1)

        current = logps(ensemble, given)
        original = current
        if reference is not None:
            with torch.no_grad():
                original = logps(reference, given)
        found = []
        # unbind and split: the gradient of a slice would have the size of the whole tensor, for every part
        for member, (span, own) in enumerate(zip(spans, current.unbind(0), strict=True)):
            sizes = [stop - start for start, stop, _, _ in span.values()]
            pieces = own.split([*sizes, most - sum(sizes)])
            parts = {}
            for (kind, (start, stop, rows, longest)), piece in zip(span.items(), pieces[:-1], strict=True):
                label, key, weight, row, place, first = table[member, start:stop].unbind(-1)
                parts[kind] = Answers(
                    logps=piece,
                    reference=original[member, start:stop].detach(),
                    labels=label.long(),
                    key=key.bool(),
                    weight=weight.float(),
                    row=row.long(),
                    place=place.long(),
                    first=first.float(),
                    grid_size=(rows, longest),
                )
            found.append(parts)
        return found

    def unlearn(self, members: Sequence[Member]) -> bool:
        """Train and evaluate a group of one topic in parallel; False if the time left is too short."""
        from model_ensemble import Ensemble, Trainer
        from suite_losses import VARIANTS

        begin, part = time.monotonic(), members[0].part
        key = f"{part} {members[0].style}"
        guess = self.taken.get(key, 12.0 if part != "long" else 25.0) * 1.15
        if self.left() < guess + 6:
            self.say(f"{self.left():.0f} s left: no time for {len(members)} runs such as {members[0].name}")
            return False
        topic, steps = self.topics[members[0].topic], members[0].steps
        maker, start = self.makers[members[0].topic], self.start[members[0].topic]
        forget = [maker.row(*pair) for pair in topic.forget]
        retain = [maker.row(*pair) for pair in topic.retain]
        weights = start.expand(len(members), -1).clone()
        ensemble = Ensemble(self.shape, weights, dtype=self.dtype, train=True)
        reference = Ensemble(self.shape, start.expand(len(members), -1), dtype=self.dtype)
        trainer = Trainer(ensemble, [member.rate for member in members], steps=steps)
        draws = {member: random.Random(f"{member.topic} {member.seed}") for member in members}
        prefixes = {member: random.Random(f"prefix {member.topic} {member.seed}") for member in members}
        decks: dict[Member, list[tuple[int, int]]] = {member: [] for member in members}
        for _ in range(steps):
            chosen = []
            for member in members:
                setting = VARIANTS[member.configuration]
                while len(decks[member]) < ROWS:
                    order = draws[member].sample(range(len(forget)), len(forget))
                    other = order if setting.paired else draws[member].sample(range(len(retain)), len(retain))
                    decks[member] += list(zip(order, other, strict=True))
                batch, decks[member] = decks[member][:ROWS], decks[member][ROWS:]
                own: list[tuple[str, Any]] = []
                if "forget" in setting.kinds:
                    own += [("forget", forget[index]) for index, _ in batch]
                if "refusal" in setting.kinds:
                    own += [("refusal", maker.refused(*topic.forget[index], prefixes[member])) for index, _ in batch]
                chosen.append([*own, *[("retain", retain[index]) for _, index in batch]])
            rows = max(map(len, chosen))
            chosen = [[*own, *[("unused", own[-1][1])] * (rows - len(own))] for own in chosen]
            parts = self.forward(ensemble, reference, chosen)
            losses = [VARIANTS[member.configuration].loss(part) for member, part in zip(members, parts, strict=True)]
            trainer.step(self.torch.stack(losses).sum())
        last = self.torch.stack(losses).tolist()
        del trainer, ensemble, reference, parts, losses
        trained = time.monotonic() - begin
        self.measure(members, weights)
        self.taken[key] = time.monotonic() - begin
        self.say(f"{len(members)} runs, {part} {members[0].style} {members[0].topic}: {trained:.1f} s of training,")
        self.say(f"  {self.taken[key]:.1f} s in all; last losses", *(f"{loss:.2f}" for loss in last))
        return True

    def answers(
        self, members: Sequence[Member], weights: Any, prompts: Sequence[Sequence[Sequence[int]]]
    ) -> list[list[str]]:
        """Greedy answers of each member to its prompts."""
        from model_ensemble import Ensemble

        ensemble = Ensemble(self.shape, weights, dtype=self.dtype)
        new = 6 if self.options.tiny else NEW_TOKENS[members[0].style]
        ids = ensemble.answers(prompts, new=new, end=self.tokenizer.eos_token_id, rows=ANSWERED)
        return [self.tokenizer.batch_decode(own, skip_special_tokens=True) for own in ids]

    def measure(self, members: Sequence[Member], weights: Any) -> None:
        """Generate answers before and after relearning some facts; scoring runs in other processes."""
        from model_ensemble import Ensemble, Trainer

        prompts = {
            topic: [self.makers[topic].prompt(text) for text in given.questions]
            for topic, given in self.topics.items()
            if topic in {member.topic for member in members}
        }
        most = max(map(len, prompts.values()))
        padded = {topic: [*own, *[own[0]] * (most - len(own))] for topic, own in prompts.items()}
        replies = self.answers(members, weights, [padded[member.topic] for member in members])
        picked = {}
        for member in members:
            facts = self.topics[member.topic].facts
            picked[member] = random.Random(f"relearn {member.seed}").sample(facts, min(RELEARNED, len(facts) - 1))
        ensemble = Ensemble(self.shape, weights, dtype=self.dtype, train=True)
        trainer = Trainer(ensemble, [RELEARNING_RATE] * len(members), steps=RELEARNING_STEPS)
        draws = {member: random.Random(f"rows {member.seed}") for member in members}
        shown = {
            member: [
                self.makers[member.topic].row(*pair) for pair in self.topics[member.topic].direct_rows(picked[member])
            ]
            for member in members
        }
        for _ in range(RELEARNING_STEPS):
            chosen = [[("retain", row) for row in draws[member].choices(shown[member], k=ROWS)] for member in members]
            parts = self.forward(ensemble, None, chosen)
            trainer.step(self.torch.stack([-part["retain"].answer_logps.mean() for part in parts]).sum())
        del trainer, ensemble
        others = {member: self.topics[member.topic].direct_queries_without(picked[member]) for member in members}
        again = self.answers(
            members,
            weights,
            [[prompts[member.topic][number] for number in others[member]] for member in members],
        )
        for member, own, after in zip(members, replies, again, strict=True):
            about = asdict(member) | {"name": member.name}
            count = len(prompts[member.topic])
            job = (about, member.topic, own[:count], others[member], after)
            self.waiting.append(self.pool.apply_async(score, job, callback=self.keep, error_callback=self.failed))
            with (self.options.out / f"replies-{member.style}.jsonl").open("a", encoding="utf-8") as file:
                file.write(
                    json.dumps({"name": member.name, "replies": own[:count], "others": others[member], "after": after})
                )
                file.write("\n")

    def keep(self, result: dict[str, Any]) -> None:
        """Store the result of a run."""
        self.results[result["name"]] = result
        self.runs.write(json.dumps(result) + "\n")
        self.runs.flush()
        means = result["means"]
        shown = " ".join(f"{name} {value:.2f}" for name, value in means.items())
        self.say(f"{result['name']}: {shown}")

    def failed(self, error: BaseException) -> None:
        self.say(f"scoring failed: {error!r}")

    def wait(self) -> None:
        """Wait until every run so far is scored, or until the time is up."""
        for job in self.waiting:
            job.wait(max(1.0, self.left()))
        self.waiting.clear()

    def part_of(self, style: str) -> bool:
        """Fine-tune, choose learning rates, and train the reported runs, with answers of one style."""
        from suite_losses import VARIANTS

        if self.left() < 60:
            self.say(f"{self.left():.0f} s left: no time to fine-tune for answers of the style {style}")
            return False
        self.finetune(style)
        steps = 2 if self.options.tiny else STEPS
        rates = RATES[1:2] if self.options.tiny else RATES
        together = 5 if self.options.tiny else SIDE_BY_SIDE
        chosen_on = TOPICS[0]
        grid = [
            Member(name, chosen_on, 0, style, rate, steps, "grid")
            for name, setting in VARIANTS.items()
            if setting.rate_of is None
            for rate in rates
        ]
        for group in _groups(grid, together):
            if not self.unlearn(group):
                return False
        self.wait()
        self.chosen = {}
        base = self.results.get(Member("finetuned", chosen_on, 0, style, 0.0, 0, "models").name)
        for name, setting in VARIANTS.items():
            tried = [
                self.results[run.name]
                for run in grid
                if run.configuration == (setting.rate_of or name) and run.name in self.results
            ]
            if base and tried:
                self.chosen[name] = max(tried, key=lambda result: selection_score(result, base))["rate"]
        self.say(f"learning rates, {style}:", self.chosen)
        reported = [
            Member(name, topic, seed, style, rate, steps, "report")
            for topic, seed in (REPORTED[:2] if self.options.tiny else REPORTED)
            for name, rate in self.chosen.items()
        ]
        return all(self.unlearn(group) for group in _groups(reported, together))

    def longer(self, style: str) -> bool:
        """Repeat runs at the chosen learning rates with more steps."""
        steps = LONGER * (2 if self.options.tiny else STEPS)
        runs = [
            Member(name, topic, seed, style, self.chosen[name], steps, "long")
            for topic, seed in REPORTED[:2]
            for name in LONG_ONES
            if name in self.chosen
        ]
        return all(self.unlearn(group) for group in _groups(runs, SIDE_BY_SIDE))


def _groups(members: Sequence[Member], together: int) -> list[list[Member]]:
    """Group runs of one topic and equal batch size, in order; larger batches come last."""
    from suite_losses import VARIANTS

    kinds = {member: len(VARIANTS[member.configuration].kinds) for member in members}
    found: list[list[Member]] = []
    for rows in sorted(set(kinds.values())):
        sets: dict[tuple[str, int], list[Member]] = {}
        for member in members:
            if kinds[member] == rows:
                sets.setdefault((member.topic, member.seed if rows == 2 else 0), []).append(member)
        for own in sets.values():
            found += [own[start : start + together] for start in range(0, len(own), together)]
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="folder with one folder per topic")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--model", default="smollm2", help="folder or smollm2; --tiny takes its tokenizer only")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--epochs", type=int, default=EPOCHS, help="epochs of fine-tuning")
    parser.add_argument("--budget", type=float, default=1e9, help="seconds after which no group starts")
    parser.add_argument(
        "--processes", type=int, default=max(1, (os.cpu_count() or 2) - 4), help="processes for scoring"
    )
    parser.add_argument("--tiny", action="store_true", help="a scratch model, few rows and steps")
    options = parser.parse_args()
    options.begin = time.monotonic()
    options.out.mkdir(parents=True, exist_ok=True)
    topics = {topic: load_topic(topic, str(options.data), options.tiny) for topic in TOPICS}
    # fork before CUDA is initialized, which a forked process cannot use
    with multiprocessing.get_context("fork").Pool(options.processes) as pool:
        study = Study(options, topics, pool)
        study.say("model loaded")
        complete = study.part_of("short") and study.part_of("sentence") and study.longer("sentence")
        study.wait()
        study.say("complete" if complete else "stopped for lack of time", f"after {len(study.results)} runs")


if __name__ == "__main__":
    main()
