"""The training loop."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn

Losses = dict[str, Tensor]
"""``loss`` is minimised; the other entries are only shown."""


@dataclass(frozen=True)
class Schedule:
    """How long and how fast to train."""

    steps: int
    rate: float
    """AdamW's learning rate (embeddings, norms, heads); Muon's is ten times that."""
    warmup: int = 50
    floor: float = 0.02
    """The share of the rate that the cosine ends at."""
    average: float = 0.0
    """Decay of the running average of the weights; 0: none is kept."""

    def factor(self, step: int) -> float:
        """What to multiply the rate with at a step."""
        cosine = 0.5 * (1 + math.cos(math.pi * step / self.steps))
        return min(1.0, (step + 1) / self.warmup) * (self.floor + (1 - self.floor) * cosine)


def optimisers(model: nn.Module, rate: float) -> list[torch.optim.Optimizer]:
    """Muon for the matrices of the layers, AdamW for all else.

    Muon needs less than half the tokens of AdamW here, at five percent more time per step.
    """
    inner: list[Tensor] = []
    outer: list[Tensor] = []
    for name, p in model.named_parameters():
        (inner if p.dim() == 2 and "layers." in name else outer).append(p)
    return [
        torch.optim.Muon(inner, lr=10 * rate, momentum=0.95, weight_decay=0.01),
        torch.optim.AdamW(outer, lr=rate, betas=(0.9, 0.98), weight_decay=0.01, fused=True),
    ]


def train(
    name: str,
    model: nn.Module,
    schedule: Schedule,
    losses: Callable[[int], Losses],
    stop: Callable[[int, dict[str, Tensor]], bool] = lambda step, weights: False,
) -> dict[str, Tensor]:
    """Train until the schedule ends or ``stop(step, weights)`` says so; returns the weights.

    It is asked every 50 steps. ``losses(step)`` depends on the step alone.
    """
    opts = optimisers(model, schedule.rate)
    rates = [[group["lr"] for group in opt.param_groups] for opt in opts]
    average = {key: value.clone() for key, value in model.state_dict().items()}
    started = time.monotonic()
    sums: dict[str, float] = {}
    for number in range(1, schedule.steps + 1):
        for opt, base in zip(opts, rates, strict=True):
            opt.zero_grad()
            for group, rate in zip(opt.param_groups, base, strict=True):
                group["lr"] = rate * schedule.factor(number - 1)
        step_losses = losses(number - 1)
        torch.autograd.backward(step_losses["loss"])
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        for opt in opts:
            opt.step()
        decay = min(schedule.average, number / (number + 9))
        for key, value in model.state_dict().items():
            average[key].lerp_(value, 1 - decay)
        for key, value in step_losses.items():
            sums[key] = sums.get(key, 0.0) + value.item()
        if number % 50 == 0:
            text = ", ".join(f"{key} {value / 50:.4f}" for key, value in sums.items())
            seconds = time.monotonic() - started
            seconds_left = seconds * (schedule.steps - number) / number
            print(
                f"{name}: step {number}/{schedule.steps}, {text}, {seconds:.0f} s, "
                f"at most {seconds_left:.0f} s to go",
                flush=True,
            )
            sums = {}
            if stop(number, average):
                break
    return average


def share(flags: Tensor, among: Tensor) -> Tensor:
    """How many of some are true; all, where there are none."""
    return flags[among].float().mean() if among.any() else torch.tensor(1.0)
