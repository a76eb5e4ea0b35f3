"""Simulated runs of a few problems."""

from dataclasses import replace

from tts.lab.simulation.fleet import simulated_deployment
from tts.lab.simulation.scenario import Scenario
from tts.lab.simulation.workload import CRITIQUE_SPREAD, lengths, typical
from tts.strategies.catalog import find_strategy


def scenario(strategy="beam-search", *, gpu="h100", gpus=2, n=8, critiques=None, **changes):
    """Six problems, three at a time; `critiques`: the mean tokens of what the verifier writes."""
    given = {"n": n} if strategy != "greedy" else {}
    deployment = simulated_deployment(gpu, gpus, critique_tokens=critiques)
    parameters = find_strategy(strategy).configure(given, context=4096)
    workload = typical()
    if critiques:
        workload = replace(workload, critiques=lengths(critiques, CRITIQUE_SPREAD))
    plain = Scenario(deployment, "time-sliced", workload, parameters, problems=6, in_flight=3)
    return replace(plain, **changes)
