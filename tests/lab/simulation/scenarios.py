"""Simulated runs of a few problems."""

from dataclasses import replace

from tts.lab.simulation.published_pairs import simulated_deployment
from tts.lab.simulation.scenario import Scenario
from tts.lab.simulation.workload import typical
from tts.strategies.catalog import find_strategy


def scenario(strategy="beam-search", *, gpu="h100", gpus=2, n=8, **changes):
    """Six problems, three at a time."""
    given = {"n": n} if strategy != "greedy" else {}
    deployment = simulated_deployment(gpu, gpus)
    parameters = find_strategy(strategy).configure(given, context=4096)
    plain = Scenario(deployment, "time-sliced", typical(), parameters, problems=6, in_flight=3)
    return replace(plain, **changes)
