"""Simulate the schedules with a verifier that writes critiques: which is first in which case?

Each row is a case: GPUs, the verifier's size, a critique's mean length, problems in flight. The
generator is Llama-3.2-1B, the strategy beam search. A row is printed when it is done, as
benchmarks/README.md has it.

    scripts/run bench.writing_verifiers
    scripts/run bench.writing_verifiers --gpus 1 --verifier 1b --critique-tokens 100 --in-flight 4
"""

from __future__ import annotations

import argparse
from dataclasses import replace
from itertools import product
from typing import get_args

from tts.lab.simulation.published_pairs import WRITER, simulated_deployment
from tts.lab.simulation.scenario import Scenario, simulate
from tts.lab.simulation.workload import CRITIQUE_SPREAD, lengths, typical
from tts.scheduling import ScheduleName
from tts.strategies.catalog import find_strategy

VERIFIERS = {"1b": "Llama-3.2-1B-Instruct", "8b": WRITER}
COLUMNS = ("GPUs", "verifier", "critique", "in flight", "decoupled, s")


def scenario_of(gpus: int, verifier: str, tokens: int, in_flight: int) -> Scenario:
    """What is simulated in a row: twice as many problems as run at a time."""
    deployment = simulated_deployment(
        "h100", gpus, critique_tokens=tokens, writer=VERIFIERS[verifier]
    )
    parameters = find_strategy("beam-search").configure(
        {"n": 16}, context=deployment.generator.max_seq_len
    )
    workload = replace(typical(), critiques=lengths(tokens, CRITIQUE_SPREAD))
    return Scenario(deployment, "time-sliced", workload, parameters, 2 * in_flight, in_flight)


def main() -> None:
    """Simulate what the command line asks for, and print the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--gpus", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--verifier", choices=VERIFIERS, nargs="+", default=list(VERIFIERS))
    parser.add_argument("--critique-tokens", type=int, nargs="+", default=[100, 400, 800])
    parser.add_argument("--in-flight", type=int, nargs="+", default=[4, 16, 64])
    schedules = get_args(ScheduleName)
    parser.add_argument("--schedule", choices=schedules, nargs="+", default=schedules[:-1])
    options = parser.parse_args()
    print(f"| {' | '.join((*COLUMNS, *options.schedule, 'off / auto'))} |")
    print(f"|{'---|' * (len(COLUMNS) + len(options.schedule) + 1)}")
    for row in product(options.in_flight, options.gpus, options.verifier, options.critique_tokens):
        in_flight, gpus, verifier, tokens = row
        scenario = scenario_of(gpus, verifier, tokens, in_flight)
        mine = simulate(scenario, "decoupled")
        others = [simulate(scenario, schedule) for schedule in options.schedule]
        others.append(simulate(replace(scenario, speculation="off"), "decoupled"))
        assert {each.digest for each in others} == {mine.digest}, "the trees differ"
        ratios = [f"{other.wall_s / mine.wall_s:.2f}" for other in others]
        cells = (str(gpus), verifier, str(tokens), str(in_flight), f"{mine.wall_s:.1f}", *ratios)
        print(f"| {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main()
