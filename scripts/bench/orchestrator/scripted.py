"""The orchestrator on engines in its own process that answer at once: no gRPC, no engines."""

from __future__ import annotations

import cProfile
import time
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from scripts.bench.common import logged, tree_of
from tts.build.spec import load_deployment
from tts.datasets.load import load_problems
from tts.driver import Driver
from tts.endpoints.scripted import Calls, ScriptedGenerator, ScriptedVerifier
from tts.problem import Problem
from tts.prompting import Models
from tts.scheduling import Policy
from tts.search import (
    Generated,
    Node,
    NodePath,
    Scored,
    Search,
    SearchConfig,
    Thought,
    node_seed,
)
from tts.session.event_loop import run_loop
from tts.session.journal import event_of
from tts.strategies.catalog import new_search

WORDS = ("37 + 58 = 95", "Adding ", "12", " gives ", "Therefore")
END = 0.15
"""How many steps end a chain."""


class Uncounted(list[Any]):
    """Keeps nothing: scripted engines would remember every request."""

    def append(self, _: object) -> None:
        """Forget it."""


def scripted_engines(
    encode: Callable[[str], list[int]],
) -> tuple[ScriptedGenerator, ScriptedVerifier]:
    """A pair whose answers depend on the request alone; `encode` is the generator's tokenizer."""
    calls = Calls(Uncounted(), Uncounted())
    words = [encode(word) for word in WORDS]
    generator = ScriptedGenerator(words, encode("\n\n"), end=END, calls=calls)
    return generator, ScriptedVerifier(steps=1000, calls=calls)


def run(
    config: SearchConfig, problems: int, profile: cProfile.Profile | None = None
) -> tuple[dict[str, Search], float]:
    """Solve the demo problems: the searches by problem, and CPU seconds."""
    spec = load_deployment("demo")
    models = Models.load(spec)
    searches: dict[str, Search] = {}

    def new(problem: Problem) -> Search:
        search = new_search(config, partial(node_seed, 0, problem.id))
        searches[problem.id] = search
        return search

    with logged() as log:
        driver = Driver(
            models,
            *scripted_engines(models.generator.encode),
            Policy("decoupled", 64, spec.verifier.in_flight_tokens),
            record=lambda record: log.write(event_of(record)),
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


def repeat(config: SearchConfig, searches: Mapping[str, Search]) -> float:
    """CPU seconds of the search cores alone, told again what the engines answered."""
    answers = {problem: answers_of(config, search) for problem, search in searches.items()}
    started = time.process_time()
    for problem, told in answers.items():
        again = new_search(config, partial(node_seed, 0, problem))
        while not again.done:
            for work in again.ask():
                again.tell(told[type(work).__name__, work.node])
    return time.process_time() - started


def answers_of(
    config: SearchConfig, search: Search
) -> dict[tuple[str, NodePath], Generated | Scored]:
    """What was told to a finished search, by kind of work and node."""
    tree = tree_of(search)
    answers: dict[tuple[str, NodePath], Generated | Scored] = {}
    for node in tree:
        answers["Score", node.path] = Scored(node.path, node.score or 0.0)
        thoughts: list[Thought] = []
        below: Node | None = node
        while below is not None:
            assert below.thought is not None  # it was told
            thoughts.append(below.thought)
            below = tree.get((*below.path, 0))
        whole = len(node.path) == 1 and hasattr(config, "scored")
        kept = tuple(thoughts) if whole else tuple(thoughts[:1])
        answers["Expand", node.path] = Generated(node.path, kept)
    return answers
