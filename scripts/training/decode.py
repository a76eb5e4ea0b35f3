"""Batched sampling from the generator and batched scoring by the verifier."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from .model import Llama


@torch.inference_mode()
def sample(
    model: Llama,
    prompts: Sequence[list[int]],
    stop: set[int],
    temperature: float,
    rng: torch.Generator,
    max_new: int = 200,
    rows: int = 256,
) -> list[list[int]]:
    """Continue each prompt until a stop token (included) or ``max_new`` tokens.

    Temperature 0 is greedy. Prompts of similar length go together, ``rows`` at a time.
    """
    order = sorted(range(len(prompts)), key=lambda i: len(prompts[i]))
    out: list[list[int]] = [[] for _ in prompts]
    for at in range(0, len(order), rows):
        part = order[at : at + rows]
        found = _sample_batch(model, [prompts[i] for i in part], stop, temperature, rng, max_new)
        for i, ids in zip(part, found, strict=True):
            out[i] = ids
    return out


def _sample_batch(
    model: Llama,
    prompts: list[list[int]],
    stop: set[int],
    temperature: float,
    rng: torch.Generator,
    max_new: int,
) -> list[list[int]]:
    width = max(map(len, prompts))
    pads = torch.tensor([width - len(p) for p in prompts])
    ids = torch.tensor([[0] * (width - len(p)) + p for p in prompts])
    columns = torch.arange(width)
    visible = columns[None] >= pads[:, None]  # [rows, columns]
    causal = torch.ones(width, width, dtype=torch.bool).tril()
    # A pad row would attend to nothing, which gives NaN: let every token see itself.
    mask = (visible[:, None] & causal) | torch.eye(width, dtype=torch.bool)
    positions = (columns[None] - pads[:, None]).clamp(min=0)
    logits, cache = model.extend(ids, positions, mask[:, None], None)
    live = torch.arange(len(prompts))
    out: list[list[int]] = [[] for _ in prompts]
    stops = torch.tensor(sorted(stop))
    for _ in range(max_new):
        token = _draw(logits, temperature, rng)
        for row, value in zip(live.tolist(), token.tolist(), strict=True):
            out[row].append(value)
        going = ~torch.isin(token, stops)
        if not going.any():
            break
        if not going.all():
            live, token, pads, visible = live[going], token[going], pads[going], visible[going]
            cache = [(k[going], v[going]) for k, v in cache]
        visible = torch.cat((visible, torch.ones(len(live), 1, dtype=torch.bool)), dim=1)
        position = visible.shape[1] - 1 - pads
        logits, cache = model.extend(
            token[:, None], position[:, None], visible[:, None, None], cache
        )
    return out


def _draw(logits: Tensor, temperature: float, rng: torch.Generator) -> Tensor:
    if temperature == 0:
        return logits.argmax(dim=-1)
    noise = torch.empty_like(logits).exponential_(generator=rng)
    return (logits / temperature - noise.log()).argmax(dim=-1)


@torch.inference_mode()
def score(
    model: Llama,
    dialogues: Sequence[list[int]],
    positions: Sequence[list[int]],
    labels: tuple[int, int],
    rows: int = 64,
) -> list[list[float]]:
    """P("+") among ``labels`` ("+", "-") at the given positions of each dialogue."""
    order = sorted(range(len(dialogues)), key=lambda i: len(dialogues[i]))
    out: list[list[float]] = [[] for _ in dialogues]
    for at in range(0, len(order), rows):
        part = order[at : at + rows]
        width = max(len(dialogues[i]) for i in part)
        ids = torch.tensor([dialogues[i] + [0] * (width - len(dialogues[i])) for i in part])
        hidden = model(ids)
        where = [(row, p) for row, i in enumerate(part) for p in positions[i]]
        rows_at, columns_at = zip(*where, strict=True)
        logits = model.logits(hidden[list(rows_at), list(columns_at)])[:, list(labels)]
        values = iter(logits.float().softmax(dim=-1)[:, 0].tolist())
        for i in part:
            out[i] = [next(values) for _ in positions[i]]
    return out
