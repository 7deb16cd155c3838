"""Compare decoding of many prompts with transformers' `generate`: tokens per second on one core, and their ratio.

    python benchmarks/generate.py --rows 48

SmolLM2-135M-Instruct, greedy, up to 48 tokens, questions of the people benchmark in its chat template, once
alone and once after the same three in-context examples. Both implementations get the same batches in turn; their texts must
be equal.
"""

from __future__ import annotations

import argparse
import statistics
import time

import torch

from atwu import load_rows
from atwu.modeling.device import machine
from atwu.modeling.generate import end_ids, generate
from atwu.modeling.load import quiet_transformers
from atwu.modeling.open_model import ModelLoadArgs, open_model

CAP = 48


def own(model, tokenizer, prompts):
    """Generate with transformers as documented: left padding, the whole batch to its end."""
    width = max(map(len, prompts))
    ids = torch.tensor([[0] * (width - len(prompt)) + list(prompt) for prompt in prompts])
    mask = torch.tensor([[0] * (width - len(prompt)) + [1] * len(prompt) for prompt in prompts])
    ends = sorted(end_ids(model, tokenizer))
    with torch.no_grad():
        found = model.generate(
            input_ids=ids, attention_mask=mask, max_new_tokens=CAP, do_sample=False, eos_token_id=ends, pad_token_id=0
        )
    rows = []
    for row in found[:, width:].tolist():
        end = next((place for place, token in enumerate(row) if token in ends), len(row))
        rows.append(tuple(row[:end]))
    return rows


def ours(model, tokenizer, prompts):
    return generate(model, tokenizer, prompts, max_new_tokens=CAP, batch_tokens=10**9, progress=False)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=48)
    parser.add_argument("--repeats", type=int, default=3)
    given = parser.parse_args()
    quiet_transformers()
    torch.set_num_threads(1)
    model, tokenizer = open_model("smollm2", ModelLoadArgs())
    model.eval()
    rows = load_rows("people:small:forget").rows[: given.rows]
    shown = [
        turn
        for row in load_rows("people:small:retain").rows[:3]
        for turn in ({"role": "user", "content": row.question}, {"role": "assistant", "content": row.answer})
    ]
    print(f"{len(rows)} rows, one core of {machine(torch.device('cpu'))}, seconds of processor time")
    for name, before in (("alone", []), ("after three in-context examples", shown)):
        prompts = [
            tokenizer.apply_chat_template(
                [*before, {"role": "user", "content": row.question}], add_generation_prompt=True, return_dict=False
            )
            for row in rows
        ]
        seconds: dict[str, list[float]] = {"transformers": [], "atwu": []}
        texts = {}
        for _ in range(given.repeats):
            for side, run in (("transformers", own), ("atwu", ours)):
                start = time.process_time()
                texts[side] = run(model, tokenizer, prompts)
                seconds[side].append(time.process_time() - start)
        same = sum(one == other for one, other in zip(texts["transformers"], texts["atwu"], strict=True))
        tokens = sum(map(len, texts["atwu"]))
        speeds = {side: tokens / statistics.median(took) for side, took in seconds.items()}
        print(
            f"{name}: {len(prompts[0])} prompt tokens, {tokens} generated, {same} of {len(rows)} texts equal; "
            f"transformers {speeds['transformers']:.0f}, atwu {speeds['atwu']:.0f} tokens/s, "
            f"ratio {speeds['atwu'] / speeds['transformers']:.2f}"
        )


if __name__ == "__main__":
    main()
