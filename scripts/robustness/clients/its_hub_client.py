"""its_hub's own algorithms over HTTP: `python its_hub_client.py ADDRESS PROBLEMS.jsonl`.

Its step generation and searches decide; the gateway's language model and verifier answer.
"""

from __future__ import annotations

import asyncio
import importlib.metadata
import json
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from its_hub.core.algorithms.beam_search import BeamSearch
from its_hub.core.algorithms.particle_gibbs import ParticleFiltering
from its_hub.core.lms.step_generation import StepGeneration

sys.path.append(str(next(p for p in Path(__file__).parents if (p / "examples").is_dir())))
from examples.its_hub_on_gateway import (
    GatewayLanguageModel,
    GatewayRewardModel,
)

BUDGET = 8

Algorithm = Callable[[StepGeneration, GatewayRewardModel], Any]
"""What makes one of its searches, whose types it does not say."""


async def accuracy(address: str, problems: list[dict[str, str]], algorithm: Algorithm) -> str:
    """How many of the problems an algorithm of its solves."""
    steps = StepGeneration(20, "\n\n", stop_token=r"\boxed")
    search = algorithm(steps, GatewayRewardModel(address, "demo"))
    model = GatewayLanguageModel(address, "demo")
    right = 0
    for problem in problems:
        found = await search.ainfer(model, problem["question"], BUDGET)
        boxed = re.findall(r"\\boxed\{([^}]*)\}", found["content"])
        right += bool(boxed) and boxed[-1] == problem["answer"]
    return f"{right} of {len(problems)}"


def main() -> None:
    """Solve the problems with both algorithms."""
    address, file = sys.argv[1:]
    problems = [json.loads(line) for line in Path(file).read_text().splitlines()]
    seen = {"its_hub": importlib.metadata.version("its_hub"), "budget": BUDGET}
    seen["beam search"] = asyncio.run(
        accuracy(address, problems, lambda steps, prm: BeamSearch(steps, prm, 4))
    )
    seen["particle filtering"] = asyncio.run(accuracy(address, problems, ParticleFiltering))
    print(json.dumps(seen))


if __name__ == "__main__":
    main()
