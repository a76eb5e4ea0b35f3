"""What a pair is made of: its task, the sizes of its models, and how long each stage trains."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from transformers import LlamaConfig

from scripts.training.models import shape
from scripts.training.training import Schedule
from tts.datasets.demo import DEMO as DEMO_TASK
from tts.datasets.demo import ChainTask


@dataclass(frozen=True)
class Recipe:
    """A pair to train."""

    name: str
    task: ChainTask
    generator: LlamaConfig
    generator_schedule: Schedule
    generator_target: float
    """Stop at this share of right samples on the validation set."""
    trunk: LlamaConfig
    trunk_schedule: Schedule
    verifier_layers: int
    """The verifier is the trunk with more layers."""
    verifier_tokens: int
    """Tokens of a training step of the trunk and of the verifier."""
    detect_schedule: Schedule
    judge_schedule: Schedule
    refine_schedule: Schedule | None
    """A second round of judging; None: the first one is the last."""


DEMO: Final = Recipe(
    name="demo",
    task=DEMO_TASK,
    generator=shape(hidden=128, layers=3, heads=4, intermediate=352, tied=True),
    generator_schedule=Schedule(steps=1300, rate=2e-3, warmup=60, floor=0.05, average=0.96),
    generator_target=0.40,
    trunk=shape(hidden=160, layers=4, heads=5, intermediate=432, tied=False),
    trunk_schedule=Schedule(steps=1200, rate=2e-3, average=0.9),
    verifier_layers=7,
    verifier_tokens=4096,
    detect_schedule=Schedule(steps=500, rate=1e-3, floor=0.2, average=0.9),
    judge_schedule=Schedule(steps=1400, rate=4e-4, average=0.95),
    refine_schedule=Schedule(steps=1000, rate=3e-4, average=0.95),
)

REMAINDERS: Final = Recipe(
    name="remainders",
    task=ChainTask("tts-remainders", ("+", "-", "*", "%"), lowest=2, highest=60),
    generator=shape(hidden=96, layers=4, heads=3, intermediate=256, tied=True),
    generator_schedule=Schedule(steps=1300, rate=2e-3, warmup=60, floor=0.05, average=0.96),
    generator_target=0.36,
    trunk=shape(hidden=128, layers=3, heads=4, intermediate=352, tied=False),
    trunk_schedule=Schedule(steps=450, rate=2e-3, average=0.9),
    verifier_layers=5,
    verifier_tokens=2048,
    detect_schedule=Schedule(steps=200, rate=1e-3, floor=0.2, average=0.9),
    judge_schedule=Schedule(steps=300, rate=6e-4, average=0.95),
    refine_schedule=Schedule(steps=800, rate=1e-3, average=0.95),
)
"""A pair with a weaker verifier, from a fifth of the demo's tokens: to measure strategies on."""

RECIPES: Final = {recipe.name: recipe for recipe in (DEMO, REMAINDERS)}
