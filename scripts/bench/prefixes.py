"""What prefix reuse saves and what it would break: a recorded run's requests on the bare engines.

Sends every generator and verifier request of a run to an engine in this process: without reuse one
by one (the reference), with reuse but without the prefix guard, with reuse and guard, and without
reuse. Prints how many answers differ from the reference, CPU seconds, and the steps they took.

    scripts/run bench.prefixes demo runs/RUN
"""

from __future__ import annotations

import argparse
import threading
import time
from functools import partial
from pathlib import Path
from typing import Any

from scripts.bench.engine_host import EngineHost
from tts.build import paths
from tts.build.builder import require_current
from tts.build.spec import Deployment, load_deployment
from tts.datasets.load import load_problems
from tts.engines.generate_request import GenerateRequest
from tts.engines.responses import Response
from tts.prompting import Context, Models
from tts.runs.events import Generated, thoughts_of
from tts.runs.folder import read_config
from tts.runs.log import read_events
from tts.search import node_seed
from tts.session.embedded import limits_of

TOLERANCE = 1e-4  # of a label's log-probability


def recorded(deployment: Deployment, run: Path) -> dict[str, list[GenerateRequest]]:
    """The distinct requests of a beam-search run, shallow nodes first."""
    config, models = read_config(run), Models.load(deployment)
    problems = load_problems(config["dataset"], limit=config["limit"], seed=config["seed"])
    contexts = {problem.id: Context.of(models, problem) for problem in problems}
    events = [event for event in read_events(run) if isinstance(event, Generated)]
    events.sort(key=lambda event: len(event.node))
    stops = tuple(models.step_stop_words)
    generate: list[GenerateRequest] = []
    score: dict[bytes, GenerateRequest] = {}
    for event in events:
        context, node = contexts[event.problem], event.node
        (thought,) = thoughts_of(event)
        prompt = context.generator_ids(node[:-1]).astype("int64")
        seed = node_seed(config["seed"], event.problem, node)
        generate.append(
            GenerateRequest(prompt, 100, models.end_id, stops, 0.8, top_p=1.0, seed=seed)
        )
        context.add(node, thought)
        ids = context.verifier_ids(node).astype("int64")
        score.setdefault(ids.tobytes(), GenerateRequest(ids, 1, return_generation_logits=True))
    return {"generator": generate, "verifier": list(score.values())}


def run_all(
    deployment: Deployment, role: Any, requests: list[GenerateRequest], **options: Any
) -> tuple[list[Response], float, int]:
    """All answers, the CPU seconds of this process, and the engine's steps."""
    config = require_current(deployment)[role]
    guarded = options.pop("guarded", True)
    limits = limits_of(deployment.engines()[role], config, **options)
    host = EngineHost(paths.engine_dir(deployment.name, role), config, limits)
    if not guarded:
        vars(host)["_may_enter"] = lambda ticket: True  # the guard, put aside
    answers: dict[int, Response] = {}
    in_flight = limits.max_active
    slots = threading.Semaphore(in_flight)

    def take(index: int, response: Response) -> None:
        answers[index] = response
        slots.release()

    started = time.process_time()
    for index, request in enumerate(requests):
        slots.acquire()  # as a client does that keeps so many at the engine
        host.submit(request, partial(take, index))
    for _ in range(in_flight):
        slots.acquire()
    seconds = time.process_time() - started
    host.close()
    return [answers[index] for index in range(len(requests))], seconds, host.statistics().iteration


def differ(one: Response, other: Response) -> bool:
    """Whether two answers to one request are not the same, within the tolerance for logits."""
    if one.label_logits and other.label_logits:
        pairs = zip(one.label_logits, other.label_logits, strict=True)
        return any(abs(a - b) > TOLERANCE * max(1.0, abs(a)) for a, b in pairs)
    return one.token_ids != other.token_ids


def main() -> None:
    """Send a run's requests in several ways, and print a line for each."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("deployment", help="name of a bundled deployment, or a file")
    parser.add_argument("run", type=Path, help="folder of a beam-search run")
    arguments = parser.parse_args()
    deployment = load_deployment(arguments.deployment)
    for role, requests in recorded(deployment, arguments.run).items():
        reference, *_ = run_all(deployment, role, requests, kv_reuse=False, max_active=1)
        for name, options in {
            "no reuse, 32 in flight": {"kv_reuse": False, "max_active": 32},
            "reuse, no guard, 32 in flight": {"guarded": False, "max_active": 32},
            "reuse, guard, 32 in flight": {"max_active": 32},
            "reuse, guard, 64 in flight": {"max_active": 64},
        }.items():
            answers, seconds, steps = run_all(deployment, role, requests, **options)
            wrong = sum(map(differ, reference, answers))
            print(
                f"{role:10} {name:30} {wrong:5} of {len(requests)} wrong  {seconds:6.2f} CPU s"
                f"  {steps:5} steps"
            )


if __name__ == "__main__":
    main()
