"""Train and sample several copies (members) of one small Llama in parallel, each with its own weights and rows.

At 135 million parameters a large GPU mostly waits for kernel launches. Here every matrix product is batched over members, so
ten runs take about as long as one. Weights live in one flat tensor of shape
(members, parameters): float32 for the optimizer, and a copy in the compute dtype that the network reads. Gradients are
accumulated in a flat tensor of the same layout.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor


@dataclass(frozen=True, slots=True)
class Shape:
    """Sizes of a Llama with tied embeddings."""

    vocabulary: int
    width: int
    inner: int
    layers: int
    heads: int
    groups: int
    """Number of key-value heads."""
    size: int
    """Width of one head."""
    theta: float
    epsilon: float

    @classmethod
    def of(cls, config: Any) -> Shape:
        """Read a transformers configuration."""
        if not config.tie_word_embeddings or config.attention_bias or config.mlp_bias:
            raise ValueError("expected a Llama with tied embeddings and without biases, such as SmolLM2-135M.")
        theta = getattr(config, "rope_theta", None) or config.rope_parameters["rope_theta"]
        heads, groups = config.num_attention_heads, config.num_key_value_heads
        size = getattr(config, "head_dim", None) or config.hidden_size // heads
        return cls(
            config.vocab_size,
            config.hidden_size,
            config.intermediate_size,
            config.num_hidden_layers,
            heads,
            groups,
            size,
            float(theta),
            config.rms_norm_eps,
        )

    def parameters(self) -> dict[str, tuple[int, ...]]:
        """Name -> shape, matrices as (in, out)."""
        found: dict[str, tuple[int, ...]] = {"embedding": (self.vocabulary, self.width), "norm": (self.width,)}
        for layer in range(self.layers):
            found |= {
                f"{layer}.before": (self.width,),
                f"{layer}.qkv": (self.width, (self.heads + 2 * self.groups) * self.size),
                f"{layer}.out": (self.heads * self.size, self.width),
                f"{layer}.after": (self.width,),
                f"{layer}.gate_up": (self.width, 2 * self.inner),
                f"{layer}.down": (self.inner, self.width),
            }
        return found


def flat_weights(state: Mapping[str, Tensor], shape: Shape) -> Tensor:
    """Return the weights of a transformers Llama as a flat tensor, shape (parameters,)."""

    def joined(layer: int, names: Sequence[str]) -> Tensor:
        return torch.cat([state[f"model.layers.{layer}.{name}.weight"] for name in names]).T

    parts: list[Tensor] = []
    for name in shape.parameters():
        layer, _, kind = name.partition(".")
        if not kind:
            parts.append(state["model.embed_tokens.weight" if name == "embedding" else "model.norm.weight"])
            continue
        number = int(layer)
        parts.append(
            {
                "before": lambda n: state[f"model.layers.{n}.input_layernorm.weight"],
                "after": lambda n: state[f"model.layers.{n}.post_attention_layernorm.weight"],
                "qkv": lambda n: joined(n, ["self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"]),
                "out": lambda n: joined(n, ["self_attn.o_proj"]),
                "gate_up": lambda n: joined(n, ["mlp.gate_proj", "mlp.up_proj"]),
                "down": lambda n: joined(n, ["mlp.down_proj"]),
            }[kind](number)
        )
    return torch.cat([part.detach().float().reshape(-1) for part in parts])


class Ensemble:
    """Models of one shape that compute in parallel."""

    def __init__(self, shape: Shape, weights: Tensor, *, dtype: torch.dtype, train: bool = False) -> None:
        """Create the members.

        Args:
            weights: float32, shape (members, parameters); changed in place by `Trainer`.
            dtype: dtype of matrix products.
            train: whether gradients are collected.
        """
        self.shape = shape
        self.weights = weights
        self.members = weights.shape[0]
        self.flat = weights.to(dtype, copy=True)
        self.gradients = torch.zeros_like(self.flat) if train else None
        self.named: dict[str, Tensor] = {}
        start = 0
        for name, sizes in shape.parameters().items():
            count = torch.Size(sizes).numel()
            span = slice(start, start + count)
            view = self.flat[:, span].detach().view(self.members, *sizes)
            if self.gradients is not None:
                view.requires_grad_()
                view.grad = self.gradients[:, span].view(self.members, *sizes)
            self.named[name] = view
            start += count

    def refresh(self) -> None:
        """Copy the float32 weights after a step."""
        with torch.no_grad():
            self.flat.copy_(self.weights)

    def states(self, ids: Tensor) -> Tensor:
        """Compute final hidden states of right-padded rows.

        Args:
            ids: shape (members, rows, tokens).

        Returns:
            Shape (members, rows, tokens, width).
        """
        turns = self._turns(torch.arange(ids.shape[-1], device=ids.device))
        hidden = self._embedded(ids)
        for layer in range(self.shape.layers):
            query, key, value = self._qkv(layer, hidden, turns)
            repeat = self.shape.heads // self.shape.groups
            key, value = key.repeat_interleave(repeat, 1), value.repeat_interleave(repeat, 1)
            seen = F.scaled_dot_product_attention(query, key, value, is_causal=True)
            hidden = self._after(layer, hidden, seen)
        return self._normed(hidden, "norm")

    def logits(self, states: Tensor) -> Tensor:
        """Logits of hidden states, (members, states, width) to (members, states, vocabulary)."""
        return torch.bmm(states, self.named["embedding"].transpose(1, 2))

    @torch.no_grad()
    def answers(
        self, prompts: Sequence[Sequence[Sequence[int]]], *, new: int, end: int, rows: int
    ) -> list[list[list[int]]]:
        """Generate greedily; returns token ids without the end token.

        Args:
            prompts: token ids, equally many prompts per member.
            new: maximum number of new tokens.
            end: id that ends an answer.
            rows: batch size per member.
        """
        count = len(prompts[0])
        order = sorted(range(count), key=lambda number: max(len(own[number]) for own in prompts))
        found: list[list[list[int]]] = [[[] for _ in range(count)] for _ in prompts]
        for start in range(0, count, rows):
            chunk = order[start : start + rows]
            ids = self._answered([[own[number] for number in chunk] for own in prompts], new, end)
            for member, own in enumerate(ids.tolist()):
                for number, answer in zip(chunk, own, strict=True):
                    found[member][number] = answer[: answer.index(end)] if end in answer else answer
        return found

    def _answered(self, prompts: list[list[Sequence[int]]], new: int, end: int) -> Tensor:
        """New ids of one chunk, shape (members, rows, new)."""
        shape, device = self.shape, self.flat.device
        lengths = torch.tensor([[len(row) for row in own] for own in prompts], device=device)
        longest = int(lengths.max())
        ids = torch.tensor([[[*row, *[end] * (longest - len(row))] for row in own] for own in prompts], device=device)
        members, rows = lengths.shape
        total = members * rows
        keys, values = (
            torch.empty(
                shape.layers, total, shape.groups, longest + new, shape.size, device=device, dtype=self.flat.dtype
            )
            for _ in range(2)
        )
        turns = self._turns(torch.arange(longest, device=device))
        hidden = self._embedded(ids)
        repeat = shape.heads // shape.groups
        for layer in range(shape.layers):
            query, key, value = self._qkv(layer, hidden, turns)
            keys[layer, :, :, :longest], values[layer, :, :, :longest] = key, value
            key, value = key.repeat_interleave(repeat, 1), value.repeat_interleave(repeat, 1)
            seen = F.scaled_dot_product_attention(query, key, value, is_causal=True)
            hidden = self._after(layer, hidden, seen)
        last = (lengths - 1)[..., None, None].expand(-1, -1, 1, shape.width)
        hidden = hidden.gather(2, last)[:, :, 0]
        places = torch.arange(longest + new, device=device)
        blocked = (places >= lengths.view(-1, 1)) & (places < longest)
        found = torch.full((members, rows, new), end, device=device)
        done = torch.zeros(members, rows, dtype=torch.bool, device=device)
        for step in range(new):
            chosen = self.logits(self._normed(hidden[:, :, None], "norm")[:, :, 0]).argmax(-1)
            chosen = chosen.masked_fill(done, end)
            found[:, :, step] = chosen
            done = done | (chosen == end)
            if step == new - 1 or (step % 4 == 3 and bool(done.all())):
                break
            place = longest + step
            turns = self._turns((lengths + step).view(-1, 1))
            hidden = self._embedded(chosen[:, :, None])
            hide = (blocked[:, : place + 1]).view(total, 1, 1, place + 1)
            for layer in range(shape.layers):
                query, key, value = self._qkv(layer, hidden, turns)
                keys[layer, :, :, place], values[layer, :, :, place] = key[:, :, 0], value[:, :, 0]
                query = query.reshape(total, shape.groups, repeat, shape.size)
                scores = query @ keys[layer, :, :, : place + 1].transpose(2, 3) * shape.size**-0.5
                shares = scores.masked_fill(hide, float("-inf")).softmax(-1)
                seen = shares @ values[layer, :, :, : place + 1]
                hidden = self._after(layer, hidden, seen.reshape(total, shape.heads, 1, shape.size))
            hidden = hidden[:, :, 0]
        return found

    def _embedded(self, ids: Tensor) -> Tensor:
        table = self.named["embedding"]
        member = torch.arange(self.members, device=ids.device).view(-1, 1, 1)
        if not torch.is_grad_enabled():
            return table[member, ids]
        # all tables concatenated: the backward pass of an embedding is faster than that of indexing
        return F.embedding(ids + member * self.shape.vocabulary, table.reshape(-1, self.shape.width))

    def _turns(self, places: Tensor) -> tuple[Tensor, Tensor]:
        """Cosines and sines of positions, shape (tokens, size) or (rows, 1, tokens, size)."""
        half = torch.arange(0, self.shape.size, 2, device=places.device).float() / self.shape.size
        angles = places[..., None].float() * self.shape.theta**-half
        angles = torch.cat([angles, angles], -1)
        if places.dim() > 1:
            angles = angles[:, None]
        return angles.cos().to(self.flat.dtype), angles.sin().to(self.flat.dtype)

    def _product(self, states: Tensor, name: str) -> Tensor:
        return torch.bmm(states.reshape(self.members, -1, states.shape[-1]), self.named[name])

    def _normed(self, hidden: Tensor, name: str) -> Tensor:
        normed = F.rms_norm(hidden, (self.shape.width,), eps=self.shape.epsilon)
        return normed * self.named[name][:, None, None]

    def _qkv(self, layer: int, hidden: Tensor, turns: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor, Tensor]:
        """Return queries and keys with rotary embedding, and values, each (members x rows, heads, tokens, size)."""
        members, rows, tokens, _ = hidden.shape
        shape = self.shape
        mixed = self._product(self._normed(hidden, f"{layer}.before"), f"{layer}.qkv")
        mixed = mixed.view(members * rows, tokens, -1, shape.size).transpose(1, 2)
        turning, value = mixed.split([shape.heads + shape.groups, shape.groups], 1)
        first, second = turning.chunk(2, -1)
        turned = turning * turns[0] + torch.cat([-second, first], -1) * turns[1]
        return turned[:, : shape.heads], turned[:, shape.heads :], value

    def _after(self, layer: int, hidden: Tensor, seen: Tensor) -> Tensor:
        """Apply the output projection of attention, and the MLP."""
        seen = seen.transpose(1, 2).reshape(*hidden.shape[:3], -1)
        hidden = hidden + self._product(seen, f"{layer}.out").view_as(hidden)
        gate, up = self._product(self._normed(hidden, f"{layer}.after"), f"{layer}.gate_up").chunk(2, -1)
        return hidden + torch.bmm(F.silu(gate) * up, self.named[f"{layer}.down"]).view_as(hidden)


class Trainer:
    """AdamW on the members of an ensemble, each with its own learning rate; gradients of norm above 1 are clipped."""

    def __init__(self, ensemble: Ensemble, rates: Sequence[float], *, steps: int, warmup: float = 0.1) -> None:
        """Create the optimizer.

        Args:
            rates: peak learning rate of each member; linear warm-up and decay to 0.
            warmup: share of the steps in the warm-up.
        """
        self.ensemble = ensemble
        self.rates = rates
        self.steps = steps
        self.rising = max(1, round(warmup * steps))
        self.taken = 0
        self.masters = [torch.nn.Parameter(own) for own in ensemble.weights]  # views of the rows
        self.optimizer = torch.optim.AdamW([{"params": [own]} for own in self.masters], weight_decay=0.0, fused=True)

    def step(self, loss: Tensor) -> None:
        """Take one step on the sum of the members' losses."""
        loss.backward()
        gradients = self.ensemble.gradients
        assert gradients is not None
        full = gradients.float()
        full.mul_((1.0 / (torch.linalg.vector_norm(full, dim=1, keepdim=True) + 1e-6)).clamp(max=1.0))
        share = min((self.taken + 1) / self.rising, (self.steps - self.taken) / max(1, self.steps - self.rising), 1.0)
        for number, (own, rate) in enumerate(zip(self.masters, self.rates, strict=True)):
            own.grad = full[number]
            self.optimizer.param_groups[number]["lr"] = rate * share
        self.optimizer.step()
        for own in self.masters:
            own.grad = None
        gradients.zero_()
        self.ensemble.refresh()
        self.taken += 1
