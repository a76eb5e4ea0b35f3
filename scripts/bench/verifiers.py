"""What a score costs with each kind of verifier, side by side on the demo's engines.

Puts the same paths to the engine of each kind, in this process: solutions of demo problems level
by level, a right step and one with a slip, as a search would. Prints CPU milliseconds and tokens
per score, also as ratios to labels. Kinds take turns, round by round, each from an empty prefix
cache; a figure is the median of the rounds.

    scripts/run bench.verifiers --problems 40 --rounds 5
"""

from __future__ import annotations

import argparse
import statistics
import threading
import time

import numpy as np

from scripts.bench.engine_host import EngineHost
from tts.build import paths
from tts.build.builder import build_engines
from tts.build.manifest import read_engine_config
from tts.build.spec import Deployment, load_deployment
from tts.build.tokenizer import Ids
from tts.datasets.load import load_problems
from tts.engines.generate_request import GenerateRequest
from tts.prompting import Models
from tts.session.embedded import limits_of

KINDS = ("demo", "demo-classification", "demo-value", "demo-prompted", "demo-likelihood")
STEPS = 6
"""Steps of each path: what a demo problem takes in the mean."""


def dialogues(deployment: Deployment, problems: int) -> list[list[Ids]]:
    """For each problem what scores its paths, level by level: two siblings, the first goes on."""
    form = Models.load(deployment).verifier
    asked = []
    for index, problem in enumerate(load_problems("demo", limit=problems, seed=7)):
        random = np.random.default_rng(index)
        levels, above, value = [], None, int(random.integers(10, 50))
        for number in range(1, STEPS + 1):
            added = int(random.integers(2, 9))
            steps = [
                f"## Step {number}: {value} + {added} = {value + added + slip}" for slip in (0, 10)
            ]
            level = [
                form.first(problem.question, step) if above is None else form.extend(above, step)
                for step in steps
            ]
            levels.append(level)
            above, value = level[0], value + added
        asked.append([ids for level in levels for ids in level])
    return asked


def opened(deployment: Deployment) -> EngineHost:
    """The verifier's engine, with the limits of the deployment."""
    folder, spec = paths.engine_dir(deployment.name, "verifier"), deployment.engines()["verifier"]
    config = read_engine_config(folder)
    return EngineHost(folder, config, limits_of(spec, config, labels=2))


def seconds_of(host: EngineHost, asked: list[list[Ids]]) -> float:
    """CPU seconds of this process for all scores, from an empty prefix cache."""
    emptied = threading.Event()

    def empty() -> None:
        host.reset_prefix_cache()
        emptied.set()

    host.call(empty)
    emptied.wait()
    warm_up = GenerateRequest(np.zeros(1, np.int64), 1, return_generation_logits=True)
    done = threading.Semaphore(0)
    host.submit(warm_up, lambda response: done.release())
    done.acquire()
    started = time.process_time()
    for level in range(STEPS):  # the siblings of all problems together, as in a search
        requests = [ids for problem in asked for ids in problem[2 * level : 2 * level + 2]]
        for ids in requests:
            request = GenerateRequest(ids.astype(np.int64), 1, return_generation_logits=True)
            host.submit(request, lambda response: done.release())
        for _ in requests:
            done.acquire()
    return time.process_time() - started


def main() -> None:
    """Score the same paths with each kind of verifier, and print what a score costs."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--problems", type=int, default=40, help="problems (%(default)s)")
    parser.add_argument("--rounds", type=int, default=5, help="rounds (%(default)s)")
    arguments = parser.parse_args()
    deployments = {name: load_deployment(name) for name in KINDS}
    for deployment in deployments.values():
        build_engines(deployment, roles=["verifier"], verify=False, say=lambda line: None)
    asked = {name: dialogues(d, arguments.problems) for name, d in deployments.items()}
    hosts = {name: opened(deployment) for name, deployment in deployments.items()}
    seconds: dict[str, list[float]] = {name: [] for name in KINDS}
    for _ in range(arguments.rounds):
        for name, host in hosts.items():
            seconds[name].append(seconds_of(host, asked[name]))
    for host in hosts.values():
        host.close()
    scores = arguments.problems * STEPS * 2
    tokens = {name: sum(len(ids) for p in asked[name] for ids in p) / scores for name in KINDS}
    print(f"{scores} scores, {arguments.rounds} rounds; ms are CPU time, lowest and highest round")
    print(f"{'':22} {'ms/score':>9} {'of rounds':>13} {'x demo':>7} {'tokens':>7} {'x demo':>7}")
    base = statistics.median(seconds["demo"])
    for name in KINDS:
        middle = statistics.median(seconds[name])
        least, most = (1000 * f(seconds[name]) / scores for f in (min, max))
        print(
            f"{name:22} {1000 * middle / scores:9.2f} {f'{least:.2f}-{most:.2f}':>13} "
            f"{middle / base:7.2f} {tokens[name]:7.1f} {tokens[name] / tokens['demo']:7.2f}"
        )


if __name__ == "__main__":
    main()
