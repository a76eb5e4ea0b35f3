"""A resumable training loop."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

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
    state: Path,
    stop: Callable[[int, dict[str, Tensor]], bool] | None = None,
    stop_every: int = 50,
) -> dict[str, Tensor]:
    """Train until the schedule ends or ``stop(step, weights)`` says so; returns the weights.

    ``losses(step)`` must depend on the step alone. The state is saved to the file ``state`` every
    minute, and a later call goes on from there.
    """
    opts = optimisers(model, schedule.rate)
    rates = [[g["lr"] for g in opt.param_groups] for opt in opts]
    average = {k: v.clone() for k, v in model.state_dict().items()}
    first, spent = 0, 0.0
    if state.exists():
        saved = torch.load(state, weights_only=True)
        model.load_state_dict(saved["model"])
        average, first, spent = saved["average"], saved["step"], saved["spent"]
        for opt, value in zip(opts, saved["opts"], strict=True):
            opt.load_state_dict(value)
        print(f"{name}: goes on from step {first}", flush=True)
    started = kept = time.monotonic()
    shown: dict[str, float] = {}
    count = 0  # steps in the sums of ``shown``
    for step in range(first, schedule.steps):
        for opt, base in zip(opts, rates, strict=True):
            for group, rate in zip(opt.param_groups, base, strict=True):
                group["lr"] = rate * schedule.factor(step)
        found = losses(step)
        for opt in opts:
            opt.zero_grad()
        torch.autograd.backward(found["loss"])
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        for opt in opts:
            opt.step()
        decay = min(schedule.average, (step + 1) / (step + 10))
        for key, value in model.state_dict().items():
            average[key].lerp_(value, 1 - decay)
        for key, value in found.items():
            shown[key] = shown.get(key, 0.0) + value.item()
        done = step + 1
        count += 1
        elapsed = time.monotonic() - started
        if done % 50 == 0:
            text = ", ".join(f"{key} {value / count:.4f}" for key, value in shown.items())
            left = (schedule.steps - done) * elapsed / (done - first)
            print(
                f"{name}: step {done}/{schedule.steps}, {text}, "
                f"{spent + elapsed:.0f} s, at most {left:.0f} s to go",
                flush=True,
            )
            shown, count = {}, 0
        if time.monotonic() - kept > 60:
            _save(state, model, average, opts, done, spent + elapsed)
            kept = time.monotonic()
        if stop is not None and done % stop_every == 0 and stop(done, average):
            break
    return average


def _save(
    state: Path,
    model: nn.Module,
    average: dict[str, Tensor],
    opts: list[torch.optim.Optimizer],
    step: int,
    spent: float,
) -> None:
    fresh = state.with_suffix(".new")
    torch.save(
        {
            "model": model.state_dict(),
            "average": average,
            "opts": [opt.state_dict() for opt in opts],
            "step": step,
            "spent": spent,
        },
        fresh,
    )
    fresh.replace(state)
