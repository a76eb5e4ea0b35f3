"""The orchestrator on engines in its own process that answer at once: no gRPC, no engines."""

from __future__ import annotations

import cProfile
import tempfile
import time
from functools import partial
from pathlib import Path

from tts.build.spec import load_deployment
from tts.datasets.load import load_problems
from tts.driver import Driver
from tts.endpoints.scripted import Calls, ScriptedGenerator, ScriptedVerifier
from tts.prompting import Models
from tts.runs.folder import create_run
from tts.runs.log import RunLog
from tts.scheduling import Policy
from tts.search import Generated, Scored, node_seed
from tts.session.event_loop import run_loop
from tts.strategies.catalog import new_search

WORDS = ("37 + 58 = 95", "Adding ", "12", " gives ", "Therefore")
END = 0.15
"""How many steps end a chain."""


class Uncounted(list):
    """Keeps nothing: scripted engines would remember every request."""

    def append(self, _: object) -> None:
        """Forget it."""


def scripted_engines(encode) -> tuple[ScriptedGenerator, ScriptedVerifier]:
    """A pair whose answers depend on the request alone; `encode` is the generator's tokenizer."""
    calls = Calls(Uncounted(), Uncounted())
    words = [encode(word) for word in WORDS]
    generator = ScriptedGenerator(words, encode("\n\n"), end=END, calls=calls)
    return generator, ScriptedVerifier(steps=1000, calls=calls)


def run(config, problems, profile: cProfile.Profile | None = None):
    """Solve the demo problems: the searches by problem, and CPU seconds."""
    spec = load_deployment("demo")
    models = Models.load(spec)
    searches = {}

    def new(problem):
        search = new_search(config, lambda node: node_seed(0, problem.id, node))
        searches[problem.id] = search
        return search

    with tempfile.TemporaryDirectory() as folder:
        create_run(Path(folder), {})
        with RunLog(Path(folder)) as log:
            driver = Driver(
                models,
                *scripted_engines(models.generator.encode),
                Policy("decoupled", 64, spec.verifier.in_flight_tokens),
                record=log.write,
                clock=log.clock,
            )
            to_solve = load_problems("demo", limit=problems)

            async def solve() -> None:
                async with driver:
                    for problem in to_solve:
                        driver.submit(problem, partial(new, problem))
                    await driver.drain()

            if profile:
                profile.enable()
            started = time.process_time()
            run_loop(solve())
            spent = time.process_time() - started
            if profile:
                profile.disable()
    return searches, spent


def repeat(config, searches) -> float:
    """CPU seconds of the search cores alone, told again what the engines answered."""
    answers = {problem: answers_of(search) for problem, search in searches.items()}
    started = time.process_time()
    for problem, told in answers.items():
        again = new_search(config, lambda node, problem=problem: node_seed(0, problem, node))
        while not again.done:
            for work in again.ask():
                again.tell(told[type(work).__name__, work.node])
    return time.process_time() - started


def answers_of(search):
    """What was told to a finished search, by kind of work and node."""
    answers = {}
    for node in search.tree:
        answers["Score", node.path] = Scored(node.path, node.score or 0.0)
        thoughts, below = [], node
        while below is not None:
            thoughts.append(below.thought)
            below = search.tree.get((*below.path, 0))
        whole = len(node.path) == 1 and hasattr(search.config, "scored")
        kept = tuple(thoughts) if whole else tuple(thoughts[:1])
        answers["Expand", node.path] = Generated(node.path, kept)
    return answers
